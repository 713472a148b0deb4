package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	edspb "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/podstate/prefix"
	"github.com/warmpath/warmpath/podstate/scrape"
	"github.com/warmpath/warmpath/proto/configpb"
)

func pods(addrs ...string) (specs []podstate.Spec) {
	for _, a := range addrs {
		specs = append(specs, podstate.Spec{Name: a, Addr: netip.MustParseAddrPort(a)})
	}
	return specs
}

func testPool(t *testing.T, eds *envoy.EDS) *pool {
	t.Helper()
	m, err := scrape.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPool(&configpb.Pool{
		Name: "a", Profile: "latency", Engine: "auto",
		Scrape:    &configpb.Scrape{Interval: "1s"},
		Discovery: &configpb.Discovery{Static: []*structpb.Value{structpb.NewStringValue("10.0.0.1:80")}},
	}, 1<<20, eds, m, scrape.NewBudget(10), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.bytesPerToken = func() float64 { return 4 }
	p.learn = func([]string) int { return 0 }
	return p
}

func TestScrapeTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	dir := t.TempDir()
	ca, junk := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "junk.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(ca, certificate, 0o600), os.WriteFile(junk, []byte("junk"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		tls  *configpb.ScrapeTLS
		ok   bool
	}{
		{"the system does not trust a private certificate", &configpb.ScrapeTLS{}, false},
		{"a pool may", &configpb.ScrapeTLS{CaFile: ca}, true},
		{"for its own name", &configpb.ScrapeTLS{CaFile: ca, ServerName: "example.com"}, true},
		{"and for no other", &configpb.ScrapeTLS{CaFile: ca, ServerName: "example.org"}, false},
		{"or not look", &configpb.ScrapeTLS{InsecureSkipVerify: true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := scrapeTLS(tt.tls)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := tls.Dial("tcp", server.Listener.Addr().String(), c)
			if (err == nil) != tt.ok {
				t.Errorf("dial: %v", err)
			}
			if err == nil {
				conn.Close()
			}
		})
	}
	if _, err := scrapeTLS(&configpb.ScrapeTLS{CaFile: junk}); err == nil {
		t.Error("a file without certificates is accepted")
	}
	if c, err := scrapeTLS(nil); c != nil || err != nil {
		t.Errorf("no tls: %v, %v; want plain HTTP", c, err)
	}
}

// pickable returns the addresses of the table's pods.
func (p *pool) pickable() (addrs []string) {
	for _, pod := range p.table.Pods() {
		addrs = append(addrs, pod.Addr)
	}
	slices.Sort(addrs)
	return addrs
}

// slowEnvoy is an EDS client that says yes when it is told to.
type slowEnvoy struct {
	t      *testing.T
	stream edspb.EndpointDiscoveryService_StreamEndpointsClient
}

func connect(t *testing.T, eds *envoy.EDS) *slowEnvoy {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	eds.Register(server)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///warmpath",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := edspb.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := &slowEnvoy{t, stream}
	e.send(&discoverypb.DiscoveryRequest{ResourceNames: []string{"pods"}})
	return e
}

func (e *slowEnvoy) send(req *discoverypb.DiscoveryRequest) {
	e.t.Helper()
	if err := e.stream.Send(req); err != nil {
		e.t.Fatal(err)
	}
}

// receive returns the endpoints that Envoy is told next, and how to say yes.
func (e *slowEnvoy) receive() (addrs []string, ack func()) {
	e.t.Helper()
	resp, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	var a endpointpb.ClusterLoadAssignment
	if err := resp.Resources[0].UnmarshalTo(&a); err != nil {
		e.t.Fatal(err)
	}
	for _, locality := range a.Endpoints {
		for _, ep := range locality.LbEndpoints {
			s := ep.GetEndpoint().GetAddress().GetSocketAddress()
			addrs = append(addrs, netip.AddrPortFrom(netip.MustParseAddr(s.GetAddress()), uint16(s.GetPortValue())).String())
		}
	}
	slices.Sort(addrs)
	return addrs, func() {
		e.send(&discoverypb.DiscoveryRequest{ResourceNames: []string{"pods"}, ResponseNonce: resp.Nonce, VersionInfo: resp.VersionInfo})
	}
}

