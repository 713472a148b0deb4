package scrape

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// soon is a clock by which an answer may take a minute longer than it may, on a
// machine that stalls.
func soon() time.Time { return time.Now().Add(time.Minute) }

func testClient(t *testing.T, s *httptest.Server) *client {
	t.Helper()
	cfg := &Config{now: soon, dial: (&net.Dialer{}).DialContext}
	c := newClient(cfg, s.Listener.Addr().String())
	t.Cleanup(c.close)
	return c
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestClientReads(t *testing.T) {
	zipped := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return b.Bytes()
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    string // body
		err     string
		outcome string
	}{
		{"a body with a length", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a 1\n") }, "a 1\n", "", "ok"},
		{"a chunked body", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "a 1\n")
			_ = http.NewResponseController(w).Flush()
			fmt.Fprint(w, "b 1\n")
		}, "a 1\nb 1\n", "", "ok"},
		{"a large body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("x"), 3<<20)) },
			strings.Repeat("x", 3<<20), "", "ok"},
		{"gzip that nobody asked for", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(zipped("a 1\n"))
		}, "a 1\n", "", "ok"},
		{"gzip that is none", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, "a 1\n and more than ten bytes")
		}, "", "gzip", "unreachable"},
		{"a body that unpacks to too much", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			member := zipped(strings.Repeat("\x00", 1<<20))
			for range 9 {
				_, _ = w.Write(member)
			}
		}, "", "more than 8 MB; restart the server", "too_large"},
		{"a length that is too much", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99999999999")
			w.WriteHeader(200)
		}, "", "more than 8 MB; restart the server", "too_large"},
		{"a body without an end", func(w http.ResponseWriter, _ *http.Request) {
			line := bytes.Repeat([]byte("x"), 64<<10)
			for err := error(nil); err == nil; {
				_, err = w.Write(line)
			}
		}, "", "more than 8 MB", "too_large"},
		{"headers without an end", func(w http.ResponseWriter, _ *http.Request) {
			conn, out, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			for _, err = out.WriteString("HTTP/1.1 200 OK\r\n"); err == nil; {
				_, err = out.WriteString("x: " + strings.Repeat("x", 1<<10) + "\r\n")
			}
		}, "", "more than 8 MB", "too_large"},
		{"another status", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 503) }, "", "status 503", "status"},
		{"a redirect at the same pod", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				http.Redirect(w, r, "/metrics/", http.StatusTemporaryRedirect)
				return
			}
			fmt.Fprint(w, "a 1\n")
		}, "a 1\n", "", "ok"},
		{"a redirect in a circle", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/metrics", http.StatusTemporaryRedirect)
		}, "", "status 307", "status"},
		{"a redirect to another server", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusTemporaryRedirect)
		}, "", "another server", "unreachable"},
		{"a body that is cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "a 1\n")
		}, "", "unexpected EOF", "unreachable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := testClient(t, serve(t, tt.handler))
			for range 2 { // also on the connection as the first answer has left it
				a, err := c.get(t.Context(), "/metrics", maxMetrics)
				switch {
				case tt.err == "" && err != nil:
					t.Fatal(err)
				case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
					t.Fatalf("error %v, want one with %q", err, tt.err)
				case outcome(err) != tt.outcome:
					t.Fatalf("outcome %q, want %q", outcome(err), tt.outcome)
				case err != nil:
					continue
				case a.body.String() != tt.want:
					t.Fatalf("body of %d bytes, want %d", a.body.Len(), len(tt.want))
				}
				a.free()
			}
		})
	}
}

// connections counts those that a server has accepted.
func connections(s *httptest.Server) *atomic.Int64 {
	var n atomic.Int64
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			n.Add(1)
		}
	}
	return &n
}

func TestClientKeepsItsConnection(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "a 1\n")
	}))
	accepted := connections(s)
	s.Start()
	defer s.Close()
	c := testClient(t, s)
	now := soon()
	c.now = func() time.Time { return now }
	for range 3 {
		if _, err := c.get(t.Context(), "/metrics", maxMetrics); err != nil {
			t.Fatal(err)
		}
		if _, err := c.get(t.Context(), "/missing", maxMetrics); err == nil {
			t.Fatal("no error for 404")
		}
		now = now.Add(keepIdle - time.Millisecond)
	}
	if n := accepted.Load(); n != 1 {
		t.Errorf("%d connections for scrapes within the keep-alive, want 1", n)
	}
	now = now.Add(keepIdle)
	if _, err := c.get(t.Context(), "/metrics", maxMetrics); err != nil {
		t.Fatal(err)
	}
	if n := accepted.Load(); n != 2 {
		t.Errorf("%d connections after the engines' keep-alive, want 2", n)
	}
}

func TestClientRetriesOnceOnAClosedConnection(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a 1\n") }))
	accepted := connections(s)
	s.Start()
	defer s.Close()
	c := testClient(t, s)
	for range 2 {
		if _, err := c.get(t.Context(), "/metrics", maxMetrics); err != nil {
			t.Fatal(err)
		}
		s.CloseClientConnections() // as an engine does after 5 s
	}
	if n := accepted.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	s.Close()
	if _, err := c.get(t.Context(), "/metrics", maxMetrics); outcome(err) != "unreachable" {
		t.Errorf("a server that is gone: %v", err)
	}
}

func TestClientGivesUp(t *testing.T) {
	block := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-block:
		case <-r.Context().Done():
		}
	})
	defer close(block)
	c := testClient(t, s)
	late := time.Now().Add(-timeout - time.Second)
	c.now = func() time.Time { return late } // the deadline has passed
	if _, err := c.get(t.Context(), "/metrics", maxMetrics); outcome(err) != "timeout" {
		t.Errorf("a hung server: %v", err)
	}
	c.now = time.Now
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if _, err := c.get(ctx, "/metrics", maxMetrics); err == nil {
		t.Error("no error after cancel")
	}
}

func TestClientAsksOverTLSWithAToken(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, "a 1\n")
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	cfg := &Config{now: soon, dial: (&net.Dialer{}).DialContext, TLS: s.Client().Transport.(*http.Transport).TLSClientConfig}
	c := newClient(cfg, s.Listener.Addr().String())
	defer c.close()
	var status *statusError
	if _, err := c.get(t.Context(), "/metrics", maxMetrics); !errors.As(err, &status) || status.status != 401 {
		t.Errorf("without the token: %v", err)
	}
	c.close()
	cfg.Token = "secret"
	c = newClient(cfg, c.host)
	if _, err := c.get(t.Context(), "/metrics", maxMetrics); err != nil {
		t.Error(err)
	}
	c.close()
	c.tls = &tls.Config{}
	if _, err := c.get(t.Context(), "/metrics", maxMetrics); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("an unknown certificate: %v", err)
	}
}
