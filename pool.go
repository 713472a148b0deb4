package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/podstate/discovery"
	"github.com/warmpath/warmpath/podstate/prefix"
	"github.com/warmpath/warmpath/podstate/scrape"
	"github.com/warmpath/warmpath/proto/config"
	"github.com/warmpath/warmpath/proto/configpb"
	"github.com/warmpath/warmpath/scorers"
)

// cacheCheck is how often the index learns what the pods say about their caches.
// They change when a pod starts again.
const cacheCheck = time.Second

// pool is what belongs to one pool: who its pods are, what they are doing, and
// how one is chosen.
type pool struct {
	// Made by newPool.
	name    string
	source  discovery.Discoverer
	table   *podstate.Table
	index   *prefix.Index
	profile *scorers.Profile
	scrape  scrape.Config
	scraper *scrape.Scraper
	eds     *envoy.EDS
	log     *slog.Logger
	found   chan struct{} // closed when the first list of pods is in place

	// bytesPerToken tells how much text a token of a KV cache holds. It is set
	// before run.
	bytesPerToken func() float64
	// learn tells the router the names of the adapters that the pods have, and
	// returns how many it does not take. It is set before run.
	learn func(names []string) (left int)

	// Of the goroutine that calls set and the read methods.
	specs    []podstate.Spec
	caches   map[*podstate.Pod]cache // what the index knows of the members
	adapters []string                // what the router knows; sorted
}

// cache is what a pod has said about its KV cache.
type cache struct {
	epoch int   // when it was emptied
	bytes int64 // of text; 0: not known
}

func newPool(c *configpb.Pool, indexBytes int64, eds *envoy.EDS, m *scrape.Metrics, budget *scrape.Budget, log *slog.Logger) (*pool, error) {
	p := &pool{
		name:   c.Name,
		table:  podstate.NewTable(),
		index:  prefix.NewIndex(indexBytes),
		eds:    eds,
		log:    log.With("pool", c.Name),
		found:  make(chan struct{}),
		caches: map[*podstate.Pod]cache{},
		scrape: scrape.Config{
			Pool: c.Name, Engine: c.Engine, Interval: config.Interval(c), Path: c.Scrape.Path,
			Port: uint16(c.Scrape.Port), Token: c.Scrape.Token, Mapping: c.Scrape.Series, Budget: budget,
		},
	}
	var err error
	if p.profile, err = scorers.NewProfile(c.Profile, c.Weights); err != nil {
		return nil, faultIn("profile", err)
	}
	if p.scrape.TLS, err = scrapeTLS(c.Scrape.Tls); err != nil {
		return nil, faultIn("scrape.tls", err)
	}
	if p.scraper, err = scrape.New(p.scrape, p.table, m, log); err != nil {
		return nil, faultIn("scrape", err)
	}
	p.source, err = newSource(c.Discovery, p.log)
	return p, faultIn("discovery", err)
}

// scrapeTLS returns nil for plain HTTP.
func scrapeTLS(c *configpb.ScrapeTLS) (*tls.Config, error) {
	if c == nil {
		return nil, nil
	}
	t := &tls.Config{ServerName: c.ServerName, InsecureSkipVerify: c.InsecureSkipVerify}
	if c.CaFile != "" {
		text, err := os.ReadFile(c.CaFile)
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("scrape.tls.caFile %s has no certificate; want PEM", c.CaFile)
		}
	}
	return t, nil
}

// newSource returns the one source that a valid configuration names.
func newSource(c *configpb.Discovery, log *slog.Logger) (discovery.Discoverer, error) {
	switch {
	case c.File != "":
		_, err := discovery.ReadFile(c.File) // later, a broken file keeps the last good list; there is none yet
		return discovery.NewFile(c.File, log), err
	case c.Dns != "":
		return discovery.NewDNS(c.Dns, log)
	case c.Kubernetes != nil:
		return nil, errors.New("discovery by kubernetes is not built into this version; name a headless service under dns")
	}
	var list []any
	for _, entry := range c.Static {
		list = append(list, entry.AsInterface())
	}
	specs, err := discovery.ParseEndpoints(list)
	return discovery.Static(specs), err
}

