package scrape

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/warmpath/warmpath/podstate"
)

// asPods is set in the process that plays the pods of a benchmark, so that their
// CPU time is not counted as ours.
const asPods = "WARMPATH_SCRAPE_BENCH_PODS"

func TestMain(m *testing.M) {
	if os.Getenv(asPods) != "" {
		l, err := net.Listen("tcp", ":0")
		if err == nil {
			fmt.Println(l.Addr().(*net.TCPAddr).Port)
			err = http.Serve(l, benchPod())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// benchPod is a vLLM with 30 KB of metrics.
func benchPod() http.Handler {
	all := []byte(vllmText(1)[:30<<10])
	all = all[:bytes.LastIndexByte(all, '\n')+1]
	var named []byte
	for line := range bytes.Lines(all) {
		if !bytes.HasPrefix(line, []byte("#")) && slices.ContainsFunc(vllmRows, func(r row) bool { return bytes.HasPrefix(line, []byte(r.name+"{")) }) {
			named = append(named, line...)
		}
	}
	serve := func(text []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			_, _ = w.Write(text)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", serve(all))
	mux.Handle("GET /metrics/", serve(named))
	mux.Handle("GET /load", serve([]byte(`{"server_load":3}`)))
	return mux
}

// BenchmarkFleet scrapes pods on loopback for two seconds and prints what that
// costs. A pod is an address of its own, 127.1.0.1 and up. "all" reads 30 KB;
// "named" reads the wanted series and, with a second request, the load.
func BenchmarkFleet(b *testing.B) {
	pods := exec.Command(os.Args[0])
	pods.Env = append(os.Environ(), asPods+"=1")
	pods.Stderr = os.Stderr
	out, err := pods.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := pods.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = pods.Process.Kill(); _ = pods.Wait() }()
	var port int
	if _, err := fmt.Fscanln(out, &port); err != nil { // it listens
		b.Fatal(err)
	}
	all := compile(&engine{name: "vllm", path: "/metrics", rows: vllmRows}, nil)
	for _, fleet := range []struct {
		kind     string
		pods     int
		interval time.Duration
	}{
		{"all", 100, time.Second}, {"all", 100, 50 * time.Millisecond}, {"all", 1000, time.Second},
		{"named", 100, time.Second}, {"named", 100, 50 * time.Millisecond}, {"named", 1000, time.Second},
	} {
		b.Run(fmt.Sprintf("%s/pods=%d/every=%v", fleet.kind, fleet.pods, fleet.interval), func(b *testing.B) {
			table := podstate.NewTable()
			specs := make([]podstate.Spec, fleet.pods)
			for i := range specs {
				specs[i].Addr = netip.MustParseAddrPort(fmt.Sprintf("127.1.%d.%d:%d", i/250, i%250+1, port))
			}
			table.SetPods(specs)
			m, err := NewMetrics(prometheus.NewRegistry())
			if err != nil {
				b.Fatal(err)
			}
			s, err := New(Config{Pool: "p", Engine: "vllm", Interval: fleet.interval, Budget: NewBudget(0)}, table, m, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			if fleet.kind == "all" {
				s.cfg.program = all
			}
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- s.Run(ctx) }()
			s.Set(table.Pods())
			time.Sleep(1500 * time.Millisecond) // connections and buffers are there
			before, ok, read := cpuSeconds(), value(m.results.WithLabelValues("p", "ok")), value(m.bytes.WithLabelValues("p"))
			start := time.Now()
			for b.Loop() {
				time.Sleep(2 * time.Second)
			}
			used, elapsed := cpuSeconds()-before, time.Since(start).Seconds()
			scrapes := value(m.results.WithLabelValues("p", "ok")) - ok
			b.ReportMetric(used/elapsed, "cores")
			b.ReportMetric(used/scrapes*1e6, "µs-cpu/scrape")
			b.ReportMetric(scrapes/elapsed, "scrapes/s")
			b.ReportMetric((value(m.bytes.WithLabelValues("p"))-read)/scrapes, "B/scrape")
			b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
			stop()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func value(c prometheus.Counter) float64 {
	var d dto.Metric
	if err := c.Write(&d); err != nil {
		return 0
	}
	return d.GetCounter().GetValue()
}
