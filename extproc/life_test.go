package extproc

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// decided brings a stream to its decision.
func decidedStream(t testing.TB, g *gateway, mode protocol) *dialogue {
	t.Helper()
	d := g.open(t)
	d.send(in(reqHeaders(false), mode))
	switch mode.request {
	case modeDuplex:
		d.send(reqBody(chat, true))
		d.expect(pickHeaders, "body echo 60!")
	default:
		d.expect("headers")
		d.send(reqBody(chat, true))
		d.expect(pickBody)
	}
	return d
}

func TestReservationEndsWithTheRequest(t *testing.T) {
	tests := []struct {
		name string
		mode protocol
		do   func(d *dialogue)
	}{
		{"abort before the response", buffered, func(d *dialogue) { d.cancel() }},
		{"end of stream before the response", duplex, func(d *dialogue) { d.stream.CloseSend() }},
		{"abort in mid-response", duplex, func(d *dialogue) {
			d.send(respHeaders(false, "200", podA, 1))
			d.expect("response-headers")
			d.cancel()
		}},
		{"a response without a body", buffered, func(d *dialogue) { d.send(respHeaders(true, "204", podA, 1)) }},
		{"the response's trailers", buffered, func(d *dialogue) {
			d.send(respHeaders(false, "200", podA, 1))
			d.send(respTrailers())
		}},
		{"the response's last byte", bothWays, func(d *dialogue) {
			d.send(respHeaders(false, "200", podA, 1))
			d.send(respBody("x", true))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
			d := decidedStream(t, g, tt.mode)
			if n := g.inFlight(); n != 1 {
				t.Fatalf("%d in flight after the decision, want 1", n)
			}
			tt.do(d)
			g.noneInFlight()
		})
	}
}

func TestAbortBeforeTheDecisionChargesNobody(t *testing.T) {
	g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA))
	d := g.open(t)
	d.send(in(reqHeaders(false), buffered))
	d.expect("headers")
	d.cancel()
	if !eventually(func() bool { return g.count("decisions_total", "abandoned") == 1 }) {
		t.Error("the abort is not counted as abandoned")
	}
}

func TestPanicCostsOneStream(t *testing.T) {
	for _, mode := range []protocol{duplex, buffered} {
		g := newGateway(t, Config{}, "m", newPool("m", firstTwo{}, podA, podB), newPool("bad", panics{}, podA))
		other := decidedStream(t, g, mode)
		d := g.open(t)
		d.send(in(reqHeaders(false), mode))
		if mode == buffered {
			d.expect("headers")
		}
		d.send(reqBody(`{"model":"bad"}`, true))
		d.expect("immediate 500 internal-error")
		d.expectEnd(codes.OK)

		other.send(respHeaders(true, "200", podA, 1))
		other.expect("response-headers")
	}
}

func TestBigBodiesComeBackWhole(t *testing.T) {
	g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
	for _, size := range []int{1, 1023, 1024, 1025, 1 << 20, 1<<20 + 1, 5 << 20, 20 << 20} {
		for _, piece := range []int{16 << 10, 1 << 20, 7 << 20} {
			if size/piece > 100 {
				continue
			}
			body := make([]byte, size)
			r := rand.NewChaCha8([32]byte{byte(size), byte(piece)})
			r.Read(body)

			d := g.open(t)
			d.send(in(reqHeaders(false), duplex))
			go func() {
				for b := range slicesOf(body, piece) {
					d.stream.Send(reqBody(string(b), false))
				}
				d.stream.Send(reqBody("", true))
			}()
			d.expect(pickHeaders)
			var got []byte
			for {
				m, err := d.stream.Recv()
				if err != nil {
					t.Fatalf("%d bytes in pieces of %d: %v", size, piece, err)
				}
				s := m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
				if len(s.GetBody()) > echoPiece {
					t.Fatalf("a piece of %d bytes, more than %d", len(s.GetBody()), echoPiece)
				}
				got = append(got, s.GetBody()...)
				if s.GetEndOfStream() {
					break
				}
			}
			if !bytes.Equal(got, body) {
				t.Fatalf("%d bytes in pieces of %d: they came back changed", size, piece)
			}
			d.cancel()
		}
	}
}

