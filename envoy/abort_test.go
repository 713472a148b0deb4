package envoy_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"
)

// A client that goes away gives its reservation back within 100 ms, whatever the
// pod is doing. A busy machine makes some of the times longer, and where whole
// requests take that long, so do aborts; but none of them hides a delay of ours,
// which is in all.
func TestAbortReleasesAtOnce(t *testing.T) {
	const limit = 100 * time.Millisecond
	stages := map[string]http.HandlerFunc{
		"before the response": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"during the response": events(nil),
	}
	eachMode(t, func(t *testing.T, mode string) {
		p := newPod(t, "p")
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {p}}})
		for stage, handler := range stages {
			for _, http2 := range []bool{false, true} {
				t.Run(stage+map[bool]string{false: "/http1", true: "/http2"}[http2], func(t *testing.T) {
					var took, usual []time.Duration
					for range 5 {
						p.does(p.tell)
						begun := time.Now()
						r.mustTell(t, newClient(t, http2), chat("a"))
						usual = append(usual, time.Since(begun))
						waitFor(t, "its reservation to be given back", func() bool { return r.inflight() == 0 })
						p.does(handler)
						took = append(took, r.abort(t, newClient(t, http2), p, stage == "during the response"))
					}
					if slices.Min(took) > max(limit, 3*slices.Min(usual)) {
						t.Errorf("the reservation came back after %v; whole requests took %v", took, usual)
					}
				})
			}
		}
	})
}

// abort begins a request, drops it when the pod has it, and returns how long its
// reservation lasted after that.
func (r *rig) abort(t *testing.T, c *http.Client, p *pod, responding bool) time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := p.hits.Load()
	begun := make(chan error, 1)
	go func() {
		resp, err := r.post(ctx, c, chat("a"))
		if err == nil {
			defer resp.Body.Close()
		}
		begun <- err
		if err == nil {
			io.Copy(io.Discard, resp.Body)
		}
	}()
	if responding {
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
	} else {
		waitFor(t, "the request to reach the pod", func() bool { return p.hits.Load() > before })
	}
	if n := r.inflight(); n != 1 {
		t.Fatalf("%d requests in flight, want 1", n)
	}
	cancel()
	gone := time.Now()
	waitFor(t, "the reservation to be given back", func() bool { return r.inflight() == 0 })
	return time.Since(gone)
}

// waitFor waits for what others are about to do, which takes long on a busy
// machine.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !within(ok) {
		t.Fatalf("waited in vain for %s", what)
	}
}

// patience is for what takes milliseconds, on a machine with too much to do.
const patience = time.Minute

// within is waitFor that tells whether it came so.
func within(ok func() bool) bool {
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
