package scrape

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/podstate"
)

// fakeNet is a network of pods in memory, so that a test's time is virtual. An
// address without a handler refuses connections.
type fakeNet struct {
	mu    sync.Mutex
	pods  map[string]http.HandlerFunc // by address
	asked []string                    // path and query of each request, in order
	times []time.Time                 // of the same
}

func (f *fakeNet) set(addr string, h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pods == nil {
		f.pods = map[string]http.HandlerFunc{}
	}
	f.pods[addr] = h
}

// take returns the requests since the last call whose path begins so.
func (f *fakeNet) take(prefix string) (asked []string, times []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, path := range f.asked {
		if strings.HasPrefix(path, prefix) {
			asked, times = append(asked, path), append(times, f.times[i])
		}
	}
	f.asked, f.times = nil, nil
	return asked, times
}

func (f *fakeNet) dial(_ context.Context, _, addr string) (net.Conn, error) {
	f.mu.Lock()
	known := f.pods[addr] != nil
	f.mu.Unlock()
	if !known {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	ours, theirs := net.Pipe()
	l := &oneConn{conn: theirs, done: make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked = append(f.asked, r.URL.RequestURI())
		f.times = append(f.times, time.Now())
		h := f.pods[addr]
		f.mu.Unlock()
		if h == nil {
			panic(http.ErrAbortHandler) // it has died meanwhile
		}
		h(w, r)
	})}
	server.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			close(l.done)
		}
	}
	go func() { _ = server.Serve(l) }()
	return ours, nil
}

// oneConn is a listener for a single connection.
type oneConn struct {
	conn net.Conn
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, io.EOF
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// fleet is a scraper under test over a fake network.
type fleet struct {
	*fakeNet
	table   *podstate.Table
	scraper *Scraper
	metrics *Metrics
	logs    *bytes.Buffer
	stop    func() // ends Run and waits
}

func newFleet(t *testing.T, cfg Config, addrs ...string) *fleet {
	t.Helper()
	f := &fleet{fakeNet: &fakeNet{}, table: podstate.NewTable(), logs: &bytes.Buffer{}}
	var err error
	if f.metrics, err = NewMetrics(prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	cfg.Pool = "pool"
	if f.scraper, err = New(cfg, f.table, f.metrics, slog.New(slog.NewTextHandler(f.logs, nil))); err != nil {
		t.Fatal(err)
	}
	f.scraper.cfg.dial = f.dial
	f.setPods(addrs...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.scraper.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *fleet) setPods(addrs ...string) {
	var specs []podstate.Spec
	for _, a := range addrs {
		specs = append(specs, podstate.Spec{Addr: netip.MustParseAddrPort(a)})
	}
	f.table.SetPods(specs)
	f.scraper.Set(f.table.Pods())
}

// stats returns what the table knows of the i-th pod.
func (f *fleet) stats(i int) *podstate.Stats { return f.table.Snapshot(time.Now())[i].Stats }

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) }
}

const podA, podB = "10.0.0.1:8000", "10.0.0.2:8000"
