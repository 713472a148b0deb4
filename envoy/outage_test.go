package envoy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// What clients see when warmpath is killed, and that all is well when it is
// back.
func TestWarmpathIsKilled(t *testing.T) {
	for name, tt := range map[string]struct {
		settings
		running  bool // responses that have begun come to their end
		body     int  // status of new requests with a body
		bodyless int  // and without one
	}{
		"BUFFERED, fail open":   {settings{mode: "BUFFERED"}, true, 200, 200},
		"BUFFERED, fail closed": {settings{mode: "BUFFERED", failClosed: true}, false, 503, 503},
		"duplex, fail open":     {settings{mode: "FULL_DUPLEX_STREAMED"}, false, 503, 200},
		"duplex, fail closed":   {settings{mode: "FULL_DUPLEX_STREAMED", failClosed: true}, false, 503, 503},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "p")
			gateway := startChildGateway(t, "127.0.0.1:0", p)
			tt.settings.pickers = []string{gateway.addr}
			r := newRig(t, tt.settings)
			c := newClient(t, false)

			const streams = 10
			next := make(chan string)
			p.does(events(next))
			var running []*http.Response
			for range streams {
				resp, err := r.post(t.Context(), c, chat("a"))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				running = append(running, resp)
			}
			p.does(p.tell)
			gateway.kill()

			if tt.running {
				for range streams {
					next <- "after"
				}
				close(next)
			}
			for _, resp := range running {
				got, err := io.ReadAll(resp.Body)
				if tt.running && (err != nil || string(got) != "data: after\n\n") || !tt.running && err == nil {
					t.Errorf("a running response: %q, %v; want it complete: %v", got, err, tt.running)
				}
			}
			if tt.body == http.StatusServiceUnavailable {
				r.wantError(t, c, "a", tt.body, "picker-failed")
			}
			for range 10 {
				if got := r.status(t, c, chat("a")); got != tt.body {
					t.Errorf("a request with a body: %d, want %d", got, tt.body)
				}
				resp, err := c.Get(r.url + "/v1/models")
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != tt.bodyless {
					t.Errorf("a request without a body: %d, want %d", resp.StatusCode, tt.bodyless)
				}
			}

			startChildGateway(t, gateway.addr, p)
			waitFor(t, "warmpath to pick again", func() bool {
				resp, err := r.post(t.Context(), c, chat("a"))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				text, _ := io.ReadAll(resp.Body)
				return strings.Contains(string(text), "X-Gateway-Destination-Endpoint")
			})
			for range 20 {
				r.mustTell(t, c, chat("a"))
			}
		})
	}
}
