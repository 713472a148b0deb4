package extproc

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	ai "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/warmpath/warmpath/extproc/openai"
	"github.com/warmpath/warmpath/podstate"
)

const (
	comment = ": keep-alive\n\n"
	role    = `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	token   = `data: {"choices":[{"delta":{"content":"Hi"}}]}` + "\n\n"
	usage   = `data: {"choices":[],"usage":{"prompt_tokens":500,"completion_tokens":40}}` + "\n\n"
	broken  = `data: {"error":{"message":"engine died"}}` + "\n\n"
	done    = "data: [DONE]\n\n"
)

// longChat is a request with 2,000 bytes of text.
func longChat(stream bool) string {
	return fmt.Sprintf(`{"model":"m","stream":%v,"messages":[{"role":"user","content":"%s"}]}`, stream, strings.Repeat("tell me ", 250))
}

// observed is a pool whose responses are looked into as o says.
func observed(o Observe) Pool {
	p := newPool("m", firstTwo{}, podA, podB)
	p.Observe = o
	return p
}

// decide brings a stream to its decision, and returns the number for a tap, or 0.
func (g *gateway) decide(t *testing.T, mode protocol, body string) (d *dialogue, number uint64) {
	t.Helper()
	d = g.open(t)
	d.send(in(reqHeaders(false), mode))
	if mode.request != modeDuplex {
		d.expect("headers")
	}
	d.send(reqBody(body, true))
	r, err := d.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if mode.request == modeDuplex {
		d.expect(fmt.Sprintf("body echo %d!", len(body)))
	}
	own := r.GetDynamicMetadata().GetFields()["warmpath"].GetStructValue().GetFields()
	if _, tapped := own["tap"]; !tapped {
		return d, 0
	}
	if own["replica"].GetStringValue() != "bufconn" {
		t.Errorf("replica %q, want the address of our end of the connection", own["replica"].GetStringValue())
	}
	if number, err = strconv.ParseUint(own["tap"].GetStringValue(), 16, 64); err != nil {
		t.Fatal(err)
	}
	return d, number
}

// answers plays the headers of a good stream of events.
func (d *dialogue) answers(want string) {
	d.t.Helper()
	d.send(respHeaders(false, "200", podA, 1, "content-type", "text/event-stream"))
	d.expect(want)
}

func (g *gateway) pod(t *testing.T, addr string) podstate.Candidate {
	t.Helper()
	for _, c := range g.pools[0].Table.Snapshot(time.Now()) {
		if c.Pod.Addr == addr {
			return c
		}
	}
	t.Fatalf("no pod %s", addr)
	return podstate.Candidate{}
}

func (g *gateway) firstTokens() uint64 {
	families, err := g.reg.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "warmpath_extproc_first_token_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return 0
}

// learned waits until a usage of 500 prompt tokens has been taken in.
func (g *gateway) learned(t *testing.T) {
	t.Helper()
	if !eventually(func() bool { return g.server.observers[0].truth.now().output == 40 }) {
		t.Errorf("nothing was learned: %+v", g.server.observers[0].truth.now())
	}
}

// Where taps are wanted and none comes, a share of the streams is sent to us.
func TestSampleInPlaceOfTaps(t *testing.T) {
	g := newGateway(t, Config{}, "", observed(Observe{}))
	for range 16 {
		d, _ := g.decide(t, buffered, longChat(true))
		d.answers("response-headers")
		d.stream.CloseSend()
		g.noneInFlight()
		g.settle(0)
		g.server.taps.expire(time.Now(), -1)
	}
	d, number := g.decide(t, buffered, longChat(true))
	d.answers("response-headers override BUFFERED/STREAMED")
	d.send(respBody(comment+role, false))
	d.expect("response-body")
	g.openTap(t, number, token, false).expectEnd(codes.OK) // it comes after all: nothing is read twice
	if g.firstTokens() != 0 {
		t.Error("a role, or a tap, was taken for the first token")
	}
	d.send(respBody(token, false))
	d.expect("response-body")
	if g.firstTokens() != 1 {
		t.Error("the first token was not seen")
	}
	d.send(respBody(usage+done, true))
	d.expect("response-body")
	g.learned(t)
}

func TestWholeAnswersAreRead(t *testing.T) {
	const body = `{"choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":500,"completion_tokens":40}}`
	for _, tt := range []struct {
		name    string
		mode    protocol
		observe Observe
		status  string
		headers []string
		want    string
	}{
		{"JSON", buffered, Observe{}, "200", []string{"content-type", "application/json", "content-length", "93"}, "response-headers override BUFFERED/BUFFERED"},
		{"JSON, with a parameter", buffered, Observe{Usage: "trailers"}, "200", []string{"content-type", "application/json; charset=utf-8", "content-length", "65536"}, "response-headers override BUFFERED/BUFFERED"},
		{"too long", buffered, Observe{}, "200", []string{"content-type", "application/json", "content-length", "65537"}, "response-headers"},
		{"of unknown length", buffered, Observe{}, "200", []string{"content-type", "application/json"}, "response-headers"},
		{"compressed", buffered, Observe{}, "200", []string{"content-type", "application/json", "content-length", "93", "content-encoding", "gzip"}, "response-headers"},
		{"an image", buffered, Observe{}, "200", []string{"content-type", "image/png", "content-length", "93"}, "response-headers"},
		{"an error", buffered, Observe{}, "400", []string{"content-type", "application/json", "content-length", "93"}, "response-headers"},
		{"in a mode in which Envoy does not listen", duplex, Observe{}, "200", []string{"content-type", "application/json", "content-length", "93"}, "response-headers"},
		{"when it is off", buffered, Observe{Usage: "off"}, "200", []string{"content-type", "application/json", "content-length", "93"}, "response-headers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGateway(t, Config{}, "", observed(tt.observe))
			d, _ := g.decide(t, tt.mode, longChat(false))
			d.send(respHeaders(false, tt.status, podA, 1, tt.headers...))
			d.expect(tt.want)
			if tt.want != "response-headers" {
				d.send(respBody(body, true))
				d.expect("response-body")
				g.learned(t)
			}
		})
	}
	t.Run("not for requests without a body", func(t *testing.T) {
		g := newGateway(t, Config{}, "m", observed(Observe{}))
		d := g.open(t)
		d.send(in(reqHeaders(true, ":path", "/v1/models"), buffered))
		d.expect(pickHeaders)
		d.send(respHeaders(false, "200", podA, 1, "content-type", "application/json", "content-length", "93"))
		d.expect("response-headers")
	})
	t.Run("not from an Envoy that does not obey", func(t *testing.T) {
		g := newGateway(t, Config{}, "", observed(Observe{CPUBudget: 1}))
		asked := 0
		for range 48 {
			d, _ := g.decide(t, buffered, longChat(false))
			d.send(respHeaders(false, "200", podA, 1, "content-type", "application/json", "content-length", "93"))
			r, err := d.stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if r.GetModeOverride() != nil {
				asked++
			}
			d.stream.CloseSend()
			g.settle(0)
		}
		if asked < 16 || asked > 24 {
			t.Errorf("asked %d times of 48; want 16, and now and then again", asked)
		}
	})
	subtest(t, "within the budget", func(t *testing.T) {
		g := newGateway(t, Config{}, "", observed(Observe{CPUBudget: 2 * wholeCost}))
		got := map[string]int{}
		for range 20 {
			d, _ := g.decide(t, buffered, longChat(false))
			d.send(respHeaders(false, "200", podA, 1, "content-type", "application/json", "content-length", "93"))
			r, err := d.stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			got[describe(r)]++
			d.cancel()
		}
		if got["response-headers"] < 10 || got["response-headers override BUFFERED/BUFFERED"] < 2 {
			t.Errorf("got %v; want a few of twenty", got)
		}
	})
}

func TestUsageInTrailers(t *testing.T) {
	g := newGateway(t, Config{}, "", observed(Observe{FirstToken: "off", Usage: "trailers"}))
	d, _ := g.decide(t, buffered, longChat(true))
	d.answers("response-headers")
	d.send(withUsage(t, respTrailers(), usageSpace, &ai.TokenUsage{
		Model: "m", InputTokens: wrapperspb.UInt64(500), OutputTokens: wrapperspb.UInt64(40), TotalTokens: wrapperspb.UInt64(540),
	}))
	d.expect("response-trailers")
	g.learned(t)
	if got := g.server.observers[0].truth.now().text; !near(got, 4, 0.05) {
		t.Errorf("%v bytes a token: the prompt's length was not read", got)
	}
}

// What a pod is given credit and blame for.
func TestHealthByResponses(t *testing.T) {
	eject := func(t *testing.T, g *gateway) {
		for range 3 {
			d, _ := g.decide(t, buffered, longChat(true))
			d.send(respHeaders(true, "500", podA, 1))
			d.expect("response-headers")
		}
		if g.pod(t, podA).Health.Out == "" {
			t.Fatal("three times 500 did not eject the pod")
		}
	}
	back := func(t *testing.T, g *gateway) bool { return g.pod(t, podA).Health.Ramp < 1 } // it gets its share step by step
	subtest(t, "headers of a stream that is watched are no success", func(t *testing.T) {
		g := newGateway(t, Config{}, "", observed(Observe{}))
		eject(t, g)
		d, number := g.decide(t, buffered, longChat(true))
		d.answers("response-headers")
		if back(t, g) {
			t.Error("the pod is back by its headers alone")
		}
		g.openTap(t, number, token, false)
		if !eventually(func() bool { return back(t, g) }) {
			t.Error("the pod is not back by a token")
		}
	})
	subtest(t, "headers of one that is not are all there is", func(t *testing.T) {
		g := newGateway(t, Config{}, "", observed(Observe{FirstToken: "off", Usage: "off"}))
		eject(t, g)
		d, _ := g.decide(t, buffered, longChat(true))
		d.answers("response-headers")
		if !back(t, g) {
			t.Error("the pod is not back")
		}
	})
	subtest(t, "a refused request says nothing about those before it", func(t *testing.T) {
		g := newGateway(t, Config{}, "", observed(Observe{}))
		g.decide(t, buffered, longChat(true))
		ahead := g.pod(t, podA).Charge.Ahead
		for _, status := range []string{"400", "404", "429"} {
			d, _ := g.decide(t, buffered, longChat(true))
			d.send(respHeaders(true, status, podA, 1))
			d.expect("response-headers")
			if !eventually(func() bool { return g.inFlight() == 1 }) {
				t.Fatal("it is still in flight")
			}
			if got := g.pod(t, podA).Charge.Ahead; got != ahead {
				t.Errorf("status %s: %v tokens ahead, want the %v of the request that has no answer", status, got, ahead)
			}
		}
	})
}

func TestBytesPerToken(t *testing.T) {
	g := newGateway(t, Config{}, "", observed(Observe{}))
	if got := g.server.BytesPerToken(0); got != 4 {
		t.Errorf("%v before any response, want 4", got)
	}
	g.server.observers[0].truth.learn(&asked{text: 3000}, &openai.Usage{Prompt: 1000, Cached: -1}, nil)
	if got := g.server.BytesPerToken(0); !near(got, 3, 0.01) {
		t.Errorf("%v after a prompt of 3,000 bytes in 1,000 tokens", got)
	}
}
