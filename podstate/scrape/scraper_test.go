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
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

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

// take returns the requests since the last call.
func (f *fakeNet) take() (asked []string, times []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, times = f.asked, f.times
	f.asked, f.times = nil, nil
	return asked, times
}

func (f *fakeNet) dial(_ context.Context, _, addr string) (net.Conn, error) {
	f.mu.Lock()
	known := f.pods[addr] != nil
	f.mu.Unlock()
	if !known {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
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

const smallVLLM = "vllm:num_requests_running{engine=\"0\"} 2.0\nvllm:num_requests_waiting{engine=\"0\"} 1.0\n"

func TestScraperScrapesEachPodAtItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{Engine: "tgi"}, podA)
		f.set(podA, text("tgi_batch_current_size 3\ntgi_queue_size 4\n"))
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		asked, times := f.take()
		if n := len(asked); n < 9 || n > 12 {
			t.Errorf("%d scrapes in 10 s at an interval of 1 s", n)
		}
		for i := 1; i < len(times); i++ {
			if d := times[i].Sub(times[i-1]); d < 900*time.Millisecond || d > 1100*time.Millisecond {
				t.Errorf("%v between two scrapes, want 1 s and a tenth of jitter", d)
			}
		}
		if s := f.stats(0); s.Running != 3 || s.Waiting != 4 || s.Engine != "tgi" || s.Every != time.Second {
			t.Errorf("stats %+v", s)
		}
		f.stop()
	})
}

func TestScraperFollowsMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{Engine: "tgi"}, podA)
		f.set(podA, text("tgi_queue_size 1\n"))
		f.set(podB, text("tgi_queue_size 2\n"))
		time.Sleep(2 * time.Second)
		f.setPods(podA, podB)
		time.Sleep(2 * time.Second)
		if a, b := f.stats(0), f.stats(1); a.Waiting != 1 || b.Waiting != 2 {
			t.Errorf("waiting %v and %v, want 1 and 2", a.Waiting, b.Waiting)
		}
		f.setPods()
		synctest.Wait()
		f.take()
		time.Sleep(5 * time.Second)
		if asked, _ := f.take(); len(asked) > 0 {
			t.Errorf("pods that have left were asked %d times", len(asked))
		}
		f.stop()
	})
}

func TestScraperBacksOffAndLogsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{Engine: "tgi"}, podA)
		time.Sleep(time.Minute)
		synctest.Wait()
		failed := counter(t, f.metrics, "unreachable")
		if failed < 60/5.5 || failed > 60/4+4 {
			t.Errorf("%v attempts in a minute, want about one in 5 s", failed)
		}
		if n := strings.Count(f.logs.String(), "\n"); n != 1 || !strings.Contains(f.logs.String(), "connection refused") {
			t.Errorf("log of a pod that stays away: %q", f.logs)
		}
		f.set(podA, text("tgi_queue_size 1\n"))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if !f.stats(0).Has(podstate.FieldWaiting) || strings.Count(f.logs.String(), "\n") != 2 {
			t.Errorf("the pod has come back; log %q", f.logs)
		}
		f.stop()
	})
}

func counter(t *testing.T, m *Metrics, outcome string) float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m.results)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.Metric {
			for _, l := range series.Label {
				if l.GetName() == "outcome" && l.GetValue() == outcome {
					return series.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

func TestScraperMarksWhatTheScrapeCannotSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{Engine: "tgi"}, podA)
		inside := make(chan struct{})
		f.set(podA, func(w http.ResponseWriter, _ *http.Request) {
			<-inside
			fmt.Fprint(w, "tgi_queue_size 1\n")
		})
		time.Sleep(time.Second) // the scrape has begun
		synctest.Wait()
		first := func([]podstate.Candidate) (int, int) { return 0, -1 }
		r, err := f.table.PickAndReserve(&podstate.Ask{Now: time.Now(), Tokens: 10}, first)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release(time.Now())
		close(inside)
		synctest.Wait()
		if c := f.table.Snapshot(time.Now())[0]; c.Stats.Waiting != 1 || c.Unseen != 1 {
			t.Errorf("waiting %v, unseen %d; the request was sent after the scrape had begun", c.Stats.Waiting, c.Unseen)
		}
		time.Sleep(1500 * time.Millisecond)
		if c := f.table.Snapshot(time.Now())[0]; c.Unseen != 0 {
			t.Errorf("unseen %d after the next scrape", c.Unseen)
		}
		f.stop()
	})
}

