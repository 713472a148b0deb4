package envoy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/extproc"
)

// sse frames one event.
func sse(data string) string { return "data: " + data + "\n\n" }

const (
	roleEvent    = `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	contentEvent = `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":" Hi"},"finish_reason":null}]}`
	usageEvent   = `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":200,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":96}}}`
)

// script is a pod that writes what it gets from next, byte for byte, so that the
// test decides when.
func script(contentType string, next <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("content-type", contentType)
		flush := http.NewResponseController(w)
		flush.Flush()
		for {
			select {
			case text, ok := <-next:
				if !ok {
					return
				}
				io.WriteString(w, text)
				flush.Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

// longChat is a request whose prompt is long enough to tell bytes per token.
func longChat(stream bool) string {
	return fmt.Sprintf(`{"model":"model-a","stream":%v,"messages":[{"role":"user","content":"%s"}]}`, stream, strings.Repeat("tokens ", 100))
}

// ahead is how many prompt tokens are not known to be processed.
func (g *gateway) ahead() (n float64) {
	for _, c := range g.tables["a"].Snapshot(time.Now()) {
		n += c.Charge.Ahead
	}
	return n
}

// metric sums the series of a family, of all label values.
func (g *gateway) metric(t testing.TB, name string) (sum float64) {
	t.Helper()
	families, err := g.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "warmpath_extproc_"+name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// stream posts and returns the lines of the response.
func (r *rig) stream(t testing.TB, body string) (*http.Response, *bufio.Reader) {
	t.Helper()
	resp, err := r.post(t.Context(), newClient(t, false), body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	return resp, bufio.NewReader(resp.Body)
}

// mustRead wants these bytes next.
func mustRead(t testing.TB, from io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("got %q and %v, want %q", got, err, want)
	}
}

// Each way to look into streams sees the first token when it comes, takes
// nothing else for it, and lets the bytes pass at once and as they are.
func TestFirstTokenIsSeen(t *testing.T) {
	for _, tt := range []struct {
		mode    string
		observe extproc.Observe
	}{
		{"BUFFERED", extproc.Observe{}},
		{"BUFFERED", extproc.Observe{Usage: "off"}},
		{"BUFFERED", extproc.Observe{FirstToken: "sample", CPUBudget: 1}},
		{"FULL_DUPLEX_STREAMED", extproc.Observe{}},
	} {
		t.Run(tt.mode+" "+tt.observe.FirstToken+" "+tt.observe.Usage, func(t *testing.T) {
			p := newPod(t, "p")
			r := newRig(t, settings{mode: tt.mode, observe: tt.observe, pools: map[string][]*pod{"a": {p}}})
			const streams = 5
			for i := range streams {
				next := make(chan string, 1)
				p.does(script("text/event-stream; charset=utf-8", next))
				next <- ": keep-alive\n\n" // Envoy 1.39 holds headers back until it comes, in mode sample
				_, lines := r.stream(t, longChat(true))
				mustRead(t, lines, ": keep-alive\n\n")
				next <- sse(roleEvent)
				mustRead(t, lines, sse(roleEvent))
				time.Sleep(20 * time.Millisecond) // for what would be a mistake
				if r.ahead() == 0 || r.metric(t, "first_token_seconds") != float64(i) {
					t.Fatal("a comment or a role was taken for the first token")
				}
				next <- sse(contentEvent)
				begun := time.Now()
				mustRead(t, lines, sse(contentEvent))
				if !within(func() bool { return r.ahead() == 0 }) {
					t.Fatal("the first token was not seen")
				}
				t.Logf("seen after %v", time.Since(begun))
				for range 20 {
					next <- sse(contentEvent)
					mustRead(t, lines, sse(contentEvent))
				}
				close(next)
				if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
					t.Fatalf("the end of the stream: %q, %v", rest, err)
				}
			}
			if n := r.metric(t, "first_token_seconds"); n != streams {
				t.Errorf("%v first tokens, want %d", n, streams)
			}
			r.checkIdle(t)
			if !within(func() bool { return r.metric(t, "streams") == 0 }) {
				t.Errorf("%v streams are left", r.metric(t, "streams"))
			}
		})
	}
}

// What responses say about their cost reaches warmpath, whatever their form.
func TestUsageIsSeen(t *testing.T) {
	whole := `{"object":"chat.completion","choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":200,"completion_tokens":50}}`
	stream := sse(roleEvent) + sse(contentEvent) + sse(usageEvent) + "data: [DONE]\n\n"
	for _, tt := range []struct {
		name, mode, contentType, body string
		observe                       extproc.Observe
	}{
		{"whole answer", "BUFFERED", "application/json", whole, extproc.Observe{}},
		{"stream by tap", "BUFFERED", "text/event-stream", stream, extproc.Observe{}},
		{"stream by tap", "FULL_DUPLEX_STREAMED", "text/event-stream", stream, extproc.Observe{}},
		{"stream by sample", "BUFFERED", "text/event-stream", stream, extproc.Observe{FirstToken: "sample"}},
		{"stream by sample, no first token", "BUFFERED", "text/event-stream", stream, extproc.Observe{FirstToken: "off"}},
		{"stream by trailers", "BUFFERED", "text/event-stream", stream, extproc.Observe{FirstToken: "off", Usage: "trailers"}},
		{"stream by trailers", "FULL_DUPLEX_STREAMED", "text/event-stream", stream, extproc.Observe{FirstToken: "off", Usage: "trailers"}},
		{"stream by tap and trailers", "BUFFERED", "text/event-stream", stream, extproc.Observe{Usage: "trailers"}},
	} {
		t.Run(tt.name+" "+tt.mode, func(t *testing.T) {
			if tt.observe.Usage == "trailers" && !strings.HasPrefix(envoy.VersionAtHand(t), "1.40") {
				t.Logf("Envoy %s has no such filter", envoy.VersionAtHand(t))
				return
			}
			p := newPod(t, "p")
			r := newRig(t, settings{mode: tt.mode, observe: tt.observe, pools: map[string][]*pod{"a": {p}}})
			streamed := strings.HasPrefix(tt.contentType, "text/")
			p.does(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("content-type", tt.contentType)
				if !streamed {
					w.Header().Set("content-length", fmt.Sprint(len(tt.body)))
				}
				for event := range strings.SplitAfterSeq(tt.body, "\n\n") {
					io.WriteString(w, event)
					http.NewResponseController(w).Flush()
					time.Sleep(5 * time.Millisecond) // as generated
				}
			})
			resp, body := r.stream(t, longChat(streamed))
			got, err := io.ReadAll(body)
			if err != nil || string(got) != tt.body {
				t.Errorf("got %q and %v, want %q", got, err, tt.body)
			}
			if want := int64(len(tt.body)); !streamed && resp.ContentLength != want {
				t.Errorf("content-length %d, want %d", resp.ContentLength, want)
			}
			// 700 bytes of text in 200 tokens, but for those of the chat template.
			if !within(func() bool { b := r.metric(t, "bytes_per_token"); return 3.4 < b && b < 3.8 }) {
				t.Errorf("%v bytes per token, want about 3.6", r.metric(t, "bytes_per_token"))
			}
		})
	}
}

// A pod that breaks off is found out, though its responses begin with status
// 200.
func TestErrorUnderStatus200(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		p, q := newPod(t, "p"), newPod(t, "q")
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {p, q}}})
		r.orders["a"].pods = []*pod{p, q}
		p.does(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("content-type", "text/event-stream")
			http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
			io.WriteString(w, sse(`{"error":{"message":"EngineCore encountered an issue","code":500}}`)+"data: [DONE]\n\n")
		})
		begun := time.Now()
		for i := range 3 {
			_, body := r.stream(t, longChat(true))
			io.Copy(io.Discard, body)
			if !within(func() bool { return r.metric(t, "broken_responses_total") == float64(i+1) }) {
				t.Fatalf("error %d was not seen", i+1)
			}
		}
		for addr, out := range r.outAt(begun) {
			if (out != "") != (addr == p.addr.String()) {
				t.Errorf("pod %s is out as %q", addr, out)
			}
		}
	})
}