func slicesOf(b []byte, n int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for at := 0; at < len(b); at += n {
			if !yield(b[at:min(at+n, len(b))]) {
				return
			}
		}
	}
}

// Buffers are reused, so streams that run at the same time must not see each
// other's bytes.
func TestConcurrentBodiesDoNotMix(t *testing.T) {
	g := newGateway(t, Config{}, "m", newPool("m", firstTwo{}, podA, podB))
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range 8 {
				body := fmt.Sprintf(`{"model":"m","prompt":"%s"}`, strings.Repeat(fmt.Sprint(i), 3000+500*j))
				d := g.open(t)
				d.stream.Send(in(reqHeaders(false), duplex))
				d.stream.Send(reqBody(body[:2000], false))
				d.stream.Send(reqBody(body[2000:], true))
				var got strings.Builder
				for range 2 {
					m, err := d.stream.Recv()
					if err != nil {
						t.Error(err)
						return
					}
					got.Write(m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
				}
				if got.String() != body {
					t.Errorf("stream %d got another body back", i)
				}
				d.cancel()
			}
		})
	}
	wg.Wait()
}

func TestWhatResponsesTeach(t *testing.T) {
	subtest(t, "the charge moves to the pod that served", func(t *testing.T) {
		g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
		d := decidedStream(t, g, buffered)
		d.send(respHeaders(false, "200", podB, 2))
		d.expect("response-headers")
		if a, b := g.pod(t, podA).Charge.Requests, g.pod(t, podB).Charge.Requests; a != 0 || b != 1 {
			t.Errorf("in flight %d on A and %d on B, want 0 and 1", a, b)
		}
	})
	subtest(t, "the prompt is done with the headers of a response in one piece", func(t *testing.T) {
		g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
		d := decidedStream(t, g, buffered)
		if g.pod(t, podA).Charge.Ahead == 0 {
			t.Fatal("nothing ahead after the decision")
		}
		d.send(respHeaders(false, "200", podA, 1, "content-type", "application/json"))
		d.expect("response-headers")
		if n := g.pod(t, podA).Charge.Ahead; n != 0 {
			t.Errorf("%v tokens ahead after the headers, want 0", n)
		}
	})
	subtest(t, "the prompt of a streamed response is done with its first data", func(t *testing.T) {
		g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
		d := decidedStream(t, g, bothWays)
		d.send(respHeaders(false, "200", podA, 1, "content-type", "text/event-stream; charset=utf-8"))
		d.expect("response-headers")
		d.send(respBody(": keep-alive\n\n", false))
		d.expect("response-body echo 14")
		if g.pod(t, podA).Charge.Ahead == 0 {
			t.Error("headers or a comment were taken for the first token")
		}
		d.send(respBody("data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n", false))
		d.expect("response-body echo 48")
		if n := g.pod(t, podA).Charge.Ahead; n != 0 {
			t.Errorf("%v tokens ahead after the first token, want 0", n)
		}
	})
	subtest(t, "pods that fail are ejected", func(t *testing.T) {
		for _, tt := range []struct {
			name   string
			status string
			served string
			tries  int
			out    bool // of A
		}{
			{"500 from the pod", "500", podA, 1, true},
			{"a retry that another pod served", "200", podB, 2, true},
			{"400 from the pod", "400", podA, 1, false},
			{"429 from the pod", "429", podA, 1, false},
			{"503 of Envoy, which found no pod", "503", "", 0, false},
		} {
			g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
			for range 3 {
				d := decidedStream(t, g, buffered)
				d.send(respHeaders(true, tt.status, tt.served, tt.tries))
				d.expect("response-headers")
			}
			if out := g.pod(t, podA).Health.Out != ""; out != tt.out {
				t.Errorf("%s: ejected %v, want %v", tt.name, out, tt.out)
			}
		}
	})
}

