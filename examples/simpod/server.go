// Package simpod is a vLLM server without a GPU: it speaks vLLM's HTTP API and
// metrics, and answers as fast as the modelled GPU would. Several can run in one
// process.
//
// It is for demonstrations and tests. The text that it generates means nothing.
package simpod

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/scorers/sim/engine"
)

// Config is one pod.
type Config struct {
	Addr     string        // host:port to listen on; port 0 for any free one
	Model    string        // name of the base model; empty is "sim"
	Adapters []string      // LoRA adapters that it serves
	Engine   engine.Config // see engine.Preset
	Speedup  float64       // how much faster than the modelled GPU; 0 is 1

	// StreamInterval is how many tokens share one event of a stream after the
	// first; 0 is 1. vLLM has the same option, and merges events under load.
	StreamInterval int

	ServerLoad bool  // /load counts requests; without it /load always says 0, as vLLM's does
	Fault      Fault // how it misbehaves from the start
}

// Server is a running pod.
type Server struct {
	Addr string // where it listens

	cfg     Config
	http    *http.Server
	started time.Time
	stop    context.CancelFunc
	running sync.WaitGroup
	wake    chan struct{} // the engine has got work
	load    atomic.Int64  // generating requests that are open
	fault   atomic.Pointer[Fault]
	serial  atomic.Int64

	mu     sync.Mutex // guards the fields below
	engine *engine.Engine
	jobs   map[*job]struct{}
	lora   loraSeries
	ttft   histogram
}

// job is one request in the engine. Its fields are guarded by Server.mu.
type job struct {
	request  engine.Request
	arrived  time.Duration
	notified int // tokens that its handler has been told of
	finished bool
	wake     chan struct{} // something has changed; holds one signal
}

// Start opens a pod.
func Start(cfg Config) (*Server, error) {
	if cfg.Model == "" {
		cfg.Model = "sim"
	}
	if cfg.Speedup == 0 {
		cfg.Speedup = 1
	}
	cfg.StreamInterval = max(1, cfg.StreamInterval)
	if cfg.Speedup < 0 {
		return nil, fmt.Errorf("speedup %v must be above 0", cfg.Speedup)
	}
	if !cfg.Fault.known() {
		return nil, fmt.Errorf("unknown fault %q; known: %s", cfg.Fault, faultList)
	}
	e, err := engine.New(cfg.Engine)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		Addr: l.Addr().String(), cfg: cfg, started: time.Now(), stop: stop,
		wake: make(chan struct{}, 1), engine: e, jobs: map[*job]struct{}{},
	}
	s.SetFault(cfg.Fault)
	// vLLM closes an idle connection after 5 s.
	s.http = &http.Server{Handler: s.routes(), IdleTimeout: 5 * time.Second, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	s.running.Go(func() { s.run(ctx) })
	s.running.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			stop()
		}
	})
	return s, nil
}

// Close ends the pod at once. Open requests are cut.
func (s *Server) Close() {
	s.stop()
	s.http.Close()
	s.running.Wait()
}

// Report is what the engine says about itself now.
func (s *Server) Report() engine.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.Report()
}

// ResetCache forgets the prefixes that no open request uses.
func (s *Server) ResetCache() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine.ResetCache()
}

// now is the time of the modelled GPU.
func (s *Server) now() time.Duration {
	return time.Duration(float64(time.Since(s.started)) * s.cfg.Speedup)
}

// run ends the engine's steps when they are due.
func (s *Server) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		now := s.now()
		s.advance(now)
		at, busy := s.engine.Next()
		s.mu.Unlock()
		wait := time.Hour
		if busy {
			wait = time.Duration(float64(at-now) / s.cfg.Speedup)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// advance ends all steps that are due and tells the handlers. A late call does
// not slow the GPU down: steps end when they should have. Caller holds s.mu.
func (s *Server) advance(now time.Duration) {
	moved := false
	for {
		at, busy := s.engine.Next()
		if !busy || at > now {
			break
		}
		moved = true
		for _, ev := range s.engine.EndStep() {
			j := ev.Request.Data.(*job)
			if ev.Kind == engine.Finished {
				j.finished = true
			} else {
				s.ttft.add((at - j.arrived).Seconds())
			}
		}
		s.lora.update(s.engine.Report().Adapters, time.Now())
	}
	if !moved {
		return
	}
	for j := range s.jobs {
		n := s.engine.Generated(&j.request)
		if j.finished || n > 0 && j.notified == 0 || n-j.notified >= s.cfg.StreamInterval {
			j.notified = n
			j.signal()
		}
	}
}

// submit hands a request to the engine.
func (s *Server) submit(r engine.Request) (*job, error) {
	j := &job{request: r, wake: make(chan struct{}, 1)}
	j.request.Data = j
	s.mu.Lock()
	defer s.mu.Unlock()
	j.arrived = s.now()
	s.advance(j.arrived)
	if err := s.engine.Submit(j.arrived, &j.request); err != nil {
		return nil, err
	}
	s.jobs[j] = struct{}{}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return j, nil
}

// wait blocks until more tokens of j exist than the caller has seen, and returns
// how many there are and whether those are all.
func (s *Server) wait(ctx context.Context, j *job) (tokens int, finished bool, err error) {
	select {
	case <-ctx.Done():
		return 0, false, ctx.Err()
	case <-j.wake:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.notified, j.finished, nil
}

// drop forgets a request; one that has not finished is aborted.
func (s *Server) drop(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine.Abort(&j.request)
	delete(s.jobs, j)
}

func (j *job) signal() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// FirstTokens is how many requests have got their first token.
func (s *Server) FirstTokens() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.ttft.count {
		n += c
	}
	return n
}
