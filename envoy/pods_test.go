package envoy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A pod may be picked as soon as Set has returned, and not one request goes
// elsewhere because Envoy is late.
func TestNewPodIsReachedAtOnce(t *testing.T) {
	old := newPod(t, "old")
	r := newRig(t, settings{pools: map[string][]*pod{"a": {old}}})
	c := newClient(t, false)
	pods := []*pod{old}
	for range 20 {
		p := newPod(t, "new")
		pods = append(pods, p)
		r.mustSetPods(t, "a", pods...)
		r.orders["a"].pods = []*pod{p}
		if r.mustTell(t, c, chat("a")); p.hits.Load() != 1 {
			t.Fatal("the request went to another pod than the new one that was picked")
		}
	}
}

// IPv4 or IPv6: the address that warmpath names is the one under which Envoy
// knows the pod.
func TestPodsOfBothFamilies(t *testing.T) {
	four, six := newPod(t, "four"), newPodAt(t, "six", "[::1]:0")
	r := newRig(t, settings{pools: map[string][]*pod{"a": {four, six}}})
	c := newClient(t, false)
	for _, p := range []*pod{four, six} {
		r.orders["a"].pods = []*pod{p}
		for range 10 {
			if got := r.mustTell(t, c, chat("a")); got.Pod != p.name {
				t.Fatalf("%s was picked, %s got the request", p.name, got.Pod)
			}
		}
	}
}

// A pod that is taken away gets no request any more, and finishes its last one.
func TestRemovedPodFinishes(t *testing.T) {
	leaving, staying := newPod(t, "leaving"), newPod(t, "staying")
	next := make(chan string)
	leaving.does(events(next))
	r := newRig(t, settings{pools: map[string][]*pod{"a": {leaving, staying}}})
	c := newClient(t, false)
	r.orders["a"].pods = []*pod{leaving, staying}
	resp, err := r.post(t.Context(), c, chat("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	r.mustSetPods(t, "a", staying)
	r.orders["a"].pods = nil
	for range 10 {
		if got := r.mustTell(t, c, chat("a")); got.Pod != "staying" {
			t.Fatalf("served by %q, which has been removed", got.Pod)
		}
	}
	next <- "still here"
	close(next)
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "data: still here\n\n" {
		t.Errorf("the response of the removed pod: %q, %v", got, err)
	}
}

// When the picked pods fail, Envoy chooses among the pods of the same pool, also
// if a pod is in two pools; never a pod that has another model.
func TestFallbackStaysInThePool(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		bad, good, both, other := newPod(t, "bad"), newPod(t, "good"), newPod(t, "both"), newPod(t, "other")
		bad.does(busy)
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{
			"a": {bad, good},
			"b": {other, both},
			"c": {both},
			"d": {},
		}})
		c := newClient(t, false)
		for pool, tt := range map[string]struct{ picks, served []*pod }{
			"a": {[]*pod{bad}, []*pod{good}},
			"b": {nil, []*pod{other, both}},
			"c": {nil, []*pod{both}},
		} {
			r.orders[pool].pods = tt.picks
			total := int64(0)
			for range 20 {
				r.mustTell(t, c, chat(pool))
			}
			for _, p := range tt.served {
				total += p.hits.Swap(0)
			}
			if total != 20 {
				t.Errorf("pool %s: %d of 20 requests stayed in the pool", pool, total)
			}
		}
		if got := r.status(t, c, chat("d")); got != http.StatusServiceUnavailable {
			t.Errorf("a pool without pods: %d, want 503", got)
		}

		// Envoy knows fewer pods of b than warmpath does: picks of the one it does
		// not know are its own to replace.
		stale := newPod(t, "stale")
		r.tables["b"].SetPods(specs(stale.addr))
		for range 20 {
			if got := r.mustTell(t, c, chat("b")); got.Pod != "other" && got.Pod != "both" {
				t.Fatalf("pool b was served by %q", got.Pod)
			}
		}
		// All that is known of c is one pod, which Envoy does not know.
		r.mustSetPods(t, "c")
		r.tables["c"].SetPods(specs(stale.addr))
		if got := r.status(t, c, chat("c")); got != http.StatusServiceUnavailable {
			t.Errorf("a pool of which Envoy knows no pod: %d, want 503 and not a pod with another model", got)
		}
	})
}

// A body above the limit is refused, by Envoy or by warmpath, and no pod sees it.
func TestTooLargeBody(t *testing.T) {
	body := strings.Repeat("x", 33<<20)
	eachMode(t, func(t *testing.T, mode string) {
		p := newPod(t, "p")
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {p}}})
		for _, http2 := range []bool{false, true} {
			resp, err := r.post(t.Context(), newClient(t, http2), body)
			if err != nil {
				t.Fatal(err)
			}
			var e struct {
				Error struct{ Message, Type, Code string }
			}
			err = json.NewDecoder(resp.Body).Decode(&e)
			resp.Body.Close()
			reason := resp.Header.Get("x-gateway-reason")
			if resp.StatusCode != http.StatusRequestEntityTooLarge || err != nil || reason != "body-too-large" ||
				resp.Header.Get("content-type") != "application/json" || e.Error.Code != reason || e.Error.Type != "invalid_request_error" {
				t.Errorf("33 MiB: %d, %q, %+v, %v; want an error 413 in OpenAI's form", resp.StatusCode, reason, e, err)
			}
		}
		if n := p.hits.Load(); n != 0 {
			t.Errorf("%d of the bodies reached the pod", n)
		}
	})
}
