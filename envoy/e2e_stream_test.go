package envoy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/extproc"
	"github.com/warmpath/warmpath/extproc/route"
	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/podstate/prefix"
	"github.com/warmpath/warmpath/proto/configpb"
	"github.com/warmpath/warmpath/scorers"
)

// edits are changes to the generated bootstrap: pairs of old and new text.
type edits []string

// newEditedRig is newRig with one pool, a, and no default pool, for Envoys that
// are set up in other ways than the generated one.
func newEditedRig(t *testing.T, mode string, cfg extproc.Config, change edits, pods ...*pod) *rig {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	profile, err := scorers.NewProfile("hyperpod", nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{
		addr:   lis.Addr().String(),
		tables: map[string]*podstate.Table{"a": podstate.NewTable(), "b": podstate.NewTable()},
		orders: map[string]*order{"a": {otherwise: profile}, "b": {otherwise: broken{}}},
	}
	var cfgs []*configpb.Pool
	var pools []extproc.Pool
	for _, name := range []string{"a", "b"} {
		cfgs = append(cfgs, &configpb.Pool{Name: name, Models: []string{"model-" + name}})
		pools = append(pools, extproc.Pool{Name: name, Table: g.tables[name], Index: prefix.NewIndex(1 << 20), Policy: g.orders[name]})
	}
	router, err := route.New(cfgs, "")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	cfg.DrainDelay = time.Millisecond
	server, err := extproc.New(cfg, router, pools, prometheus.NewRegistry(), log)
	if err != nil {
		t.Fatal(err)
	}
	g.eds = envoy.NewEDS([]string{"a", "b"}, log)
	g.eds.Register(server.Registrar())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(t.Context(), lis, nil) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	g.mustSetPods(t, "a", pods...)
	g.mustSetPods(t, "b")

	bootstrap, err := envoy.Bootstrap(&configpb.GatewayConfig{
		Server: &configpb.Server{Grpc: &configpb.GRPC{Tls: &configpb.TLS{Mode: cfg.TLS.Mode}}},
		Envoy:  &configpb.Envoy{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", BodyMode: mode},
	}, envoy.Target{Version: envoy.VersionAtHand(t), Pickers: []string{g.addr}})
	if err != nil {
		t.Fatal(err)
	}
	text := string(bootstrap)
	for i := 0; i < len(change); i += 2 {
		if !strings.Contains(text, change[i]) {
			t.Fatalf("the bootstrap has no %q to change", change[i])
		}
		text = strings.ReplaceAll(text, change[i], change[i+1])
	}
	r := &rig{gateway: g, envoy: startEnvoy(t, []byte(text))}
	r.url = "http://" + r.envoy.Listen
	r.awaitPods(t)
	t.Cleanup(func() { r.checkIdle(t) })
	return r
}

// broken is a policy with a bug.
type broken struct{}

func (broken) Choose(*scorers.Request, []podstate.Candidate) (int, int) { panic("test") }

// The modes that the generated bootstrap does not use: requests arrive whole at
// the pod that was picked, and responses stream.
func TestEveryBodyMode(t *testing.T) {
	const (
		buffered = "request_body_mode: BUFFERED"
		duplex   = "request_body_mode: FULL_DUPLEX_STREAMED"
		noBody   = "response_body_mode: NONE"
	)
	modes := []struct {
		name, base string
		change     edits
		seesBody   bool // so that the model selects the pool
	}{
		{"NONE", "BUFFERED", edits{buffered, "request_body_mode: NONE"}, false},
		{"STREAMED", "BUFFERED", edits{buffered, "request_body_mode: STREAMED"}, false},
		{"STREAMED without waiting", "BUFFERED", edits{buffered, "request_body_mode: STREAMED",
			"allow_mode_override: true", "send_body_without_waiting_for_header_response: true"}, true},
		{"BUFFERED_PARTIAL", "BUFFERED", edits{buffered, "request_body_mode: BUFFERED_PARTIAL"}, true},
		{"duplex both ways", "FULL_DUPLEX_STREAMED", edits{noBody, "response_body_mode: FULL_DUPLEX_STREAMED"}, true},
		{"BUFFERED, response STREAMED", "BUFFERED", edits{noBody, "response_body_mode: STREAMED"}, true},
		{"BUFFERED, response BUFFERED_PARTIAL", "BUFFERED", edits{noBody, "response_body_mode: BUFFERED_PARTIAL"}, true},
		{"BUFFERED, response duplex", "BUFFERED", edits{noBody, "response_body_mode: FULL_DUPLEX_STREAMED"}, true},
	}
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			first, second := newPod(t, "first"), newPod(t, "second")
			r := newEditedRig(t, m.base, extproc.Config{}, m.change, first, second)
			if !m.seesBody { // then there can be one pool only
				r = onePool(t, m.base, m.change, first, second)
			}
			r.orders["a"].pods = []*pod{second}
			for _, http2 := range []bool{false, true} {
				c := newClient(t, http2)
				for _, size := range []int{200, 20 << 10, 300 << 10, 1500 << 10} {
					body := `{"model":"model-a","prompt":"` + strings.Repeat("x", size) + `"}`
					if got := r.mustTell(t, c, body); got.Pod != "second" {
						t.Fatalf("%d bytes went to %s, want the pod that was picked", size, got.Pod)
					}
				}
				resp, err := c.Get(r.url + "/v1/models")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if m.seesBody && resp.StatusCode != http.StatusNotFound {
					t.Errorf("GET with two pools and no default: %d, want 404", resp.StatusCode)
				}
			}
			if strings.Contains(m.name, "response BUFFERED") {
				return // it holds events back until the end
			}
			next := make(chan string)
			second.does(events(next))
			resp, err := r.post(t.Context(), newClient(t, false), chat("a"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			for i := range 3 {
				next <- fmt.Sprint(i)
				if line, err := lines.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
					t.Fatalf("event %d: %q, %v", i, line, err)
				}
				lines.ReadString('\n')
			}
			close(next)
			if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
				t.Errorf("after the last event: %q, %v", rest, err)
			}
		})
	}
}