// run keeps the pool until ctx ends.
func (p *pool) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	lists := make(chan []podstate.Spec)
	group.Go(func() error { return p.scraper.Run(ctx) })
	group.Go(func() error { return p.source.Run(ctx, lists) })
	group.Go(func() error {
		tick := time.NewTicker(cacheCheck)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case specs := <-lists:
				p.set(ctx, specs)
			case <-tick.C:
				p.readCaches()
				p.readAdapters()
			}
		}
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("pool %q: %w", p.name, err)
	}
	return nil
}

// set makes specs the pods of the pool. A new pod may be picked once Envoy knows
// it, and one that has left may not be picked any more before Envoy forgets it:
// Envoy would send the request to another pod than the one that is charged.
func (p *pool) set(ctx context.Context, specs []podstate.Spec) {
	old := p.specs
	p.specs = specs
	stay := slices.DeleteFunc(slices.Clone(old), func(s podstate.Spec) bool {
		return !slices.ContainsFunc(specs, func(n podstate.Spec) bool { return same(s, n) })
	})
	came, left := 0, 0
	change := func(specs []podstate.Spec) {
		c, l := p.setTable(specs)
		came, left = came+c, left+l
	}
	if len(stay) > 0 || len(specs) == 0 {
		change(stay)
		p.tellEnvoy(ctx, specs)
		change(specs)
	} else { // all are replaced: for a moment Envoy has both, or nobody could be picked
		p.tellEnvoy(ctx, slices.Concat(old, specs))
		change(specs)
		p.tellEnvoy(ctx, specs)
	}
	if came+left > 0 {
		p.log.Info("pods changed", "came", came, "left", left, "now", len(specs))
	}
	select {
	case <-p.found:
	default:
		close(p.found)
	}
}

// same reports whether both are the same pod, as Table.SetPods sees it.
func same(a, b podstate.Spec) bool { return a.Name == b.Name && a.Addr == b.Addr && a.UID == b.UID }

func (p *pool) tellEnvoy(ctx context.Context, specs []podstate.Spec) {
	addrs := make([]netip.AddrPort, len(specs))
	for i, s := range specs {
		addrs[i] = s.Addr
	}
	if err := p.eds.Set(ctx, p.name, addrs); err != nil && ctx.Err() == nil {
		p.log.Warn("Envoy is late", "error", err)
	}
}

func (p *pool) setTable(specs []podstate.Spec) (came, left int) {
	added, removed := p.table.SetPods(specs)
	for _, pod := range removed {
		p.index.Remove(pod.Slot)
		delete(p.caches, pod)
	}
	for _, pod := range added {
		// A request that was decided while the slot's last pod left may have been
		// noted afterwards.
		p.index.Remove(pod.Slot)
	}
	if len(added)+len(removed) > 0 {
		p.scraper.Set(p.table.Pods())
	}
	return len(added), len(removed)
}

// readCaches tells the index how large the pods' caches are, and which of them
// have been emptied by a restart.
func (p *pool) readCaches() {
	for _, c := range p.table.Snapshot(time.Now()) {
		known, seen := p.caches[c.Pod]
		now := cache{epoch: c.Stats.Epoch}
		if c.Stats.Has(podstate.FieldKVTokens) {
			now.bytes = int64(float64(c.Stats.KVTokens) * p.bytesPerToken())
		}
		if seen && now.epoch != known.epoch {
			p.index.Remove(c.Pod.Slot) // takes its capacity away, too
			known.bytes = 0
		}
		if now.bytes > 0 && now.bytes != known.bytes {
			p.index.SetCapacity(c.Pod.Slot, now.bytes)
		}
		p.caches[c.Pod] = now
	}
}