// In virtual time, or the pool would give up on this Envoy while the machine stalls.
func TestPoolChangesPodsInTheRightOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eds := envoy.NewEDS([]string{"a"}, slog.New(slog.DiscardHandler))
		p := testPool(t, eds)
		p.set(t.Context(), pods("10.0.0.1:80", "10.0.0.2:80")) // no Envoy yet: at once
		if got := p.pickable(); !slices.Equal(got, []string{"10.0.0.1:80", "10.0.0.2:80"}) {
			t.Fatalf("pickable at the start: %v", got)
		}
		e := connect(t, eds)
		_, ack := e.receive()
		ack()

		// change makes the new list the pool's, and wants, each time Envoy is told a
		// list, that list and what may be picked before Envoy has answered.
		type step struct{ told, pickable []string }
		change := func(specs []podstate.Spec, steps ...step) {
			t.Helper()
			done := make(chan struct{})
			go func() {
				defer close(done)
				p.set(context.Background(), specs)
			}()
			var last []string
			for _, want := range steps {
				told, ack := e.receive()
				if !slices.Equal(told, want.told) {
					t.Errorf("Envoy is told %v, want %v", told, want.told)
				}
				if got := p.pickable(); !slices.Equal(got, want.pickable) {
					t.Errorf("pickable before Envoy knows %v: %v, want %v", told, got, want.pickable)
				}
				ack()
				last = told
			}
			<-done
			if got := p.pickable(); !slices.Equal(got, last) {
				t.Errorf("pickable in the end: %v, want %v", got, last)
			}
		}
		const a, b, c, d = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"
		change(pods(b, c), step{told: []string{b, c}, pickable: []string{b}}) // one came, one left
		change(pods(d),
			step{told: []string{b, c, d}, pickable: []string{b, c}}, // all are replaced
			step{told: []string{d}, pickable: []string{d}})
		change(nil, step{told: nil, pickable: nil})
		change(pods(a),
			step{told: []string{a}, pickable: nil})
	})
}

func TestPoolReplacedPodIsANewOne(t *testing.T) {
	p := testPool(t, envoy.NewEDS([]string{"a"}, slog.New(slog.DiscardHandler)))
	specs := pods("10.0.0.1:80", "10.0.0.2:80")
	specs[0].UID = "1"
	p.set(t.Context(), specs)
	before := p.table.Pods()
	again := pods("10.0.0.1:80", "10.0.0.2:80")
	again[0].UID = "2"
	p.set(t.Context(), again)
	after := p.table.Pods()
	if len(after) != 2 || slices.Contains(after, before[0]) || !slices.Contains(after, before[1]) {
		t.Errorf("pods before %v, after %v: want the first to be new, the second to be the same", before, after)
	}
}

func TestPoolKeepsTheIndexTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPool(t, envoy.NewEDS([]string{"a"}, slog.New(slog.DiscardHandler)))
		p.set(t.Context(), pods("10.0.0.1:80", "10.0.0.2:80"))
		first, second := p.table.Pods()[0], p.table.Pods()[1]
		prompt := make([]byte, 64<<10)
		blocks := prefix.Chain(nil, prefix.Seed("m", "", ""), prompt, []prefix.Span{{Start: 0, End: len(prompt)}})
		var m prefix.Match
		held := func(pod *podstate.Pod) int {
			if p.index.Match(blocks, time.Now(), &m); pod.Slot < len(m.Bytes) {
				return int(m.Bytes[pod.Slot])
			}
			return 0
		}
		report := func(pod *podstate.Pod, epoch, tokens int) {
			p.table.SetStats(pod, &podstate.Stats{At: time.Now(), Epoch: epoch, Known: podstate.FieldKVTokens, KVTokens: tokens}, 0)
			p.readCaches()
			time.Sleep(time.Second)
		}
		report(first, 0, 1<<20)
		report(second, 0, 1000)
		p.index.Insert(first.Slot, blocks, time.Now())
		p.index.Insert(second.Slot, blocks, time.Now())
		if n := held(first); n < 60<<10 {
			t.Errorf("a pod with a large cache holds %d bytes of a prompt of %d", n, len(prompt))
		}
		if n := held(second); n > 4000 || n < 3000 {
			t.Errorf("a pod with a cache of 1000 tokens holds %d bytes", n)
		}
		p.bytesPerToken = func() float64 { return 2 }
		p.readCaches()
		if n := held(second); n > 2000 || n < 1500 {
			t.Errorf("when tokens turn out to be shorter, it holds %d bytes", n)
		}
		report(first, 0, 1<<20)
		if n := held(first); n < 60<<10 {
			t.Errorf("a report that says nothing new left %d bytes", n)
		}
		report(first, 1, 1000)
		if n := held(first); n > 0 {
			t.Errorf("a pod that has started again holds %d bytes", n)
		}
		p.index.Insert(first.Slot, blocks, time.Now())
		if n := held(first); n > 4000 {
			t.Errorf("a pod that has started again with a cache of 1000 tokens holds %d bytes", n)
		}
		p.index.Insert(first.Slot, blocks, time.Now())
		p.set(t.Context(), pods("10.0.0.2:80"))
		if n := held(first); n > 0 || len(p.caches) != 1 {
			t.Errorf("a pod that has left holds %d bytes, and %d pods are remembered", n, len(p.caches))
		}
	})
}
