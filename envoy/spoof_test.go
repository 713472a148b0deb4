package envoy_test

import (
	"testing"
)

// The headers by which a client could try to choose its pod.
func spoofs(p *pod) []string {
	return []string{
		"x-gateway-destination-endpoint", p.addr.String(),
		"x-gateway-destination-endpoint-subset", p.addr.String(),
		"x-gateway-destination-endpoint-served", p.addr.String(),
	}
}

func TestClientCannotChooseThePod(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		picked, wanted := newPod(t, "picked"), newPod(t, "wanted")
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {picked}, "b": {wanted}}})
		for _, http2 := range []bool{false, true} {
			c := newClient(t, http2)
			for range 5 {
				got := r.mustTell(t, c, chat("a"), spoofs(wanted)...)
				if got.Pod != "picked" {
					t.Fatalf("the client reached the pod that it asked for")
				}
				if h := got.Header.Get("x-gateway-destination-endpoint"); h != picked.addr.String() {
					t.Errorf("the pod sees the destination %q, want %q", h, picked.addr)
				}
			}
		}
		// Without warmpath nobody overwrites the header. In duplex mode such a
		// request ends with an error, or at a pod that Envoy chooses.
		r.stop()
		<-r.ended
		c := newClient(t, false)
		before := wanted.hits.Load()
		for range 20 {
			r.status(t, c, chat("a"), spoofs(wanted)...)
		}
		if n := wanted.hits.Load() - before; n == 20 {
			t.Error("without warmpath, the client's header chose the pod each time")
		}
	})
}
