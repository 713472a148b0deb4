package extproc

import (
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/podstate"
)

// shown is a piece of a response as a tap filter sends it.
func shown(number uint64, body string, end bool) *pb.ProcessingRequest {
	m := respBody(body, end)
	m.ObservabilityMode = true
	m.MetadataContext = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{"warmpath": {Fields: map[string]*structpb.Value{
		"tap": structpb.NewStringValue(strconv.FormatUint(number, 16)),
	}}}}
	return m
}

// openTap begins a tap's stream.
func (g *gateway) openTap(t *testing.T, number uint64, body string, end bool) *dialogue {
	t.Helper()
	d := g.open(t)
	d.send(in(shown(number, body, end), protocol{response: modeStreamed}))
	return d
}

func TestTapShowsTheFirstToken(t *testing.T) {
	for _, mode := range []protocol{buffered, duplex} {
		g := newGateway(t, Config{}, "", observed(Observe{Usage: "off"}))
		d, number := g.decide(t, mode, longChat(true))
		if number == 0 {
			t.Fatal("no tap is wanted")
		}
		d.answers("response-headers")
		tap := g.openTap(t, number, comment, false)
		tap.send(shown(number, role, false))
		g.settle(1) // a tap is no request
		if g.firstTokens() != 0 || g.pod(t, podA).Charge.Ahead == 0 {
			t.Error("a comment or a role was taken for the first token")
		}
		tap.send(shown(number, token, false))
		tap.expectEnd(codes.OK)
		if g.firstTokens() != 1 || g.pod(t, podA).Charge.Ahead != 0 {
			t.Error("the first token was not seen")
		}
		if n := g.inFlight(); n != 1 {
			t.Errorf("%d in flight, want 1: the response goes on", n)
		}
		d.send(respTrailers())
		d.expect("response-trailers")
		g.noneInFlight()
	}
}

func TestTapReadsToTheEnd(t *testing.T) {
	g := newGateway(t, Config{}, "", observed(Observe{}))
	d, number := g.decide(t, buffered, longChat(true))
	d.answers("response-headers")
	tap := g.openTap(t, number, token, false)
	d.stream.CloseSend() // the end of the request, before the last piece of its response
	g.noneInFlight()
	tap.send(shown(number, usage+done, false))
	tap.send(shown(number, "", true))
	tap.expectEnd(codes.OK)
	g.learned(t)
}

// Where a response ends with trailers, a tap is not told of its end.
func TestTapOfAResponseWithTrailers(t *testing.T) {
	g := newGateway(t, Config{}, "", observed(Observe{}))
	d, number := g.decide(t, buffered, longChat(true))
	d.answers("response-headers")
	tap := g.openTap(t, number, token+usage+done, false)
	if !eventually(func() bool { return g.firstTokens() == 1 }) {
		t.Fatal("the first token was not seen")
	}
	d.send(respTrailers())
	d.expect("response-trailers")
	tap.stream.CloseSend()
	g.learned(t)
}

func TestTapsEndAtShutdown(t *testing.T) {
	g := newGateway(t, Config{DrainTimeout: time.Minute}, "", observed(Observe{}))
	d, number := g.decide(t, buffered, longChat(true))
	d.answers("response-headers")
	tap := g.openTap(t, number, comment, false)
	g.settle(1)
	g.stop()
	tap.expectEnd(codes.OK)
	d.expectEnd(codes.OK)
}

// The whole of a short response may come after its request has ended.
func TestLateTap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, Config{}, "", observed(Observe{}))
		for range 3 {
			d, number := g.decide(t, buffered, longChat(true))
			d.answers("response-headers")
			d.stream.CloseSend()
			g.noneInFlight()
			g.openTap(t, number, broken+done, true).expectEnd(codes.OK)
		}
		if g.count("broken_responses_total", "m") != 3 || g.pod(t, podA).Health.Out == "" {
			t.Error("errors under status 200 did not count against the pod")
		}
	})
}

func TestTapOfNothing(t *testing.T) {
	g := newGateway(t, Config{}, "", observed(Observe{}))
	d, number := g.decide(t, buffered, longChat(true))
	d.answers("response-headers")
	g.openTap(t, number+1, token, false).expectEnd(codes.OK) // of another replica
	g.openTap(t, number, token, true).expectEnd(codes.OK)
	g.openTap(t, number, token, false).expectEnd(codes.OK) // once is enough
	if n := g.firstTokens(); n != 1 {
		t.Errorf("%d first tokens, want 1", n)
	}
	g.settle(1)

	opaque, number := g.decide(t, buffered, longChat(true))
	opaque.answers("response-headers")
	tap := g.openTap(t, number, strings.Repeat("data: what is this\n\n", 1000), false)
	tap.send(shown(number, strings.Repeat("data: what is this\n\n", 1000), false))
	tap.cancel()
	foreign := g.open(t) // of a filter that is not ours
	m := reqHeaders(false)
	m.ObservabilityMode = true
	foreign.send(in(m, buffered))
	foreign.stream.CloseSend()
	if _, err := foreign.stream.Recv(); err != io.EOF {
		t.Errorf("a filter in observability mode got an answer, or %v", err)
	}
}

func TestTapGivesUpOnWhatItCannotRead(t *testing.T) {
	g := newGateway(t, Config{}, "", observed(Observe{Usage: "off"}))
	d, number := g.decide(t, buffered, longChat(true))
	d.answers("response-headers")
	g.openTap(t, number, strings.Repeat("data: what is this\n\n", 2000), false).expectEnd(codes.OK)
}

func TestNoTapIsWanted(t *testing.T) {
	sglang := observed(Observe{Usage: "off"})
	for _, p := range sglang.Table.Pods() {
		sglang.Table.SetStats(p, &podstate.Stats{At: time.Now(), Engine: "sglang"}, 0)
	}
	for _, tt := range []struct {
		name string
		cfg  Config
		mode protocol
		pool Pool
		body string
	}{
		{"for an answer in one piece", Config{}, buffered, observed(Observe{}), longChat(false)},
		{"when it is off", Config{}, buffered, observed(Observe{FirstToken: "off"}), longChat(true)},
		{"when a sample is wanted", Config{}, buffered, observed(Observe{FirstToken: "sample"}), longChat(true)},
		{"when the body comes anyway", Config{}, bothWays, observed(Observe{}), longChat(true)},
		{"when the gateway is not of our making", Config{EPP: true}, buffered, observed(Observe{}), longChat(true)},
		{"when the pod's headers come with the first token", Config{}, buffered, sglang, longChat(true)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGateway(t, tt.cfg, "", tt.pool)
			if _, number := g.decide(t, tt.mode, tt.body); number != 0 {
				t.Error("one is")
			}
		})
	}
	t.Run("and then the headers tell", func(t *testing.T) {
		g := newGateway(t, Config{}, "", sglang)
		d, _ := g.decide(t, buffered, longChat(true))
		d.answers("response-headers")
		if g.firstTokens() != 1 {
			t.Error("they do not")
		}
	})
}
