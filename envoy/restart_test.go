package envoy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/extproc"
)

// Replicas of warmpath are replaced one after the other while clients are
// served, and no client notices. Envoy fails closed here, or it would hide what
// goes wrong.
func TestRollingRestart(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		short, long := newPod(t, "short"), newPod(t, "long")
		pools := map[string][]*pod{"a": {short}, "b": {long}}
		replicas := []*gateway{startGateway(t, "127.0.0.1:0", pools, extproc.Observe{}), startGateway(t, "127.0.0.1:0", pools, extproc.Observe{})}
		t.Cleanup(func() {
			for _, g := range replicas {
				g.stop()
			}
		})
		r := newRig(t, settings{mode: mode, failClosed: true, pickers: []string{replicas[0].addr, replicas[1].addr}})
		long.does(func(w http.ResponseWriter, r *http.Request) { // longer than a replica drains
			io.Copy(io.Discard, r.Body)
			for i := range 8 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				http.NewResponseController(w).Flush()
				select {
				case <-time.After(500 * time.Millisecond):
				case <-r.Context().Done():
					return
				}
			}
		})

		// load sends one request after the other for a pool's model.
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		served := map[string]int{}
		load := func(pool string, clients int) {
			for range clients {
				wg.Go(func() {
					c := newClient(t, false)
					for ctx.Err() == nil {
						resp, err := r.post(context.Background(), c, chat(pool))
						if err != nil {
							t.Error(err)
							return
						}
						text, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						if err != nil || resp.StatusCode != http.StatusOK {
							t.Errorf("pool %s: %d, %v: %.200s", pool, resp.StatusCode, err, text)
						}
						mu.Lock()
						served[pool]++
						mu.Unlock()
					}
				})
			}
		}
		load("a", 4)
		load("b", 8)

		for i, old := range replicas {
			old.stop()
			if err := <-old.ended; err != nil {
				t.Error(err)
			}
			if n := old.inflight(); n != 0 {
				t.Errorf("replica %d ended with %d requests in flight", i, n)
			}
			replicas[i] = startGateway(t, old.addr, pools, extproc.Observe{})
			healthy := "cluster.warmpath.membership_healthy"
			waitFor(t, "Envoy to see the new replica", func() bool { return r.stat(t, healthy) == 2 })
		}
		stop()
		wg.Wait()
		t.Logf("served %v", served)
		for _, g := range replicas {
			r.gateway = g
			r.checkIdle(t)
		}
	})
}
