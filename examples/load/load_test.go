package load

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// serve answers the n-th request with the n-th function.
func serve(t *testing.T, answers ...func(w http.ResponseWriter)) (url string) {
	t.Helper()
	n := make(chan int, 1)
	n <- 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		i := <-n
		n <- i + 1
		answers[i%len(answers)](w)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func send(text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { io.WriteString(w, text) }
}

func TestWhatCountsAsAnAnswer(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		answer func(http.ResponseWriter)
		fails  string
	}{
		{"a stream that ends with DONE", send("data: {\"x\":1}\n\ndata: [DONE]\n\n"), ""},
		{"comments before it", send(": keep-alive\n\ndata: {}\n\ndata: [DONE]\n\n"), ""},
		{"a stream that is cut", send("data: {\"x\":1}\n\n"), "without [DONE]"},
		{"a failure under status 200", send("data: {\"error\": {\"message\":\"dead\"}}\n\ndata: [DONE]\n\n"), "dead"},
		{"an error status", func(w http.ResponseWriter) { http.Error(w, "busy", http.StatusServiceUnavailable) }, "status 503: busy"},
	} {
		r := Run(t.Context(), []Request{{}}, Options{URL: serve(t, tt.answer)})[0]
		if tt.fails == "" && (r.Err != nil || r.TTFT == 0) {
			t.Errorf("%s: error %v, TTFT %v", tt.rule, r.Err, r.TTFT)
		}
		if tt.fails != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), tt.fails)) {
			t.Errorf("%s: error %v, want one with %q", tt.rule, r.Err, tt.fails)
		}
	}
}

func TestFirstTokenIsNotACommentNorAHeader(t *testing.T) {
	took := make(chan time.Duration, 1) // from the request to the first data
	url := serve(t, func(w http.ResponseWriter) {
		arrived := time.Now()
		flush := http.NewResponseController(w)
		flush.Flush()
		io.WriteString(w, ": keep-alive\n\n")
		flush.Flush()
		for start := time.Now(); time.Since(start) < 20*time.Millisecond; { // the time that is measured
		}
		took <- time.Since(arrived)
		io.WriteString(w, "data: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n")
	})
	r := Run(t.Context(), []Request{{}}, Options{URL: url})[0]
	if least := <-took; r.TTFT < least {
		t.Errorf("TTFT %v, but the first data came after %v", r.TTFT, least)
	}
	if r.Prompt != 9 || r.Output != 2 || r.Cached != 4 || r.Err != nil {
		t.Errorf("%+v", r)
	}
}

func TestSummary(t *testing.T) {
	var plan []Request
	var results []Result
	for i := range 100 {
		plan = append(plan, Request{At: time.Second})
		r := Result{Sent: time.Second + 5*time.Millisecond, TTFT: time.Duration(100-i) * time.Millisecond, Prompt: 100, Cached: 25}
		if i < 10 {
			r.Err = fmt.Errorf("no")
		}
		results = append(results, r)
	}
	s := Summarize(plan, results)
	want := Summary{Requests: 100, Failed: 10, TTFT: Quantiles{46 * time.Millisecond, 86 * time.Millisecond, 90 * time.Millisecond}, Cached: 0.25, Late: 5 * time.Millisecond}
	if s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
	if s := Summarize(nil, nil); s != (Summary{}) {
		t.Errorf("nothing sums up to %+v", s)
	}
}

func TestPlanIsInOrderAndTheSameForASeed(t *testing.T) {
	m := Mix{Model: "m", Duration: 30 * time.Second, Rate: 20, Seed: 1, Apps: 4, SystemTokens: 100, LongShare: 0.1, LongTokens: 500}
	a, b := m.Plan(), m.Plan()
	if len(a) != 600 || !slices.IsSortedFunc(a, func(x, y Request) int { return int(x.At - y.At) }) {
		t.Errorf("%d requests, or not in order", len(a))
	}
	for i := range a {
		if a[i].At != b[i].At || string(a[i].Body) != string(b[i].Body) || a[i].At < 0 || a[i].At > m.Duration {
			t.Fatalf("request %d differs, or lies outside of the duration", i)
		}
	}
	m.Seed = 2
	if c := m.Plan(); string(c[0].Body) == string(a[0].Body) {
		t.Error("another seed gives the same load")
	}
}
