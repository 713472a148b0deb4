package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	extprocpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/extproc"
	"github.com/warmpath/warmpath/extproc/admin"
	"github.com/warmpath/warmpath/extproc/route"
	"github.com/warmpath/warmpath/podstate/scrape"
	"github.com/warmpath/warmpath/proto/configpb"
)

const (
	// indexBytes bounds what all pools together remember of prompts. At 60 bytes
	// for each block of a prompt and pod, it is enough for what a hundred pods
	// hold in their caches, and no memory is used before it is needed.
	indexBytes = 256 << 20
	// findTimeout bounds how long the start waits for the first list of pods. A
	// source that does not answer must not keep the other pools from serving.
	findTimeout = 5 * time.Second
	// scrapeBudget bounds how many scrapes a second all pools together may do
	// beyond one for each pod and interval: about a tenth of a core.
	scrapeBudget = 1000
)

// parts are everything that serve runs.
type parts struct {
	server *configpb.Server
	pools  []*pool
	eds    *envoy.EDS
	picker *extproc.Server
	admin  *admin.Server
	past   *admin.Recorder
	ready  atomic.Bool
	log    *slog.Logger
}

// A fault is why a part of the configuration cannot be built, though its values
// are valid.
type fault struct {
	field string // as in pools[0].scrape
	err   error
}

