package envoy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	podA = netip.MustParseAddrPort("10.0.0.1:8000")
	podB = netip.MustParseAddrPort("10.0.0.2:8000")
	podC = netip.MustParseAddrPort("[2001:db8::1]:8000")
)

// fakeEnvoy is the client's side of one EDS stream.
type fakeEnvoy struct {
	grpc.ServerStream
	ctx   context.Context
	leave context.CancelFunc
	in    chan *discoverypb.DiscoveryRequest
	out   chan *discoverypb.DiscoveryResponse
	ended chan error
}

func (f *fakeEnvoy) Context() context.Context { return f.ctx }

func (f *fakeEnvoy) Send(r *discoverypb.DiscoveryResponse) error { f.out <- r; return nil }

func (f *fakeEnvoy) Recv() (*discoverypb.DiscoveryRequest, error) {
	select {
	case r := <-f.in:
		return r, nil
	case <-f.ctx.Done():
		return nil, io.EOF
	}
}

// connect opens a stream and asks for the resources.
func connect(t *testing.T, e *EDS, resources ...string) *fakeEnvoy {
	f := &fakeEnvoy{
		in:    make(chan *discoverypb.DiscoveryRequest),
		out:   make(chan *discoverypb.DiscoveryResponse, 10),
		ended: make(chan error, 1),
	}
	f.ctx, f.leave = context.WithCancel(t.Context())
	go func() { f.ended <- e.StreamEndpoints(f) }()
	f.in <- &discoverypb.DiscoveryRequest{TypeUrl: edsType, ResourceNames: resources}
	synctest.Wait()
	return f
}

func (f *fakeEnvoy) ack(r *discoverypb.DiscoveryResponse) {
	f.in <- &discoverypb.DiscoveryRequest{TypeUrl: edsType, ResponseNonce: r.Nonce, VersionInfo: r.VersionInfo}
}

func (f *fakeEnvoy) refuse(r *discoverypb.DiscoveryResponse) {
	f.in <- &discoverypb.DiscoveryRequest{TypeUrl: edsType, ResponseNonce: r.Nonce,
		ErrorDetail: &statuspb.Status{Code: int32(codes.Internal), Message: "bad endpoint"}}
}

// received returns the endpoints of the next response as "address pool pool".
func (f *fakeEnvoy) received(t *testing.T) (*discoverypb.DiscoveryResponse, []string) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-f.out:
		var a endpointpb.ClusterLoadAssignment
		if len(r.Resources) != 1 || r.TypeUrl != edsType {
			t.Fatalf("response of %d resources of type %s", len(r.Resources), r.TypeUrl)
		}
		if err := r.Resources[0].UnmarshalTo(&a); err != nil {
			t.Fatal(err)
		}
		if err := a.ValidateAll(); err != nil {
			t.Fatal(err)
		}
		if a.ClusterName != "pods" {
			t.Fatalf("cluster %q", a.ClusterName)
		}
		got := []string{}
		for _, l := range a.Endpoints {
			for _, p := range l.LbEndpoints {
				s := p.GetEndpoint().GetAddress().GetSocketAddress()
				line := fmt.Sprintf("%s %d", s.GetAddress(), s.GetPortValue())
				for _, v := range p.Metadata.FilterMetadata["envoy.lb"].Fields["pool"].GetListValue().Values {
					line += " " + v.GetStringValue()
				}
				got = append(got, line)
			}
		}
		return r, got
	default:
		t.Fatal("no response")
		return nil, nil
	}
}

// set starts Set and returns where its result will be.
func set(t *testing.T, e *EDS, pool string, endpoints ...netip.AddrPort) <-chan error {
	done := make(chan error, 1)
	go func() { done <- e.Set(t.Context(), pool, endpoints) }()
	synctest.Wait()
	return done
}

// returned tells whether Set has come back, and with what.
func returned(done <-chan error) (bool, error) {
	synctest.Wait()
	select {
	case err := <-done:
		return true, err
	default:
		return false, nil
	}
}

func mustReturn(t *testing.T, done <-chan error) {
	t.Helper()
	if ok, err := returned(done); !ok || err != nil {
		t.Fatalf("Set returned: %v, error: %v; want it back without error", ok, err)
	}
}

func TestEDSMergesPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEDS([]string{"a", "b"}, slog.New(slog.DiscardHandler))
		mustReturn(t, set(t, e, "b", podC, podB))
		mustReturn(t, set(t, e, "a", podB, podA, podA))
		f := connect(t, e, "pods")
		_, got := f.received(t)
		want := []string{"10.0.0.1 8000 a", "10.0.0.2 8000 a b", "2001:db8::1 8000 b"}
		if !slices.Equal(got, want) {
			t.Fatalf("endpoints %q, want %q", got, want)
		}

		done := set(t, e, "a") // empties one pool, and must not touch the other
		r, got := f.received(t)
		want = []string{"10.0.0.2 8000 b", "2001:db8::1 8000 b"}
		if !slices.Equal(got, want) {
			t.Fatalf("endpoints %q, want %q", got, want)
		}
		f.ack(r)
		mustReturn(t, done)
	})
}

func TestEDSSetWaitsForEveryEnvoy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEDS([]string{"a"}, slog.New(slog.DiscardHandler))
		mustReturn(t, set(t, e, "a", podA))
		f, g := connect(t, e, "pods"), connect(t, e)
		first, _ := f.received(t)
		g.received(t)

		done := set(t, e, "a", podA, podB)
		f.ack(first) // of the version before
		second, _ := f.received(t)
		f.ack(second)
		if ok, _ := returned(done); ok {
			t.Fatal("Set came back before the second Envoy had the endpoints")
		}
		g.leave() // who has gone is not waited for
		mustReturn(t, done)

		mustReturn(t, set(t, e, "a", podA, podB)) // nothing new
		if len(f.out) > 0 {
			t.Fatal("unchanged endpoints were sent again")
		}
	})
}

func TestEDSSetGivesUpOnALateEnvoy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEDS([]string{"a"}, slog.New(slog.DiscardHandler))
		connect(t, e, "pods")
		begun := time.Now()
		err := e.Set(t.Context(), "a", []netip.AddrPort{podA})
		if err == nil || !strings.Contains(err.Error(), "1 of 1 Envoys") {
			t.Fatalf("error %v, want one that counts the late Envoys", err)
		}
		if took := time.Since(begun); took != ackTimeout {
			t.Fatalf("gave up after %v, want %v", took, ackTimeout)
		}
	})
}

func TestEDSRefusalIsLoggedOnceAndNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := NewEDS([]string{"a"}, slog.New(slog.NewTextHandler(&log, nil)))
		f := connect(t, e, "pods")
		done := set(t, e, "a", podA)
		r, _ := f.received(t)
		f.refuse(r)
		f.refuse(r)
		mustReturn(t, done)
		if n := strings.Count(log.String(), "bad endpoint"); n != 1 {
			t.Fatalf("refusal was logged %d times:\n%s", n, &log)
		}
	})
}

func TestEDSHoldsBackUntilAllPoolsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEDS([]string{"a", "b"}, slog.New(slog.DiscardHandler))
		f := connect(t, e, "pods")
		done := set(t, e, "a", podA)
		if len(f.out) > 0 {
			t.Fatal("endpoints were sent before pool b was known: Envoy would drop b's pods")
		}
		set(t, e, "b")
		r, got := f.received(t)
		if want := []string{"10.0.0.1 8000 a"}; !slices.Equal(got, want) {
			t.Fatalf("endpoints %q, want %q", got, want)
		}
		f.ack(r)
		mustReturn(t, done)
	})
}

func TestEDSDoesNotHoldForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEDS([]string{"a", "b"}, slog.New(slog.DiscardHandler))
		f := connect(t, e, "pods")
		set(t, e, "a", podA)
		time.Sleep(holdTimeout)
		if _, got := f.received(t); len(got) != 1 {
			t.Fatalf("endpoints %q, want those of pool a", got)
		}
	})
}

func TestEDSEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEDS(nil, slog.New(slog.DiscardHandler))
		wrong := connect(t, e, "gpus")
		if err := <-wrong.ended; status.Code(err) != codes.InvalidArgument {
			t.Errorf("a wrong resource name: %v, want InvalidArgument", err)
		}
		wrong.leave()

		f := connect(t, e, "pods")
		f.leave()
		if err := <-f.ended; err != nil {
			t.Errorf("an Envoy that leaves: %v, want no error", err)
		}
	})
}
