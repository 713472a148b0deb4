package extproc

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
)

// OpenAI's clients read the error from the body, proxies from the headers.
func TestRefusalReply(t *testing.T) {
	want := map[reason]uint32{
		badJSON: 400, unknownModel: 404, tooLarge: 413, crashed: 500,
		noPod: 503, emptySubset: 503, draining: 503, timedOut: 504,
	}
	if len(want) != len(refusals) {
		t.Errorf("%d reasons have a status, want %d", len(refusals), len(want))
	}
	for r, status := range want {
		var got pb.ProcessingResponse
		if err := proto.Unmarshal(refusalReply(&refusal{reason: r, message: `say "why"`}).head, &got); err != nil {
			t.Fatal(err)
		}
		if got.GetDynamicMetadata() != nil {
			t.Errorf("%s: metadata of no decision: %v", r, got.GetDynamicMetadata())
		}
		im := got.GetImmediateResponse()
		if code := uint32(im.GetStatus().GetCode()); code != status {
			t.Errorf("%s: status %d, want %d", r, code, status)
		}
		headers := map[string]string{}
		for _, h := range im.GetHeaders().GetSetHeaders() {
			headers[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
		}
		if headers["content-type"] != "application/json" || headers["x-gateway-reason"] != string(r) {
			t.Errorf("%s: headers %v", r, headers)
		}
		if strings.ContainsAny(im.GetDetails(), " \n") || !strings.Contains(im.GetDetails(), string(r)) {
			t.Errorf("%s: details %q must be one word that names the reason", r, im.GetDetails())
		}
		var body struct {
			Error struct{ Message, Type, Code string }
		}
		if err := json.Unmarshal(im.GetBody(), &body); err != nil {
			t.Fatalf("%s: body %s: %v", r, im.GetBody(), err)
		}
		if body.Error.Message != `say "why"` || body.Error.Code == "" ||
			!slices.Contains([]string{"invalid_request_error", "server_error"}, body.Error.Type) {
			t.Errorf("%s: error %+v", r, body.Error)
		}
	}
}

func TestRefusalNamesTheDecision(t *testing.T) {
	var got pb.ProcessingResponse
	if err := proto.Unmarshal(refusalReply(&refusal{reason: noPod, decision: 255}).head, &got); err != nil {
		t.Fatal(err)
	}
	own := got.GetDynamicMetadata().GetFields()[ownSpace].GetStructValue().GetFields()
	if id := own[decisionKey].GetStringValue(); id != "00000000000000ff" || got.GetImmediateResponse() == nil {
		t.Errorf("id %q in %v", id, &got)
	}
}

// What a client sends as model goes back to it in an error, cut short.
func TestRefusalQuotesTheModel(t *testing.T) {
	r := unroutable(strings.Repeat("é", 500), errUnrouted{})
	if !json.Valid(r.body()) || len(r.message) > 500 {
		t.Errorf("message of %d bytes", len(r.message))
	}
}

type errUnrouted struct{}

func (errUnrouted) Error() string { return "no pool serves this model" }

// A log goes to more people than a prompt may.
func TestLogTellsOutcomesOnly(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
		var text strings.Builder
		g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA), newPool("other", firstTwo{}))
		g.server.log = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: level}))
		for _, body := range []string{
			`{"model":"m","prompt":"secret"}`, `{"model":"other","prompt":"secret"}`, `{"model":"secret"}`, `{secret`,
		} {
			d := g.open(t)
			d.send(in(reqHeaders(false, "authorization", "secret"), duplex))
			d.send(reqBody(body, true))
			if _, err := d.stream.Recv(); err != nil {
				t.Fatal(err)
			}
			d.stream.CloseSend()
		}
		g.stop()
		<-g.ended
		g.ended <- nil // for the cleanup
		var want []string
		if level == slog.LevelDebug {
			want = []string{
				"outcome=picked pool=m pod=" + podA + " decision=[0-9a-f]{16}", "outcome=no-pod pool=other decision=[0-9a-f]{16}",
				"outcome=unknown-model", "outcome=bad-json", // without a decision
			}
		}
		got := text.String()
		for _, w := range want {
			if !regexp.MustCompile(w + "\n").MatchString(got) {
				t.Errorf("%v: no line with %q in:\n%s", level, w, got)
			}
		}
		if want == nil && got != "" || strings.Contains(got, "secret") {
			t.Errorf("%v: got\n%s", level, got)
		}
	}
}
