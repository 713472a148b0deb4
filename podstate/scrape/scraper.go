package scrape

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// Config says how the pods of a pool are scraped.
type Config struct {
	Pool     string            // for metrics and logs
	Engine   string            // one of EngineNames; empty: Auto
	Interval time.Duration     // between two scrapes of a pod; 0: 1 s; at least 10 ms
	Path     string            // of the metrics; empty: the engine's
	Port     uint16            // of the metrics; 0: the one that the pod serves at
	TLS      *tls.Config       // nil: plain HTTP
	Token    string            // sent as bearer token; empty: none
	Budget   *Budget           // of the process; nil: one of defaultBudget for this pool alone
	Mapping  map[string]string // from the name of a quantity to a series that comes before the engine's own

	// Set by New.
	program  *program            // of Engine; nil: Auto
	programs map[string]*program // by the name of the engine
	now      func() time.Time
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
}

// defaultBudget is in scrapes a second: about a tenth of a core.
const defaultBudget = 1000

// Scraper keeps the stats of a table's pods fresh, with one loop for each pod.
type Scraper struct {
	cfg     Config
	table   *podstate.Table
	metrics *Metrics
	log     *slog.Logger
	changed chan []*podstate.Pod // the newest membership, until Run has taken it
}

// New returns a scraper that does nothing before Run.
func New(cfg Config, table *podstate.Table, m *Metrics, log *slog.Logger) (*Scraper, error) {
	if cfg.Interval == 0 {
		cfg.Interval = time.Second
	}
	if cfg.Interval < 10*time.Millisecond {
		return nil, fmt.Errorf("scrape interval %v is too short; at least 10ms", cfg.Interval)
	}
	if cfg.Path != "" && !strings.HasPrefix(cfg.Path, "/") {
		return nil, fmt.Errorf("scrape path %q does not begin with /", cfg.Path)
	}
	extra, err := parseMapping(cfg.Mapping)
	if err != nil {
		return nil, err
	}
	cfg.programs = make(map[string]*program, len(engines))
	for _, e := range engines {
		cfg.programs[e.name] = compile(e, extra)
	}
	cfg.program = cfg.programs[cfg.Engine]
	if cfg.program == nil && cfg.Engine != Auto && cfg.Engine != "" {
		return nil, fmt.Errorf("unknown engine %q; known engines: %s", cfg.Engine, strings.Join(EngineNames(), ", "))
	}
	if cfg.Budget == nil {
		cfg.Budget = NewBudget(defaultBudget)
	}
	cfg.now = time.Now
	cfg.dial = (&net.Dialer{}).DialContext
	return &Scraper{
		cfg: cfg, table: table, metrics: m, log: log,
		changed: make(chan []*podstate.Pod, 1),
	}, nil
}

// Set makes the pods, which are members of the table, those that are scraped. It
// does not wait, and may be called before Run and at any time.
func (s *Scraper) Set(pods []*podstate.Pod) {
	for {
		select {
		case s.changed <- pods:
			return
		default:
		}
		select {
		case <-s.changed: // nobody has seen it: the newer one replaces it
		default:
		}
	}
}

// Run scrapes until ctx ends, and returns when all loops have ended.
func (s *Scraper) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	stops := map[*podstate.Pod]context.CancelFunc{}
	s.metrics.watch(s.cfg.Pool, s.table)
	defer func() {
		for _, stop := range stops {
			stop()
		}
		loops.Wait()
		s.metrics.forget(s.cfg.Pool, s.table)
	}()
	for {
		var pods []*podstate.Pod
		select {
		case <-ctx.Done():
			return nil
		case pods = <-s.changed:
		}
		for p, stop := range stops {
			if !slices.Contains(pods, p) {
				stop()
				delete(stops, p)
			}
		}
		for _, p := range pods {
			if stops[p] != nil {
				continue
			}
			loopCtx, stop := context.WithCancel(ctx)
			stops[p] = stop
			// Spread, so that a thousand pods do not answer in the same moment for ever;
			// few pods are known at once.
			offset := time.Duration(rand.Float64() * float64(min(s.cfg.Interval, time.Duration(len(pods))*time.Millisecond)))
			loops.Go(func() { s.loop(loopCtx, p, offset) })
		}
	}
}

// loop scrapes one pod until ctx ends.
func (s *Scraper) loop(ctx context.Context, pod *podstate.Pod, offset time.Duration) {
	t := newTarget(&s.cfg, pod.Addr)
	defer t.close()
	timer := time.NewTimer(offset)
	defer timer.Stop()
	r := rhythm{interval: s.cfg.Interval, budget: s.cfg.Budget}
	var failedSince time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		failures := r.failures
		pause, err := s.once(ctx, t, pod, &r)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && failures > 0:
			s.log.Info("pod is scraped again", "pool", s.cfg.Pool, "pod", pod.Addr, "after", s.cfg.now().Sub(failedSince))
		case err != nil && failures == 0:
			failedSince = s.cfg.now()
			s.log.Warn("cannot scrape pod", "pool", s.cfg.Pool, "pod", pod.Addr, "error", err)
		}
		timer.Reset(wait(s.cfg.now(), pause))
	}
}

// once scrapes a pod, hands the result on, and returns when to do so again.
func (s *Scraper) once(ctx context.Context, t *target, pod *podstate.Pod, r *rhythm) (time.Duration, error) {
	start := s.cfg.now()
	mark := s.table.BeginScrape(pod)
	stats, err := t.scrape(ctx, start)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	now := s.cfg.now()
	word := outcome(err)
	if stats != nil && stats.Known == 0 {
		word = outcome(errNothing) // no failure: a server of several processes is silent until its first request
	}
	s.metrics.observe(s.cfg.Pool, word, now.Sub(start), t.bytes, t.bad)
	if err != nil {
		s.tellHealth(pod, err)
		return r.failed(), err
	}
	pause := r.next(now, stats, mark, t.floor(), t.light())
	if stats != nil {
		stats.Every = max(pause, s.cfg.Interval) // after a pause in a hurry, no sooner stale than others
		s.table.SetStats(pod, stats, mark)
	}
	return pause, nil
}

// tellHealth tells the table whether the port was open when a scrape failed, if
// the scrape knows.
func (s *Scraper) tellHealth(pod *podstate.Pod, err error) {
	var status *statusError
	switch {
	case s.cfg.Port != 0: // another process, in all likelihood
	case errors.Is(err, syscall.ECONNREFUSED):
		s.table.ScrapeRefused(pod, s.cfg.now())
	case errors.As(err, &status) || errors.Is(err, errNothing) || errors.Is(err, errTooLarge):
		s.table.ScrapeAnswered(pod, s.cfg.now())
	}
}
