package envoy_test

import (
	"bufio"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// Two thousand responses run at the same time, none of them is lost, and each
// holds its reservation until its end.
func TestTwoThousandStreams(t *testing.T) {
	const streams = 2000
	eachMode(t, func(t *testing.T, mode string) {
		pods := []*pod{newPod(t, "p"), newPod(t, "q"), newPod(t, "r"), newPod(t, "s")}
		end := make(chan string)
		for _, p := range pods {
			p.does(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("content-type", "text/event-stream")
				io.WriteString(w, "data: first\n\n")
				http.NewResponseController(w).Flush()
				<-end
				io.WriteString(w, "data: last\n\n")
			})
		}
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": pods}})
		c := newClient(t, true) // HTTP/2: few connections on the client's side

		var begun, done sync.WaitGroup
		begun.Add(streams)
		var failed atomic.Int64
		for range streams {
			done.Go(func() {
				resp, err := r.post(t.Context(), c, chat("a"))
				if err != nil {
					t.Error(err)
					begun.Done()
					return
				}
				defer resp.Body.Close()
				in := bufio.NewReader(resp.Body)
				first, err := in.ReadString('\n')
				begun.Done()
				rest, err2 := io.ReadAll(in)
				if first != "data: first\n" || string(rest) != "\ndata: last\n\n" || err != nil || err2 != nil {
					failed.Add(1)
				}
			})
		}
		begun.Wait()
		if n := r.inflight(); n != streams {
			t.Errorf("%d requests in flight, want %d", n, streams)
		}
		for _, p := range pods {
			if share := streams / len(pods); int(p.hits.Load()) < share*9/10 || int(p.hits.Load()) > share*11/10 {
				t.Errorf("pod %s has %d of %d requests; equal pods should share them", p.name, p.hits.Load(), streams)
			}
		}
		close(end)
		done.Wait()
		if n := failed.Load(); n > 0 {
			t.Errorf("%d of %d responses were not complete", n, streams)
		}
	})
}
