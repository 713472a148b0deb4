package envoy_test

import (
	"encoding/base64"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// A pod must get each body byte by byte as the client sent it, whatever its size
// and however it is framed, and exactly once.
func TestBodyIsExact(t *testing.T) {
	framings := []struct {
		name                    string
		http2, unknown, trailer bool
	}{
		{name: "http1"},
		{name: "http1-chunked", unknown: true},
		{name: "http1-trailer", unknown: true, trailer: true},
		{name: "http2", http2: true},
		{name: "http2-unknown-length", http2: true, unknown: true},
		{name: "http2-trailer", http2: true, unknown: true, trailer: true},
	}
	sizes := []int{1, 1000, 64 << 10, 1<<20 - 1, 1<<20 + 1, 20 << 20}
	bodies := make([]string, len(sizes))
	for i, n := range sizes {
		bodies[i] = randomBytes(n)
		if n > 100 {
			bodies[i] = `{"model":"model-a","prompt":"` + base64.StdEncoding.EncodeToString([]byte(bodies[i]))[:n-31] + `"}`
		}
	}
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {newPod(t, "p"), newPod(t, "q")}}})
		for _, f := range framings {
			t.Run(f.name, func(t *testing.T) {
				c := newClient(t, f.http2)
				for _, body := range bodies {
					var reader io.Reader = strings.NewReader(body)
					if f.unknown {
						reader = struct{ io.Reader }{reader}
					}
					req, err := http.NewRequest(http.MethodPost, r.url+"/v1/completions", reader)
					if err != nil {
						t.Fatal(err)
					}
					if f.trailer {
						// Go announces it in a header.
						req.Trailer = http.Header{"X-Sum": {"42"}}
					}
					resp, err := c.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					mustReceipt(t, resp, body)
				}
			})
		}
	})
}

// randomBytes makes a body that means nothing: bodies are bytes to all that carry them.
func randomBytes(n int) string {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return string(b)
}