// onePool is a rig whose only pool takes requests without a model.
func onePool(t *testing.T, mode string, change edits, pods ...*pod) *rig {
	t.Helper()
	g := startGateway(t, "127.0.0.1:0", map[string][]*pod{"a": pods}, extproc.Observe{})
	t.Cleanup(g.stop)
	bootstrap, err := envoy.Bootstrap(&configpb.GatewayConfig{
		Envoy: &configpb.Envoy{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", BodyMode: mode},
	}, envoy.Target{Version: envoy.VersionAtHand(t), Pickers: []string{g.addr}})
	if err != nil {
		t.Fatal(err)
	}
	text := string(bootstrap)
	for i := 0; i < len(change); i += 2 {
		text = strings.ReplaceAll(text, change[i], change[i+1])
	}
	r := &rig{gateway: g, envoy: startEnvoy(t, []byte(text))}
	r.url = "http://" + r.envoy.Listen
	r.awaitPods(t)
	t.Cleanup(func() { r.checkIdle(t) })
	return r
}

// A refusal reaches the client in OpenAI's form, through Envoy's rules for
// headers, and no pod sees the request.
func TestRefusalReachesTheClient(t *testing.T) {
	tests := []struct {
		reason string
		body   string
		status int
	}{
		{"unknown-model", `{"model":"none"}`, 404},
		{"unknown-model", `{}`, 404},
		{"bad-json", `{"model"`, 400},
		{"internal-error", chat("b"), 500},
		{"body-too-large", `{"model":"model-a","prompt":"` + strings.Repeat("x", 1<<20) + `"}`, 413},
		{"no-pod", chat("a"), 503},
	}
	eachMode(t, func(t *testing.T, mode string) {
		p := newPod(t, "p")
		r := newEditedRig(t, mode, extproc.Config{MaxBody: 1 << 20}, nil, p)
		r.orders["a"].pods = []*pod{newDeafPod(t)} // a pod that is no member
		for _, tt := range tests {
			resp, err := r.post(t.Context(), newClient(t, false), tt.body)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var e struct {
				Error struct{ Message, Type, Code string }
			}
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code == "" {
				t.Errorf("%s: body %+v, %v", tt.reason, e, err)
			}
			if resp.StatusCode != tt.status || resp.Header.Get("x-gateway-reason") != tt.reason ||
				resp.Header.Get("content-type") != "application/json" {
				t.Errorf("%s: status %d, headers %v; want %d", tt.reason, resp.StatusCode, resp.Header, tt.status)
			}
		}
		if n := p.hits.Load(); n != 0 {
			t.Errorf("%d of the requests reached the pod", n)
		}
	})
}

// A body that does not come to its end in duplex mode, where Envoy has no timer
// for it, meets the server's own deadline.
func TestDeadlineInDuplex(t *testing.T) {
	r := newEditedRig(t, "FULL_DUPLEX_STREAMED", extproc.Config{DecisionTimeout: 200 * time.Millisecond}, nil, newPod(t, "p"))
	body, stalled := io.Pipe()
	defer stalled.Close()
	go stalled.Write([]byte(`{"model":`))
	resp, err := newClient(t, false).Post(r.url+"/v1/completions", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusGatewayTimeout || resp.Header.Get("x-gateway-reason") != "decision-timeout" {
		t.Errorf("status %d, reason %q; want 504 decision-timeout", resp.StatusCode, resp.Header.Get("x-gateway-reason"))
	}
}

// Envoy's own timer ends a request that we hold: its answer goes through the
// response phase, from 1.37 on, and must not be delayed.
func TestEnvoyGivesUpWhileWeHold(t *testing.T) {
	r := newEditedRig(t, "FULL_DUPLEX_STREAMED", extproc.Config{}, edits{"stream_idle_timeout: 3600s", "stream_idle_timeout: 1s",
		"idle_timeout: 3600s}", "idle_timeout: 1s}", "                  idle_timeout: 3600s", "                  idle_timeout: 1s",
		"message_timeout: 10s", "message_timeout: 250s"}, newPod(t, "p")) // for which it would be delayed, longer than the client waits
	body, stalled := io.Pipe()
	defer stalled.Close()
	go stalled.Write([]byte(`{"model":`))
	resp, err := newClient(t, false).Post(r.url+"/v1/completions", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusGatewayTimeout && resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d, want 504 or 408", resp.StatusCode)
	}
}

// Pods that fail are known by it, whether a retry saved the request or not.
func TestFailuresAreLearned(t *testing.T) {
	begun := time.Now()
	out := func(r *rig, p *pod) string { return r.outAt(begun)[p.addr.String()] }
	eachMode(t, func(t *testing.T, mode string) {
		deaf, good, sick, spare := newDeafPod(t), newPod(t, "good"), newPod(t, "sick"), newPod(t, "spare")
		sick.does(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) })
		r := newEditedRig(t, mode, extproc.Config{}, nil, deaf, good, sick, spare)
		c := newClient(t, false)

		r.orders["a"].pods = []*pod{deaf, good}
		for range 3 {
			if got := r.mustTell(t, c, chat("a")); got.Pod != "good" {
				t.Fatalf("served by %s", got.Pod)
			}
		}
		if got := out(r, deaf); got != podstate.OutEjected {
			t.Errorf("a pod that refused three times is %q, want ejected", got)
		}
		if got := out(r, good); got != "" {
			t.Errorf("the pod that served is %q", got)
		}

		r.orders["a"].pods = []*pod{sick, good}
		for range 3 {
			if got := r.status(t, c, chat("a")); got != 500 {
				t.Fatalf("status %d, want the pod's 500", got)
			}
		}
		if got := out(r, sick); got != podstate.OutEjected {
			t.Errorf("a pod that answered 500 three times is %q, want ejected", got)
		}
	})
}
