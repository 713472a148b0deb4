package envoy_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/extproc"
	"github.com/warmpath/warmpath/proto/configpb"
)

// From a line of the access log an operator comes to the decision, also if it was
// that no pod can take the request.
func TestTheAccessLogNamesTheDecision(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		p := newPod(t, "p")
		g := startGateway(t, "127.0.0.1:0", map[string][]*pod{"a": {p}, "empty": nil}, extproc.Observe{})
		t.Cleanup(g.stop)
		bootstrap, err := envoy.Bootstrap(&configpb.GatewayConfig{
			Pools: []*configpb.Pool{{Name: "a", Observe: &configpb.Observe{}}},
			Envoy: &configpb.Envoy{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", BodyMode: mode},
		}, envoy.Target{Version: envoy.VersionAtHand(t), Pickers: []string{g.addr}})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{gateway: g, envoy: startEnvoy(t, bootstrap)}
		r.url = "http://" + r.envoy.Listen
		r.awaitPods(t)

		c := newClient(t, false)
		var want []string
		for range 3 {
			r.mustTell(t, c, chat("a"))
			want = append(want, fmt.Sprintf(" picked=%s decision=%016x served=%s ", p.addr, g.orders["a"].seed.Load(), p.addr))
		}
		if status := r.status(t, c, chat("empty")); status != 503 {
			t.Errorf("a pool without pods answers %d", status)
		}
		want = append(want, fmt.Sprintf(" 503 warmpath_no-pod - pool=- picked=- decision=%016x served=- ", g.orders["empty"].seed.Load()))
		r.envoy.Stop() // what it has still to write it writes now
		log, err := os.ReadFile(r.envoy.LogPath())
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(log), w) {
				t.Errorf("no %q in the access log:\n%s", w, log)
			}
		}
	})
}
