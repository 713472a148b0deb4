package extproc

import (
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
)

// step is a message of Envoy and the answers that must come before the next.
type step struct {
	send *pb.ProcessingRequest
	want []string
}

func s(send *pb.ProcessingRequest, want ...string) step { return step{send, want} }

const chat = `{"model":"m","messages":[{"role":"user","content":"hello"}]}` // 60 bytes

// What a decision looks like on each message that can carry it.
const (
	pickMeta    = " warmpath/pick:" + podA + "," + podB + " envoy.lb/pool:m"
	pickHeaders = "headers endpoint=" + podA + "," + podB + pickMeta
	pickBody    = "body endpoint=" + podA + "," + podB + pickMeta
)

var (
	buffered = protocol{request: modeBuffered}
	partial  = protocol{request: modePartial}
	duplex   = protocol{request: modeDuplex}
	streamed = protocol{request: modeStreamed}
	unwaited = protocol{request: modeStreamed, unwaited: true}
	noBody   = protocol{request: modeNone}
	bothWays = protocol{request: modeDuplex, response: modeDuplex}
)

func TestStream(t *testing.T) {
	tests := []struct {
		name  string
		mode  protocol
		steps []step
		body  string // that must have come back, in duplex mode
	}{
		{name: "BUFFERED: headers are answered at once, the body with the decision", mode: buffered, steps: []step{
			s(reqHeaders(false), "headers"),
			s(reqBody(chat, true), pickBody),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
		}},
		{name: "BUFFERED: a body before trailers is the whole body", mode: buffered, steps: []step{
			s(reqHeaders(false), "headers"),
			s(reqBody(chat, false), pickBody),
			s(reqTrailers(), "trailers"),
			s(respHeaders(true, "200", podA, 1), "response-headers"),
		}},
		{name: "BUFFERED: trailers without a body carry the decision in metadata", mode: buffered, steps: []step{
			s(reqHeaders(false), "headers"),
			s(reqTrailers(), "trailers warmpath/pick:"+podA+","+podB+" warmpath/request-trailers:true envoy.lb/pool:m"),
		}},
		{name: "BUFFERED: an empty body is a body", mode: buffered, steps: []step{
			s(reqHeaders(false), "headers"),
			s(reqBody("", true), pickBody),
		}},
		{name: "BUFFERED: no body, decided on the headers", mode: buffered, steps: []step{
			s(reqHeaders(true), pickHeaders),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
			s(respTrailers(), "response-trailers"),
		}},
		{name: "BUFFERED: an upgrade is decided on the headers and asks for no body", mode: buffered, steps: []step{
			s(reqHeaders(false, "upgrade", "websocket"), pickHeaders+" override NONE/NONE"),
			s(respHeaders(false, "101", podA, 1), "response-headers"),
		}},
		{name: "BUFFERED: an upgrade keeps the response's mode", mode: protocol{request: modeBuffered, response: modeStreamed}, steps: []step{
			s(reqHeaders(false, "upgrade", "websocket"), pickHeaders+" override NONE/STREAMED"),
		}},
		{name: "BUFFERED: headers are not sent to us", mode: buffered, steps: []step{
			s(reqBody(chat, true), pickBody),
		}},
		{name: "BUFFERED: whatever comes twice is answered once each", mode: buffered, steps: []step{
			s(reqHeaders(false), "headers"),
			s(reqHeaders(false), "headers"),
			s(reqBody(chat, true), pickBody),
			s(reqBody(chat, true), "body"),
			s(reqHeaders(true), "headers"),
			s(reqTrailers(), "trailers"),
		}},
		{name: "BUFFERED_PARTIAL: what fits is enough", mode: partial, steps: []step{
			s(reqHeaders(false), "headers"),
			s(reqBody(chat[:30], false), pickBody),
		}},
		{name: "duplex: all is held until the body has ended, then given back", mode: duplex, body: chat, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat[:10], false)),
			s(reqBody(chat[10:], true), pickHeaders, "body echo 60!"),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
			s(respTrailers(), "response-trailers"),
		}},
		{name: "duplex: the end comes as an empty piece", mode: duplex, body: chat, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat, false)),
			s(reqBody("", true), pickHeaders, "body echo 60!"),
		}},
		{name: "duplex: an empty body has an end too", mode: duplex, steps: []step{
			s(reqHeaders(false)),
			s(reqBody("", true), pickHeaders, "body echo 0!"),
		}},
		{name: "duplex: trailers are the end of the body", mode: duplex, body: chat, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat, false)),
			s(reqTrailers(), "headers endpoint="+podA+","+podB+" clear warmpath/pick:"+podA+","+podB+" warmpath/request-trailers:true envoy.lb/pool:m", "body echo 60", "trailers"),
		}},
		{name: "duplex: nothing comes after trailers", mode: duplex, body: chat, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat, false)),
			s(reqTrailers(), "headers endpoint="+podA+","+podB+" clear warmpath/pick:"+podA+","+podB+" warmpath/request-trailers:true envoy.lb/pool:m", "body echo 60", "trailers"),
			s(reqBody("", true)),
		}},
		{name: "duplex: trailers without a body", mode: duplex, steps: []step{
			s(reqHeaders(false)),
			s(reqTrailers(), "headers endpoint="+podA+","+podB+" clear warmpath/pick:"+podA+","+podB+" warmpath/request-trailers:true envoy.lb/pool:m", "trailers"),
		}},
		{name: "duplex: no body", mode: duplex, steps: []step{
			s(reqHeaders(true), pickHeaders),
			s(respHeaders(true, "200", podA, 1), "response-headers"),
		}},
		{name: "duplex: a second end of stream is none", mode: duplex, body: chat, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat, true), pickHeaders, "body echo 60!"),
			s(reqBody("", true)),
			s(reqBody("late", true)),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
		}},
		{name: "duplex: an end of stream after one on the headers is none", mode: duplex, steps: []step{
			s(reqHeaders(true), pickHeaders),
			s(reqBody("", true)),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
		}},
		{name: "duplex: an upgrade is decided on the headers, and its bytes pass", mode: duplex, body: "ping", steps: []step{
			s(reqHeaders(false, "upgrade", "websocket"), pickHeaders),
			s(reqBody("", false), "body echo 0"),
			s(reqBody("ping", false), "body echo 4"),
			s(respHeaders(false, "101", podA, 1), "response-headers"),
		}},
		{name: "duplex: headers are not sent to us, so they have passed", mode: duplex, body: chat, steps: []step{
			s(reqBody(chat, true), "body echo 60!"),
		}},
		{name: "duplex: headers that come twice are held once", mode: duplex, body: chat, steps: []step{
			s(reqHeaders(false)),
			s(reqHeaders(false)),
			s(reqBody(chat, true), pickHeaders, "body echo 60!"),
		}},
		{name: "duplex both ways: the response comes back too", mode: bothWays, body: chat, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat, true), pickHeaders, "body echo 60!"),
			s(respHeaders(false, "200", podA, 1, "content-type", "text/event-stream"), "response-headers"),
			s(respBody("data: 1\n\n", false), "response-body echo 9"),
			s(respBody("data: [DONE]\n\n", true), "response-body echo 14!"),
			s(respBody("", true)),
		}},
		{name: "duplex both ways: trailers end the response", mode: bothWays, body: chat, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat, true), pickHeaders, "body echo 60!"),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
			s(respBody("data", false), "response-body echo 4"),
			s(respTrailers(), "response-trailers"),
		}},
		{name: "duplex: the response may come before the request has ended", mode: duplex, body: "pong", steps: []step{
			s(reqHeaders(false, "upgrade", "websocket"), pickHeaders),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
			s(reqBody("pong", true), "body echo 4!"),
		}},
		{name: "STREAMED: decided on the headers, each piece answered", mode: streamed, steps: []step{
			s(reqHeaders(false), pickHeaders),
			s(reqBody(chat[:10], false), "body"),
			s(reqBody(chat[10:], true), "body"),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
		}},
		{name: "STREAMED without waiting: held until the end", mode: unwaited, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat[:10], false)),
			s(reqBody(chat[10:], true), pickHeaders, "body", "body"),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
		}},
		{name: "STREAMED without waiting: content-length tells the end", mode: unwaited, steps: []step{
			s(reqHeaders(false, "content-length", "60")),
			s(reqBody(chat, false), pickHeaders, "body"),
			s(reqBody("", true), "body"),
		}},
		{name: "STREAMED without waiting: an end that does not come is not waited for", mode: unwaited, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat, false), pickHeaders, "body"),
			s(reqTrailers(), "trailers"),
		}},
		{name: "STREAMED without waiting: more than Envoy would send is not waited for", mode: unwaited, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(strings.Repeat(" ", streamedEnough/2), false)),
			s(reqBody(strings.Repeat(" ", streamedEnough/2), false), pickHeaders, "body", "body"),
			s(reqBody(chat, true), "body"),
		}},
		{name: "NONE: decided on the headers", mode: noBody, steps: []step{
			s(reqHeaders(false), pickHeaders),
			s(reqTrailers(), "trailers"),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
			s(respTrailers(), "response-trailers"),
		}},
		{name: "response bodies outside of duplex are answered plainly", mode: protocol{request: modeBuffered, response: modeStreamed}, steps: []step{
			s(reqHeaders(true), pickHeaders),
			s(respHeaders(false, "200", podA, 1), "response-headers"),
			s(respBody("data: 1\n\n", false), "response-body"),
			s(respBody("", true), "response-body"),
		}},
		{name: "a message without content is tolerated", mode: buffered, steps: []step{
			s(&pb.ProcessingRequest{}),
			s(reqHeaders(false), "headers"),
			s(&pb.ProcessingRequest{}),
			s(reqBody(chat, true), pickBody),
		}},
		{name: "a filter that only observes gets no answers", mode: buffered, steps: []step{
			s(&pb.ProcessingRequest{ObservabilityMode: true, Request: reqHeaders(true).Request}),
			s(&pb.ProcessingRequest{ObservabilityMode: true, Request: respHeaders(true, "200", "", 0).Request}),
		}},
		{name: "a filter for responses only", mode: noBody, steps: []step{
			s(respHeaders(false, "200", podA, 1), "response-headers"),
			s(respBody("data", true), "response-body"),
		}},
		{name: "Envoy answers for itself while the body is held", mode: duplex, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat[:10], false)),
			s(respHeaders(true, "504", "", 0), "response-headers"),
			s(reqBody(chat[10:], true)),
		}},
		{name: "Envoy answers for itself while it buffers the body", mode: buffered, steps: []step{
			s(reqHeaders(false), "headers"),
			s(respHeaders(false, "413", "", 0), "response-headers"),
			s(respBody("too large", true), "response-body"),
		}},
	}
	for _, tt := range tests {
		subtest(t, tt.name, func(t *testing.T) {
			g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB, podC))
			d := g.open(t)
			for i, s := range tt.steps {
				if i == 0 {
					in(s.send, tt.mode)
				}
				d.send(s.send)
				d.expect(s.want...)
			}
			d.stream.CloseSend()
			d.expectEnd(codes.OK)
			if got := d.echoed.String(); got != tt.body {
				t.Errorf("body came back as %q, want %q", got, tt.body)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	list := func(v ...any) *structpb.Value {
		l, _ := structpb.NewList(v)
		return structpb.NewListValue(l)
	}
	tests := []struct {
		name  string
		cfg   Config
		other string // default pool
		pods  []string
		steps []step
	}{
		{name: "an unknown model is 404", steps: []step{
			s(in(reqHeaders(false), buffered), "headers"),
			s(reqBody(`{"model":"gpt"}`, true), "immediate 404 unknown-model"),
		}},
		{name: "a missing model among several pools is 404", steps: []step{
			s(in(reqHeaders(false), duplex)),
			s(reqBody(`{}`, true), "immediate 404 unknown-model"),
		}},
		{name: "a missing model goes to the default pool", other: "m", steps: []step{
			s(in(reqHeaders(false), buffered), "headers"),
			s(reqBody(`{}`, true), pickBody),
		}},
		{name: "an adapter goes to its pool", steps: []step{
			s(in(reqHeaders(false), buffered), "headers"),
			s(reqBody(`{"model":"m-lora"}`, true), pickBody),
		}},
		{name: "broken JSON is 400 where the model is needed", steps: []step{
			s(in(reqHeaders(false), duplex)),
			s(reqBody(`{"model":`, true), "immediate 400 bad-json"),
		}},
		{name: "broken JSON behind the model is the model server's affair", steps: []step{
			s(in(reqHeaders(false), buffered), "headers"),
			s(reqBody(`{"model":"m", oops`, true), pickBody),
		}},
		{name: "broken JSON goes to the default pool", other: "m", steps: []step{
			s(in(reqHeaders(false), buffered), "headers"),
			s(reqBody("\x1f\x8b gzip", true), pickBody),
		}},
		{name: "a body above the limit is 413", cfg: Config{MaxBody: 20}, steps: []step{
			s(in(reqHeaders(false), duplex)),
			s(reqBody(chat[:15], false)),
			s(reqBody(chat[15:], false), "immediate 413 body-too-large"),
		}},
		{name: "a body of the limit passes", cfg: Config{MaxBody: 60}, steps: []step{
			s(in(reqHeaders(false), buffered), "headers"),
			s(reqBody(chat, true), pickBody),
		}},
		{name: "a body that is announced above the limit is 413 at once", cfg: Config{MaxBody: 20}, steps: []step{
			s(in(reqHeaders(false, "content-length", "21"), duplex), "immediate 413 body-too-large"),
		}},
		{name: "a pool without pods is 503", pods: []string{}, steps: []step{
			s(in(reqHeaders(false), buffered), "headers"),
			s(reqBody(chat, true), "immediate 503 no-pod"),
		}},
		{name: "a subset as a list", steps: []step{
			s(in(withSubset(reqHeaders(false), list(podC)), buffered), "headers"),
			s(reqBody(chat, true), "body endpoint="+podC+" warmpath/pick:"+podC+" envoy.lb/pool:m"),
		}},
		{name: "a subset as text, with the first message only", steps: []step{
			s(in(withSubset(reqHeaders(false), structpb.NewStringValue(podB+", "+podC)), duplex)),
			s(reqBody(chat, true), "headers endpoint="+podB+","+podC+" warmpath/pick:"+podB+","+podC+" envoy.lb/pool:m", "body echo 60!"),
		}},
		{name: "a subset with a later message", steps: []step{
			s(in(reqHeaders(false), buffered), "headers"),
			s(withSubset(reqBody(chat, true), list(podC)), "body endpoint="+podC+" warmpath/pick:"+podC+" envoy.lb/pool:m"),
		}},
		{name: "an empty subset is 503", steps: []step{
			s(in(withSubset(reqHeaders(false), list()), buffered), "headers"),
			s(reqBody(chat, true), "immediate 503 empty-subset"),
		}},
		{name: "a subset of strangers is 503", steps: []step{
			s(in(withSubset(reqHeaders(false), list("10.9.9.9:1")), buffered), "headers"),
			s(reqBody(chat, true), "immediate 503 empty-subset"),
		}},
		{name: "a subset that is no text and no list is 503", steps: []step{
			s(in(withSubset(reqHeaders(false), structpb.NewNumberValue(1)), buffered), "headers"),
			s(reqBody(chat, true), "immediate 503 empty-subset"),
		}},
		{name: "a subset in a header is not obeyed", steps: []step{
			s(in(reqHeaders(false, subsetKey, podC), buffered), "headers"),
			s(reqBody(chat, true), pickBody),
		}},
		{name: "a subset in a header is obeyed if the operator says so", cfg: Config{TrustSubsetHeader: true}, steps: []step{
			s(in(reqHeaders(false, subsetKey, podC), buffered), "headers"),
			s(reqBody(chat, true), "body endpoint="+podC+" warmpath/pick:"+podC+" envoy.lb/pool:m"),
		}},
		{name: "a destination from the client does not steer", steps: []step{
			s(in(reqHeaders(false, destinationKey, podC), buffered), "headers"),
			s(reqBody(chat, true), pickBody),
		}},
		{name: "EPP: one pod, also in envoy.lb, and a new choice of route", cfg: Config{EPP: true}, steps: []step{
			s(in(reqHeaders(false), duplex)),
			s(reqBody(chat, true), "headers endpoint="+podA+" clear warmpath/pick:"+podA+" envoy.lb/pick:"+podA, "body echo 60!"),
		}},
		{name: "the mode is the configured one if Envoy does not say it", cfg: Config{FallbackRequest: modeDuplex}, steps: []step{
			s(reqHeaders(false)),
			s(reqBody(chat, true), pickHeaders, "body echo 60!"),
		}},
		{name: "the mode may come after a message without content", steps: []step{
			s(&pb.ProcessingRequest{}),
			s(in(reqHeaders(false), duplex)),
			s(reqBody(chat, true), pickHeaders, "body echo 60!"),
		}},
		{name: "duplex: 504 at the deadline", cfg: Config{DecisionTimeout: 20 * time.Millisecond}, steps: []step{
			s(in(reqHeaders(false), duplex)),
			s(reqBody(chat, false), "immediate 504 decision-timeout"),
		}},
	}
	for _, tt := range tests {
		subtest(t, tt.name, func(t *testing.T) {
			if tt.pods == nil {
				tt.pods = []string{podA, podB, podC}
			}
			g := newGateway(t, tt.cfg, tt.other, newPool("m", firstTwo{}, tt.pods...), newPool("other", firstTwo{}, podC))
			d := g.open(t)
			for _, s := range tt.steps {
				d.send(s.send)
				d.expect(s.want...)
			}
			d.stream.CloseSend()
			d.expectEnd(codes.OK)
		})
	}
}
