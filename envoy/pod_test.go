package envoy_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
)

// pod is a simulated model server. What it does with a request can be changed
// while it runs; at first it tells what it got.
type pod struct {
	name  string
	addr  netip.AddrPort
	hits  atomic.Int64 // requests, or connections if it does not read them
	serve atomic.Pointer[http.HandlerFunc]
}

// receipt is what a pod tells about a request.
type receipt struct {
	Pod     string
	Length  int64
	SHA256  string
	Header  http.Header
	Trailer http.Header
}

// newPod starts a pod on a port of its own.
func newPod(t testing.TB, name string) *pod { return newPodAt(t, name, "127.0.0.1:0") }

func newPodAt(t testing.TB, name, addr string) *pod {
	t.Helper()
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{name: name, addr: netip.MustParseAddrPort(lis.Addr().String())}
	p.does(p.tell)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.hits.Add(1)
		(*p.serve.Load())(w, r)
	})}
	go server.Serve(lis)
	t.Cleanup(func() { server.Close() })
	return p
}

func (p *pod) does(f http.HandlerFunc) { p.serve.Store(&f) }

// tell reads the body and answers with a receipt.
func (p *pod) tell(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if err != nil { // the request was cut
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("content-type", "application/json")
	json.NewEncoder(w).Encode(receipt{
		Pod: p.name, Length: n, SHA256: hex.EncodeToString(sum.Sum(nil)), Header: r.Header, Trailer: r.Trailer,
	})
}

// busy answers 503 after it has read the body.
func busy(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusServiceUnavailable)
}

// events is a handler that streams one event for each value it gets from next,
// so that the test decides when it goes on, and ends when next is closed.
func events(next <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("content-type", "text/event-stream")
		flush := http.NewResponseController(w)
		flush.Flush()
		for {
			select {
			case e, ok := <-next:
				if !ok {
					return
				}
				io.WriteString(w, "data: "+e+"\n\n")
				flush.Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

// newDeafPod is one that no connection reaches. Its port is one from which a
// connection goes out, so that nobody else listens there.
func newDeafPod(t testing.TB) *pod {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	conn, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &pod{name: "deaf", addr: netip.MustParseAddrPort(conn.LocalAddr().String())}
}

// newResettingPod resets each connection when the first line of a request has
// come.
func newResettingPod(t testing.TB, name string) *pod {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	p := &pod{name: name, addr: netip.MustParseAddrPort(lis.Addr().String())}
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				bufio.NewReader(c).ReadString('\n')
				p.hits.Add(1)
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}()
		}
	}()
	return p
}