// A tap comes to the replica that picked, however many there are.
func TestTapFindsItsReplica(t *testing.T) {
	p := newPod(t, "p")
	pools := map[string][]*pod{"a": {p}}
	replicas := []*gateway{
		startGateway(t, "127.0.0.1:0", pools, extproc.Observe{Usage: "off"}),
		startGateway(t, "127.0.0.1:0", pools, extproc.Observe{Usage: "off"}),
	}
	for _, g := range replicas {
		t.Cleanup(g.stop)
	}
	r := newRig(t, settings{pickers: []string{replicas[0].addr, replicas[1].addr}})
	seen := func() (each []float64, sum float64) {
		for _, g := range replicas {
			n := g.metric(t, "first_token_seconds")
			each, sum = append(each, n), sum+n
		}
		return each, sum
	}
	const streams = 40
	for i := range streams {
		next := make(chan string)
		p.does(script("text/event-stream", next))
		_, body := r.stream(t, longChat(true))
		next <- sse(contentEvent)
		if !within(func() bool { _, sum := seen(); return sum == float64(i+1) }) { // a tap that is late finds no stream that has ended
			each, _ := seen()
			t.Fatalf("%v first tokens were seen, want %d together", each, i+1)
		}
		close(next)
		io.Copy(io.Discard, body)
	}
	if each, _ := seen(); each[0] == 0 || each[1] == 0 {
		t.Errorf("%v first tokens: one replica had no request, so nothing was shown", each)
	}
}
