package envoy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// A content-length that does not fit the body costs that client its request, and
// nobody anything else.
func TestWrongContentLength(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		p := newPod(t, "p")
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {p}}})
		dial := func(length int, body string) net.Conn {
			conn, err := net.Dial("tcp", r.envoy.Listen)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(patience))
			fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: llm\r\nContent-Length: %d\r\n\r\n%s", length, body)
			return conn
		}

		t.Run("too long", func(t *testing.T) {
			conn := dial(100, chat("a")[:50])
			waitFor(t, "the request to reach warmpath", func() bool { return r.stat(t, "cluster.warmpath.upstream_rq_active") > 1 })
			conn.Close()
			r.checkIdle(t)
			if n := p.hits.Load(); n != 0 {
				t.Errorf("%d requests reached the pod, want none", n)
			}
		})
		t.Run("too short", func(t *testing.T) {
			body := chat("a")
			conn := dial(len(body), body+"is no request\r\n\r\n")
			defer conn.Close()
			in := bufio.NewReader(conn)
			first, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			mustReceipt(t, first, body)
			second, err := http.ReadResponse(in, nil)
			if err == nil {
				io.Copy(io.Discard, second.Body)
				if second.StatusCode != http.StatusBadRequest {
					t.Errorf("the bytes behind the body got %d, want 400", second.StatusCode)
				}
			}
			if n := p.hits.Load(); n != 1 {
				t.Errorf("%d requests reached the pod, want 1", n)
			}
		})
		t.Run("others are served", func(t *testing.T) {
			r.mustTell(t, newClient(t, false), chat("a"))
		})
	})
}