func TestVLLMIsAskedForNamedSeries(t *testing.T) {
	full := vllmText(1)
	isNamed := func(path string) bool { return strings.HasPrefix(path, "/metrics/?name[]=vllm:num_requests_running&") }
	tests := []struct {
		name    string
		handler func(w http.ResponseWriter, r *http.Request)
		// of the requests after the first two, which are the first contact
		allNamed, allPlain bool
	}{
		{"and stays with it", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("name[]") {
				fmt.Fprint(w, smallVLLM)
				return
			}
			fmt.Fprint(w, full)
		}, true, false},
		{"also when it ignores them and sends all", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, full) }, true, false},
		{"an empty answer means plain for ever", func(w http.ResponseWriter, r *http.Request) {
			if !r.URL.Query().Has("name[]") {
				fmt.Fprint(w, full)
			}
		}, false, true},
		{"404 means plain for ever", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				http.NotFound(w, r)
				return
			}
			fmt.Fprint(w, full)
		}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, Config{}, podA)
				f.set(podA, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/load" {
						http.NotFound(w, r)
						return
					}
					tt.handler(w, r)
				})
				time.Sleep(10 * time.Second)
				synctest.Wait()
				asked, _ := f.take()
				asked = slices.DeleteFunc(asked, func(p string) bool { return p == "/load" })
				if len(asked) < 9 || asked[0] != "/metrics" || !isNamed(asked[1]) {
					t.Fatalf("asked %q", asked)
				}
				for _, path := range asked[2:] {
					if tt.allNamed && !isNamed(path) || tt.allPlain && path != "/metrics" {
						t.Errorf("asked %q", path)
					}
				}
				if s := f.stats(0); s.Engine != "vllm" || !s.Has(podstate.FieldRunning|podstate.FieldWaiting) {
					t.Errorf("stats %+v", s)
				}
				if n := counter(t, f.metrics, "ok"); n < 9 {
					t.Errorf("%v good scrapes", n)
				}
				f.stop()
			})
		})
	}
}

func TestEngineIsFoundWhereverItsMetricsAre(t *testing.T) {
	at := func(where, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != where {
				http.NotFound(w, r)
				return
			}
			fmt.Fprint(w, text)
		}
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		engine  string
	}{
		{"nim at /v1/metrics", at("/v1/metrics", "num_requests_running 1\n"), "nim"},
		{"trtllm beside its destructive JSON", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `[{"numActiveRequests":3}]`)
				return
			}
			at("/prometheus/metrics", "trtllm_num_requests_running 1\n")(w, r)
		}, "trtllm"},
		{"the first trtllm without prefix", at("/prometheus/metrics", "e2e_request_latency_seconds_count{engine_type=\"undefined\"} 1\n"), "trtllm"},
		{"after a redirect", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				http.Redirect(w, r, "/metrics/", http.StatusTemporaryRedirect)
				return
			}
			at("/metrics/", "tgi_queue_size 1\n")(w, r)
		}, "tgi"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, Config{}, podA)
				f.set(podA, tt.handler)
				time.Sleep(time.Second / 2)
				if s := f.stats(0); s.Engine != tt.engine {
					t.Errorf("engine %q, want %q; log %s", s.Engine, tt.engine, f.logs)
				}
				f.take()
				time.Sleep(2200 * time.Millisecond)
				synctest.Wait()
				asked, _ := f.take()
				slices.Sort(asked)
				if got := slices.Compact(asked); len(got) != 1 {
					t.Errorf("once known, the pod is asked at %q", got)
				}
				f.stop()
			})
		})
	}
}

func TestEngineIsDetectedAgainWhenItsSeriesVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{}, podA)
		f.set(podA, text("tgi_queue_size 7\n"))
		time.Sleep(2 * time.Second)
		before := f.stats(0)
		f.set(podA, text("lmdeploy:num_requests_running 1\n"))
		time.Sleep(10 * time.Second)
		after := f.stats(0)
		if before.Engine != "tgi" || after.Engine != "lmdeploy" || after.Epoch <= before.Epoch {
			t.Errorf("engine %s then %s, epoch %d then %d", before.Engine, after.Engine, before.Epoch, after.Epoch)
		}
		f.stop()
	})
}

func TestSilentEngineIsDetectedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{}, podA)
		f.set(podA, text("vllm:engine_version 1\n")) // of several processes, before the first request
		time.Sleep(100 * time.Second)
		synctest.Wait()
		asked, _ := f.take()
		if len(asked) < 90 || counter(t, f.metrics, "empty") < 90 {
			t.Errorf("%d scrapes in 100 s; a silent pod is no failure", len(asked))
		}
		if c := f.table.Snapshot(time.Now())[0]; c.Age > 2 || c.Stats.Engine != "vllm" || c.Stats.Epoch != 0 {
			t.Errorf("stats %+v of age %v", c.Stats, c.Age)
		}
		f.stop()
	})
}

func TestMetricsAreClean(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	table := podstate.NewTable()
	m.watch("p", table)
	m.observe("p", "ok", time.Millisecond, 1, 0)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	if len(families) != 5 {
		t.Errorf("%d families, want 5", len(families))
	}
	m.forget("p", podstate.NewTable())
	if n := len(gather(t, reg)); n != 5 {
		t.Errorf("forgetting an older table of the same name left %d families, want 5", n)
	}
	m.forget("p", table)
	if n := len(gather(t, reg)); n != 0 {
		t.Errorf("a forgotten pool left %d families", n)
	}
}

func gather(t *testing.T, reg prometheus.Gatherer) (names []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}

func TestNewRejects(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"an unknown engine", Config{Engine: "vlm"}, `unknown engine "vlm"; known engines: auto, dynamo`},
		{"a short interval", Config{Interval: time.Millisecond}, "scrape interval 1ms is too short; at least 10ms"},
		{"a relative path", Config{Path: "metrics"}, `scrape path "metrics" does not begin with /`},
		{"an unknown quantity", Config{Mapping: map[string]string{"queue": "x"}}, `unknown quantity "queue"; known: running, waiting`},
		{"a broken series", Config{Mapping: map[string]string{"waiting": "x{y=1}"}}, `mapping of waiting: "x{y=1}" is not a series`},
		{"no series", Config{Mapping: map[string]string{"waiting": ""}}, "mapping of waiting has no series"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.cfg, nil, nil, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
