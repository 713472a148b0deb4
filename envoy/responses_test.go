package envoy_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Each event of a stream reaches the client before the next one exists.
func TestStreamedResponseIsNotHeldBack(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		p := newPod(t, "p")
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {p}}})
		for _, http2 := range []bool{false, true} {
			next := make(chan string)
			p.does(events(next))
			resp, err := r.post(t.Context(), newClient(t, http2), chat("a"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got := resp.Header.Get("content-type"); got != "text/event-stream" {
				t.Errorf("content-type %q", got)
			}
			lines := bufio.NewReader(resp.Body)
			for i := range 100 {
				event := fmt.Sprintf(`{"i":%d}`, i)
				next <- event
				for _, want := range []string{"data: " + event + "\n", "\n"} {
					if line, err := lines.ReadString('\n'); err != nil || line != want {
						t.Fatalf("event %d: got %q and %v, want %q", i, line, err, want)
					}
				}
			}
			close(next)
			if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
				t.Errorf("the end of the stream: %q, %v", rest, err)
			}
		}
	})
}

// What a pod answers reaches the client as it is.
func TestResponseIsUntouched(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, strings.Repeat("tokens ", 1000))
	z.Close()

	responses := map[string]struct {
		status  int
		headers map[string]string
		body    string
	}{
		"json with a length": {200, map[string]string{"content-type": "application/json", "content-length": "13"}, `{"object":""}`},
		"gzip":               {200, map[string]string{"content-encoding": "gzip"}, zipped.String()},
		"3 MiB":              {200, nil, randomBytes(3 << 20)},
		"an error":           {422, map[string]string{"content-type": "application/json"}, `{"error":{"message":"no"}}`},
		"busy":               {429, map[string]string{"retry-after": "3", "server": "uvicorn"}, "slow down"},
		"no body":            {204, nil, ""},
	}
	eachMode(t, func(t *testing.T, mode string) {
		p := newPod(t, "p")
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {p}}})
		c := newClient(t, false)
		for name, want := range responses {
			t.Run(name, func(t *testing.T) {
				p.does(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					for k, v := range want.headers {
						w.Header().Set(k, v)
					}
					w.WriteHeader(want.status)
					io.WriteString(w, want.body)
				})
				resp, err := r.post(t.Context(), c, chat("a"))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != want.status || string(got) != want.body {
					t.Errorf("status %d and %d bytes, want %d and %d bytes", resp.StatusCode, len(got), want.status, len(want.body))
				}
				for k, v := range want.headers {
					if got := resp.Header.Get(k); got != v {
						t.Errorf("header %s: %q, want %q", k, got, v)
					}
				}
			})
		}
	})
}
