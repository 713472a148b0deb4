package envoy_test

import (
	"testing"

	"github.com/warmpath/warmpath/extproc"
)

// With tls.mode on, Envoy asks warmpath, checks its health and learns the pods
// over TLS; with auto or off, without.
func TestTLSBetweenEnvoyAndWarmpath(t *testing.T) {
	for _, mode := range []string{"on", "auto", "off"} {
		t.Run(mode, func(t *testing.T) {
			r := newEditedRig(t, "BUFFERED", extproc.Config{TLS: extproc.TLS{Mode: mode}}, nil, newPod(t, "p"))
			got := r.mustTell(t, newClient(t, false), chat("a"))
			if got.Header.Get("x-gateway-destination-endpoint") == "" {
				t.Error("the pod was not picked by warmpath")
			}
			waitFor(t, "Envoy to find warmpath healthy", func() bool { return r.stat(t, "cluster.warmpath.membership_healthy") == 1 })
			if n, want := r.stat(t, "cluster.warmpath.ssl.handshake") > 0, mode == "on"; n != want {
				t.Errorf("TLS was used: %v, want %v", n, want)
			}
		})
	}
}
