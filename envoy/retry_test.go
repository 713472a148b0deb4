package envoy_test

import (
	"testing"
)

// A pod that fails before the first byte of its response costs the client
// nothing: the next pod of the list gets the whole request.
func TestFailingPodIsPassedOver(t *testing.T) {
	body := randomBytes(200 << 10)
	failing := map[string]func(t *testing.T) *pod{
		"refuses": func(t *testing.T) *pod { return newDeafPod(t) },
		"resets":  func(t *testing.T) *pod { return newResettingPod(t, "resets") },
		"says 503": func(t *testing.T) *pod {
			p := newPod(t, "busy")
			p.does(busy)
			return p
		},
	}
	eachMode(t, func(t *testing.T, mode string) {
		for name, bad := range failing {
			t.Run(name, func(t *testing.T) {
				first, second, third := bad(t), newPod(t, "second"), newPod(t, "third")
				r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {first, second, third}}})
				c := newClient(t, false)

				r.orders["a"].pods = []*pod{first, second}
				for range 10 {
					if got := r.mustTell(t, c, body); got.Pod != "second" {
						t.Fatalf("served by %q, want the second pod of the list", got.Pod)
					}
				}
				if name != "refuses" && first.hits.Load() != 10 {
					t.Errorf("the first pod of the list was tried %d times, want 10", first.hits.Load())
				}
			})
		}
	})
}
