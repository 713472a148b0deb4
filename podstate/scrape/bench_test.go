package scrape

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/warmpath/warmpath/podstate"
)

// podsPort is set in the process that plays the pods of a benchmark, so that
// their CPU time is not counted as ours.
const podsPort = "WARMPATH_SCRAPE_BENCH_PORT"

func TestMain(m *testing.M) {
	if port := os.Getenv(podsPort); port != "" {
		text := []byte(vllmText(1)[:30<<10])
		text = text[:strings.LastIndexByte(string(text), '\n')+1]
		mux := http.NewServeMux()
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			_, _ = w.Write(text)
		})
		fmt.Fprintln(os.Stderr, http.ListenAndServe(":"+port, mux))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// BenchmarkFleet scrapes pods on loopback, 30 KB each, for two seconds and
// prints what that costs. A pod is an address of its own, 127.1.0.0 and up.
func BenchmarkFleet(b *testing.B) {
	const port = "39417"
	pods := exec.Command(os.Args[0])
	pods.Env = append(os.Environ(), podsPort+"="+port)
	pods.Stderr = os.Stderr
	if err := pods.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = pods.Process.Kill(); _ = pods.Wait() }()
	for range 100 {
		if resp, err := http.Get("http://127.0.0.1:" + port + "/metrics"); err == nil {
			resp.Body.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, fleet := range []struct {
		pods     int
		interval time.Duration
	}{{100, time.Second}, {100, 50 * time.Millisecond}, {1000, time.Second}} {
		b.Run(fmt.Sprintf("pods=%d/every=%v", fleet.pods, fleet.interval), func(b *testing.B) {
			table := podstate.NewTable()
			specs := make([]podstate.Spec, fleet.pods)
			for i := range specs {
				specs[i].Addr = netip.MustParseAddrPort(fmt.Sprintf("127.1.%d.%d:%s", i/250, i%250+1, port))
			}
			table.SetPods(specs)
			m, err := NewMetrics(prometheus.NewRegistry())
			if err != nil {
				b.Fatal(err)
			}
			s, err := New(Config{Pool: "p", Engine: "nim", Path: "/metrics", Interval: fleet.interval}, table, m, slog.New(slog.NewTextHandler(io.Discard, nil)))
			if err != nil {
				b.Fatal(err)
			}
			s.cfg.program = compile(&engine{name: "vllm", path: "/metrics", rows: vllmRows}, nil)
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- s.Run(ctx) }()
			s.Set(table.Pods())
			time.Sleep(1500 * time.Millisecond) // connections and buffers are there
			before, ok := cpuSeconds(), okScrapes(m)
			start := time.Now()
			for b.Loop() {
				time.Sleep(2 * time.Second)
			}
			used, elapsed := cpuSeconds()-before, time.Since(start).Seconds()
			scrapes := okScrapes(m) - ok
			b.ReportMetric(used/elapsed, "cores")
			b.ReportMetric(used/scrapes*1e6, "µs-cpu/scrape")
			b.ReportMetric(scrapes/elapsed, "scrapes/s")
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

func okScrapes(m *Metrics) float64 {
	var d dto.Metric
	if err := m.results.WithLabelValues("p", "ok").Write(&d); err != nil {
		return 0
	}
	return d.GetCounter().GetValue()
}
