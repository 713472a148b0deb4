// Package admin is the operator's HTTP port: metrics and health for machines,
// and views of the live state for people.
//
// /metrics, /healthz and /readyz answer everybody. All else shows what runs
// where, and answers only requests from this host and those that carry the
// admin token.
package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/warmpath/warmpath/podstate"
)

// Config is what the server shows and to whom.
type Config struct {
	Token     string // opens the guarded paths to other hosts; empty: to none
	Pools     []Pool
	Decisions *Recorder
	Gatherer  prometheus.Gatherer
	Ready     func() bool      // whether requests are served; called by any goroutine
	Now       func() time.Time // time.Now, but in tests
}

// Pool is one pool as admin shows it, and where its pods' metrics are.
type Pool struct {
	Name  string
	Table *podstate.Table

	Path  string      // empty: /metrics
	Port  uint16      // 0: the one at which the pod serves
	TLS   *tls.Config // nil: plain HTTP
	Token string      // sent as bearer token; empty: none

	// Inspect reads afresh what the pod at addr, a member of Table, says about
	// itself, and returns a report for people. Called by any goroutine.
	Inspect func(ctx context.Context, addr netip.AddrPort) (io.WriterTo, error)
}

// Server answers on the admin port.
type Server struct {
	cfg Config
	log *slog.Logger
	mux *http.ServeMux
}

// New returns a server for cfg.
func New(cfg Config, log *slog.Logger) *Server {
	s := &Server{cfg: cfg, log: log, mux: http.NewServeMux()}
	open := func(pattern string, h http.HandlerFunc) { s.mux.HandleFunc(pattern, h) }
	guarded := func(pattern string, h http.HandlerFunc) { s.mux.HandleFunc(pattern, s.guard(h)) }

	metrics := promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		MaxRequestsInFlight: 4, // each holds the whole text; a scraper needs one
	})
	open("GET /metrics", metrics.ServeHTTP)
	open("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, "ok\n") })
	open("GET /readyz", s.ready)

	guarded("GET /pods", s.pods)
	guarded("GET /pods/{id}/inspect", s.inspect)
	guarded("GET /pods/{id}/metrics", s.podMetrics)
	guarded("GET /decisions", s.decisions)
	guarded("GET /decisions/{id}", s.decision)
	guarded("GET /debug/pprof/", pprof.Index)
	guarded("GET /debug/pprof/cmdline", pprof.Cmdline)
	guarded("GET /debug/pprof/profile", pprof.Profile)
	guarded("GET /debug/pprof/symbol", pprof.Symbol)
	guarded("GET /debug/pprof/trace", pprof.Trace)
	// Nothing here takes another method, so the mux refuses those with 405.
	guarded("GET /", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusNotFound, "no such page; there are /metrics, /healthz, /readyz, /pods, /pods/{address or name}/inspect and /metrics, /decisions, /decisions/{id}, and /debug/pprof/\n")
	})
	return s
}

// Handler returns the pages.
func (s *Server) Handler() http.Handler { return s.mux }

// Serve answers on l until ctx ends. It closes l, and returns when the last
// answer is out or cut off.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s.mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // the longest profile, as net/http/pprof refuses longer ones
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if srv.Shutdown(bound) != nil {
		srv.Close() // a profile is being taken; its reader has lost interest or will lose patience
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if !s.cfg.Ready() {
		reply(w, http.StatusServiceUnavailable, "not serving: starting or draining\n")
		return
	}
	reply(w, http.StatusOK, "ok\n")
}

func reply(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write([]byte(text))
}

func replyJSON(w http.ResponseWriter, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		reply(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(append(text, '\n'))
}
