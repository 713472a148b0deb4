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

// A WebSocket has no body that could end, so its pod is picked on the headers;
// from then on bytes flow both ways.
func TestWebSocketUpgrade(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		p := newPod(t, "p")
		p.does(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("upgrade") != "websocket" {
				w.WriteHeader(http.StatusUpgradeRequired)
				return
			}
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
			io.Copy(conn, rw)
		})
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {p}}})

		conn, err := net.Dial("tcp", r.envoy.Listen)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "GET /v1/realtime?model=model-a HTTP/1.1\r\nHost: llm\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("status %d, want 101", resp.StatusCode)
		}
		for i := range 10 {
			sent := fmt.Sprintf("frame %d\n", i)
			io.WriteString(conn, sent)
			got, err := in.ReadString('\n')
			if err != nil || got != sent {
				t.Fatalf("sent %q, got %q and %v", sent, got, err)
			}
		}
		if n := r.inflight(); n != 1 {
			t.Errorf("%d requests in flight while the socket is open, want 1", n)
		}
	})
}
