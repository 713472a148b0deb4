package envoy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/extproc"
	"github.com/warmpath/warmpath/proto/configpb"
)

// BenchmarkObserve prints what it costs Envoy and warmpath, in CPU time per
// request, not to look into responses, and how much more each way to do it. Both
// take turns. It reads /proc.
func BenchmarkObserve(b *testing.B) {
	const all = 64 // a budget that is never used up
	for _, way := range []struct {
		name    string
		observe extproc.Observe
		stream  bool
		serve   http.HandlerFunc
	}{
		{"stream-of-100/tap", extproc.Observe{FirstToken: "tap", Usage: "off"}, true, generate(100)},
		{"stream-of-100/tap-to-its-end", extproc.Observe{FirstToken: "tap", CPUBudget: all}, true, generate(100)},
		{"stream-of-100/sample", extproc.Observe{FirstToken: "sample", CPUBudget: all}, true, generate(100)},
		{"stream-of-100/trailers", extproc.Observe{FirstToken: "off", Usage: "trailers"}, true, generate(100)},
		{"whole", extproc.Observe{FirstToken: "off", CPUBudget: all}, false, whole},
	} {
		b.Run(way.name, func(b *testing.B) {
			off := newObserveLoad(b, extproc.Observe{FirstToken: "off", Usage: "off"}, way.stream, way.serve)
			on := newObserveLoad(b, way.observe, way.stream, way.serve)
			for _, l := range []*observeLoad{off, on} {
				l.run(b, 64)
				l.reset()
			}
			b.ResetTimer()
			const turn = 100
			for done := 0; done < b.N; done += turn {
				off.run(b, min(turn, b.N-done))
				on.run(b, min(turn, b.N-done))
			}
			n := float64(b.N)
			b.ReportMetric(0, "ns/op") // it is the pod's
			b.ReportMetric(off.envoy/n*1e6, "envoy-µs/req")
			b.ReportMetric((on.envoy-off.envoy)/n*1e6, "more-envoy-µs/req")
			b.ReportMetric(off.warmpath/n*1e6, "warmpath-µs/req")
			b.ReportMetric((on.warmpath-off.warmpath)/n*1e6, "more-warmpath-µs/req")
		})
	}
}

// observeLoad is an Envoy and a warmpath, each a process of its own.
type observeLoad struct {
	rig             *rig
	gateway         *child
	client          *http.Client
	stream          bool
	envoy, warmpath float64 // CPU seconds
}

func newObserveLoad(b *testing.B, observe extproc.Observe, stream bool, serve http.HandlerFunc) *observeLoad {
	text, err := json.Marshal(observe)
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv(observeEnv, string(text))
	p := newPod(b, "p")
	p.does(serve)
	l := &observeLoad{gateway: startChildGateway(b, "127.0.0.1:0", p), client: newClient(b, false), stream: stream}
	bootstrap, err := envoy.Bootstrap(&configpb.GatewayConfig{
		Pools: []*configpb.Pool{{Name: "a", Observe: &configpb.Observe{FirstToken: observe.FirstToken, Usage: observe.Usage}}},
		Envoy: &configpb.Envoy{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0"},
	}, envoy.Target{Version: envoy.VersionAtHand(b), Pickers: []string{l.gateway.addr}})
	if err != nil {
		b.Fatal(err)
	}
	l.rig = &rig{envoy: startEnvoy(b, bootstrap)}
	l.rig.url = "http://" + l.rig.envoy.Listen
	return l
}

// run makes n requests, 16 at a time.
func (l *observeLoad) run(b *testing.B, n int) {
	envoyPID, warmpathPID := l.rig.envoy.PID(), l.gateway.cmd.Process.Pid
	l.envoy -= cpuSeconds(b, envoyPID)
	l.warmpath -= cpuSeconds(b, warmpathPID)
	var next atomic.Int64
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for next.Add(1) <= int64(n) {
				resp, err := l.rig.post(b.Context(), l.client, longChat(l.stream))
				if err != nil {
					b.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	clients.Wait()
	l.envoy += cpuSeconds(b, envoyPID)
	l.warmpath += cpuSeconds(b, warmpathPID)
}

func (l *observeLoad) reset() { l.envoy, l.warmpath = 0, 0 }

// generate streams so many events, half a millisecond apart.
func generate(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("content-type", "text/event-stream")
		flush := http.NewResponseController(w)
		flush.Flush()
		for range n {
			time.Sleep(500 * time.Microsecond)
			io.WriteString(w, sse(contentEvent))
			flush.Flush()
		}
		io.WriteString(w, sse(usageEvent)+"data: [DONE]\n\n")
	}
}

// whole answers with 4 KB of JSON.
func whole(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	w.Header().Set("content-type", "application/json")
	fmt.Fprintf(w, `{"choices":[{"message":{"content":"%s"}}],"usage":{"prompt_tokens":200,"completion_tokens":50}}`, strings.Repeat("word ", 800))
}

// cpuSeconds is what a process has used so far, by its clock ticks of 10 ms.
func cpuSeconds(b *testing.B, pid int) float64 {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // after the name
	words := strings.Fields(rest)
	sum := 0
	for _, w := range words[11:13] { // utime, stime
		n, err := strconv.Atoi(w)
		if err != nil {
			b.Fatal(err)
		}
		sum += n
	}
	return float64(sum) / 100
}