func (f *fault) Error() string { return f.field + ": " + f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// faultIn says in which field err lies, unless it is nil.
func faultIn(field string, err error) error {
	if inner := (*fault)(nil); errors.As(err, &inner) {
		return &fault{field + "." + inner.field, inner.err}
	} else if err != nil {
		return &fault{field, err}
	}
	return nil
}

// build makes every part of a valid configuration and starts none. It looks at
// all pools before it fails.
func build(cfg *configpb.GatewayConfig, reg *prometheus.Registry, log *slog.Logger) (*parts, error) {
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	scrapes, err := scrape.NewMetrics(reg)
	if err != nil {
		return nil, err
	}
	budget := scrape.NewBudget(scrapeBudget)
	router, err := route.New(cfg.Pools, cfg.DefaultPool)
	if err != nil {
		return nil, err
	}
	p := &parts{server: cfg.Server, log: log, eds: envoy.NewEDS(poolNames(cfg), log)}
	if p.past, err = admin.NewRecorder(logConfig(cfg.Server.DecisionLog), len(cfg.Pools), reg, log); err != nil {
		return nil, err
	}
	var picked []extproc.Pool
	var shown []admin.Pool
	var faults []error
	for i, c := range cfg.Pools {
		pool, err := newPool(c, indexBytes/int64(len(cfg.Pools)), p.eds, scrapes, budget, log)
		if err != nil {
			faults = append(faults, faultIn(fmt.Sprintf("pools[%d]", i), err))
			continue
		}
		p.pools = append(p.pools, pool)
		picked = append(picked, extproc.Pool{
			Name: c.Name, Table: pool.table, Index: pool.index,
			Policy:  p.past.Watch(c.Name, c.Profile, c.Weights, pool.profile),
			Observe: extproc.Observe{FirstToken: c.Observe.FirstToken, Usage: c.Observe.Usage, CPUBudget: c.Observe.CpuBudget},
		})
		shown = append(shown, admin.Pool{
			Name: c.Name, Table: pool.table,
			Path: pool.scrape.Path, Port: pool.scrape.Port, TLS: pool.scrape.TLS, Token: pool.scrape.Token,
			Inspect: func(ctx context.Context, addr netip.AddrPort) (io.WriterTo, error) {
				return pool.scraper.Inspect(ctx, addr)
			},
		})
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	tls := cfg.Server.Grpc.Tls
	p.picker, err = extproc.New(extproc.Config{
		TLS: extproc.TLS{Mode: tls.Mode, CertDir: tls.CertDir},
		FallbackRequest: extprocpb.ProcessingMode_BodySendMode(
			extprocpb.ProcessingMode_BodySendMode_value[cfg.Envoy.BodyMode]),
	}, router, picked, reg, log)
	if err != nil {
		return nil, faultIn("server.grpc.tls", err)
	}
	for i, pool := range p.pools {
		pool.bytesPerToken = func() float64 { return p.picker.BytesPerToken(i) }
		pool.learn = func(names []string) int { return router.Learn(i, names) }
	}
	p.eds.Register(p.picker.Registrar())
	p.admin = admin.New(admin.Config{
		Token: cfg.Server.Admin.AdminToken, Pools: shown, Decisions: p.past, Gatherer: reg, Ready: p.ready.Load, Now: time.Now,
	}, log)
	return p, nil
}

// logConfig is of no log if c is nil.
func logConfig(c *configpb.DecisionLog) admin.LogConfig {
	return admin.LogConfig{File: c.GetFile(), Sample: c.GetSample(), MaxBytes: int64(c.GetMaxMegabytes()) << 20}
}

func poolNames(cfg *configpb.GatewayConfig) (names []string) {
	for _, p := range cfg.Pools {
		names = append(names, p.Name)
	}
	return names
}

// run serves until ctx ends or a part fails, and returns when all parts have
// ended. What the server needs outlives it: while it drains, pods are still
// found and scraped, and admin answers.
func (p *parts) run(ctx context.Context) error {
	if err := p.past.Open(); err != nil { // before anybody is served
		return err
	}
	listeners, err := p.listen()
	if err != nil {
		return err
	}
	group, background := errgroup.WithContext(context.WithoutCancel(ctx))
	background, stop := context.WithCancel(background)
	defer stop()

	group.Go(func() error { return p.admin.Serve(background, listeners.admin) })
	group.Go(func() error { return p.past.Run(background) })
	for _, pool := range p.pools {
		group.Go(func() error { return pool.run(background) })
	}
	group.Go(func() error {
		defer stop()
		serving, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(background, cancel)()
		defer context.AfterFunc(serving, func() {
			p.ready.Store(false)
			p.log.Info("draining")
		})()

		p.awaitPods(serving)
		p.ready.Store(serving.Err() == nil)
		p.log.Info("serving", "grpc", listeners.grpc.Addr(), "health", listeners.health.Addr(), "admin", listeners.admin.Addr())
		return p.picker.Serve(serving, listeners.grpc, listeners.health)
	})
	err = group.Wait()
	p.log.Info("stopped")
	return err
}

// awaitPods waits until each pool has its first list of pods, or too long.
func (p *parts) awaitPods(ctx context.Context) {
	timeout := time.NewTimer(findTimeout)
	defer timeout.Stop()
	for _, pool := range p.pools {
		select {
		case <-pool.found:
		case <-ctx.Done():
			return
		case <-timeout.C:
			timeout.Reset(0) // no pool gets more than what is left
			p.log.Warn("serving before the pods are found", "pool", pool.name, "waited", findTimeout)
		}
	}
}

// listeners are opened before anything starts, so that a port in use is all
// that happens.
type listeners struct{ grpc, health, admin net.Listener }

func (p *parts) listen() (l listeners, err error) {
	for _, o := range []struct {
		field, address string
		to             *net.Listener
	}{
		{"server.grpc.address", p.server.Grpc.Address, &l.grpc},
		{"server.health.address", p.server.Health.Address, &l.health},
		{"server.admin.address", p.server.Admin.Address, &l.admin},
	} {
		*o.to, err = net.Listen("tcp", o.address)
		if err == nil {
			continue
		}
		for _, opened := range []net.Listener{l.grpc, l.health, l.admin} {
			if opened != nil {
				opened.Close()
			}
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			return l, fmt.Errorf("%s: %s is in use; stop what listens there, or choose another port", o.field, o.address)
		}
		return l, fmt.Errorf("%s: %w", o.field, err)
	}
	return l, nil
}