func TestShutdown(t *testing.T) {
	subtest(t, "decided streams end with OK, undecided ones are finished first", func(t *testing.T) {
		g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
		done := decidedStream(t, g, buffered)
		done.send(respHeaders(false, "200", podA, 1))
		done.expect("response-headers")
		collecting := g.open(t)
		collecting.send(in(reqHeaders(false), buffered))
		collecting.expect("headers")
		held := g.open(t)
		held.send(in(reqHeaders(false), duplex))
		held.send(reqBody(chat, false))
		g.settle(3)

		g.stop()
		done.expectEnd(codes.OK)
		held.send(reqBody("", true))
		held.expect(pickHeaders, "body echo 60!")
		held.expectEnd(codes.OK)
		collecting.send(reqBody(chat, true))
		collecting.expect(pickBody)
		collecting.expectEnd(codes.OK)
	})
	subtest(t, "what is undecided after the drain time gets 503", func(t *testing.T) {
		g := newGateway(t, Config{DrainTimeout: 20 * time.Millisecond}, "", newPool("m", firstTwo{}, podA, podB))
		held := g.open(t)
		held.send(in(reqHeaders(false), duplex))
		g.settle(1)
		g.stop()
		held.expect("immediate 503 draining")
		held.expectEnd(codes.OK)
	})
	subtest(t, "a response that passes through us is not ended with a hole", func(t *testing.T) {
		g := newGateway(t, Config{DrainTimeout: 20 * time.Millisecond}, "", newPool("m", firstTwo{}, podA, podB))
		d := decidedStream(t, g, bothWays)
		d.send(respHeaders(false, "200", podA, 1))
		d.expect("response-headers")
		g.stop()
		d.expectEnd(codes.Unavailable)
	})
	subtest(t, "streams of other services do not hold it up", func(t *testing.T) {
		g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
		w, err := healthpb.NewHealthClient(g.conn).Watch(context.Background(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Recv(); err != nil {
			t.Fatal(err)
		}
		g.stop() // the test ends only if Serve does
	})
}

// settle waits until the server has this many streams.
func (g *gateway) settle(n float64) {
	g.t.Helper()
	if !eventually(func() bool { return g.count("streams", "") == n }) {
		g.t.Fatalf("%v streams, want %v", g.count("streams", ""), n)
	}
}

// count sums the series of warmpath_extproc_… that have a label of this value.
func (g *gateway) count(name, label string) (sum float64) {
	families, err := g.reg.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "warmpath_extproc_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := label == ""
			for _, l := range m.GetLabel() {
				match = match || l.GetValue() == label
			}
			if match {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, Config{DrainDelay: 3 * time.Second}, "", newPool("m", firstTwo{}, podA))
		h := healthpb.NewHealthClient(g.conn)
		check := func(name string) string {
			r, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
			if err != nil {
				return err.Error()
			}
			return r.GetStatus().String()
		}
		synctest.Wait() // until it serves
		names := []string{"", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension"}
		for _, name := range names {
			if got := check(name); got != "SERVING" {
				t.Errorf("%q is %s, want SERVING", name, got)
			}
		}
		g.stop()
		synctest.Wait()
		for _, name := range names {
			want := "NOT_SERVING"
			if name == "liveness" {
				want = "SERVING"
			}
			if got := check(name); got != want {
				t.Errorf("%q is %s while draining, want %s", name, got, want)
			}
		}
	})
}

// Kubernetes kills a container 30 s after SIGTERM unless told otherwise.
func TestShutdownEndsBeforeKubernetesKills(t *testing.T) {
	if longest := defaultDrainDelay + defaultDrainTimeout + cutTime; longest >= 30*time.Second {
		t.Errorf("a shutdown may take %v", longest)
	}
}
