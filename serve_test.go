package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// gateway is a running process of warmpath.
type gateway struct {
	t                   *testing.T
	cmd                 *exec.Cmd
	stderr              *bytes.Buffer // read it after the end only
	grpc, health, admin string
}

// startGateway serves the pools and waits until it is ready.
func startGateway(t *testing.T, rest string) *gateway {
	t.Helper()
	addrs := freePorts(t, 3)
	cmd, _, stderr := command(t, "serve", "--debug", "--config", writeConfig(t, addrs, rest))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, cmd: cmd, stderr: stderr, grpc: addrs[0], health: addrs[1], admin: addrs[2]}
	t.Cleanup(func() {
		if g.cmd.ProcessState == nil {
			g.cmd.Process.Kill()
			g.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("log of warmpath:\n%s", g.stderr)
		}
	})
	g.eventually("ready", func() bool { code, _ := g.get("/readyz"); return code == 200 })
	return g
}

func (g *gateway) get(path string) (code int, body string) {
	resp, err := (&http.Client{Timeout: patience}).Get("http://" + g.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func (g *gateway) eventually(what string, ok func() bool) {
	g.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if ok() {
			return
		}
	}
	g.t.Fatalf("not %s after %v", what, patience)
}

// podView is what the tests read of /pods.
type podView struct {
	Name     string
	Address  string
	Age      *float64 `json:"ageSeconds"`
	Charge   struct{ Requests int }
	Reported map[string]any
}

func (g *gateway) pods() (pods []podView) {
	g.t.Helper()
	var view struct{ Pools []struct{ Pods []podView } }
	code, body := g.get("/pods")
	if err := json.Unmarshal([]byte(body), &view); code != 200 || err != nil {
		g.t.Fatalf("/pods: %d, %v: %s", code, err, body)
	}
	for _, p := range view.Pools {
		pods = append(pods, p.Pods...)
	}
	return pods
}

func (g *gateway) inFlight() (n int) {
	for _, p := range g.pods() {
		n += p.Charge.Requests
	}
	return n
}

func (g *gateway) dial(addr string) *grpc.ClientConn {
	g.t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	return conn
}

type stream = extprocpb.ExternalProcessor_ProcessClient

// say sends a message and returns the answer.
func (g *gateway) say(s stream, m *extprocpb.ProcessingRequest) *extprocpb.ProcessingResponse {
	g.t.Helper()
	if err := s.Send(m); err != nil {
		g.t.Fatal(err)
	}
	answer, err := s.Recv()
	if err != nil {
		g.t.Fatal(err)
	}
	return answer
}

// open begins a stream as Envoy in BUFFERED mode does for a chat completion.
func (g *gateway) open(conn *grpc.ClientConn) stream {
	g.t.Helper()
	s, err := extprocpb.NewExternalProcessorClient(conn).Process(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	header := func(k, v string) *corepb.HeaderValue { return &corepb.HeaderValue{Key: k, RawValue: []byte(v)} }
	g.say(s, &extprocpb.ProcessingRequest{
		ProtocolConfig: &extprocpb.ProtocolConfiguration{RequestBodyMode: filterpb.ProcessingMode_BUFFERED},
		Request: &extprocpb.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocpb.HttpHeaders{Headers: &corepb.HeaderMap{
			Headers: []*corepb.HeaderValue{
				header(":method", "POST"), header(":path", "/v1/chat/completions"), header("content-type", "application/json"),
			}}}},
	})
	return s
}

// decide sends the body, and returns the pod that was picked, or the status of the
// refusal.
func (g *gateway) decide(s stream, body string) string {
	g.t.Helper()
	answer := g.say(s, &extprocpb.ProcessingRequest{
		Request: &extprocpb.ProcessingRequest_RequestBody{RequestBody: &extprocpb.HttpBody{Body: []byte(body), EndOfStream: true}},
	})
	if refusal := answer.GetImmediateResponse(); refusal != nil {
		return refusal.GetStatus().GetCode().String()
	}
	for _, h := range answer.GetRequestBody().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
			first, _, _ := strings.Cut(string(h.GetHeader().GetRawValue()), ",")
			return first
		}
	}
	g.t.Fatalf("no destination in %v", answer)
	return ""
}

// ask does both.
func (g *gateway) ask(conn *grpc.ClientConn, body string) (s stream, pod string) {
	g.t.Helper()
	s = g.open(conn)
	return s, g.decide(s, body)
}

// fakePod exposes what a vLLM server would with so many requests waiting.
func fakePod(t *testing.T, waiting int) (addr string) {
	t.Helper()
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/metrics") {
			http.NotFound(w, r)
			return
		}
		const labels = `{engine="0",model_name="m"}`
		fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running%s %d\n", labels, min(waiting, 8))
		fmt.Fprintf(w, "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting%s %d\n", labels, waiting)
		// With counters, speeds are learned from them, and not from how long this
		// machine takes.
		fmt.Fprintf(w, "# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total%s 0\n", labels)
		fmt.Fprintf(w, "# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total%s 0\n", labels)
		fmt.Fprintf(w, "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc%s %g\n", labels, min(0.9, float64(waiting)/10))
	}))
	t.Cleanup(pod.Close)
	return pod.Listener.Addr().String()
}

func TestServe(t *testing.T) {
	busy, idle, other := fakePod(t, 50), fakePod(t, 0), fakePod(t, 0)
	g := startGateway(t, fmt.Sprintf(`
pools:
- {name: a, models: [model-a], discovery: {static: [%q, %q]}, scrape: {interval: 20s}} # news that stay fresh while the machine stalls
- {name: b, models: [model-b], discovery: {static: [%q]}}
`, busy, idle, other))
	g.eventually("scraped", func() bool {
		for _, p := range g.pods() {
			if p.Age == nil {
				return false
			}
		}
		return len(g.pods()) == 3
	})

	conn := g.dial(g.grpc)
	stream, pod := g.ask(conn, `{"model": "model-a", "messages": [{"role": "user", "content": "hello"}]}`)
	if pod != idle {
		t.Errorf("model-a went to %s, want the idle pod %s", pod, idle)
	}
	if n := g.inFlight(); n != 1 {
		t.Errorf("%d requests in flight, want 1", n)
	}
	stream.CloseSend()
	g.eventually("released", func() bool { return g.inFlight() == 0 })

	stream, pod = g.ask(conn, `{"model": "model-b", "prompt": "hello"}`)
	if pod != other {
		t.Errorf("model-b went to %s, want the pod of its pool, %s", pod, other)
	}
	stream.CloseSend()
	if _, status := g.ask(conn, `{"model": "model-c", "prompt": "hello"}`); status != "NotFound" {
		t.Errorf("an unknown model was answered %s, want NotFound", status)
	}

	if code, report := g.get("/pods/" + busy + "/inspect"); code != 200 || !strings.Contains(report, "vllm:num_requests_waiting") {
		t.Errorf("inspect: %d %s", code, report)
	}

	_, metrics := g.get("/metrics")
	for _, line := range []string{
		`warmpath_extproc_decisions_total{pool="a",reason="picked"} 1`,
		`warmpath_extproc_decisions_total{pool="b",reason="picked"} 1`,
		`warmpath_scrape_results_total{outcome="ok",pool="a"}`,
		`go_goroutines`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("/metrics has no %s", line)
		}
	}

	for _, addr := range []string{g.grpc, g.health} {
		answer, err := healthpb.NewHealthClient(g.dial(addr)).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil || answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health at %s: %v, %v", addr, answer, err)
		}
	}
	_, last := g.get("/decisions/last")
	id := regexp.MustCompile(`"id":"([0-9a-f]{16})"`).FindStringSubmatch(last)
	g.stops(conn, syscall.SIGTERM)
	if id == nil || !strings.Contains(g.stderr.String(), "pool=b pod="+other+" decision="+id[1]+"\n") {
		t.Errorf("the log does not lead to the last decision, %s\nlog:\n%s", last, g.stderr)
	}
}

// stops asks the process to end while a stream is open whose request has been
// decided, which is told apart from a crash by a clean end, and one whose request
// has not: the end waits for that.
func (g *gateway) stops(conn *grpc.ClientConn, by syscall.Signal) {
	g.t.Helper()
	late := g.open(conn)
	stream, _ := g.ask(conn, `{"model": "model-a", "prompt": "still being answered"}`)
	if err := g.cmd.Process.Signal(by); err != nil {
		g.t.Fatal(err)
	}
	g.eventually("unready", func() bool { code, _ := g.get("/readyz"); return code == 503 })
	if by == syscall.SIGHUP {
		if err := g.cmd.Process.Signal(by); err != nil {
			g.t.Fatal(err)
		}
	}
	if pod := g.decide(late, `{"model": "model-b", "prompt": "late"}`); !strings.Contains(pod, ":") {
		g.t.Errorf("a request that had begun before the end went to %q, want a pod", pod)
	}
	for _, s := range []extprocpb.ExternalProcessor_ProcessClient{stream, late} {
		if _, err := s.Recv(); err != io.EOF {
			g.t.Errorf("an open stream ended with %v, want io.EOF: a clean close", err)
		}
	}
	if code := ended(g.t, g.cmd); code != 0 {
		g.t.Errorf("exit code %d, want 0", code)
	}
	if log := g.stderr.String(); strings.Contains(log, "still being answered") || !strings.Contains(log, "msg=stopped") {
		g.t.Errorf("log:\n%s", log)
	}
}

// A terminal that closes hangs up, and so does its shell.
func TestServeDrainsOnHangups(t *testing.T) {
	hangupsMatter(t)
	g := startGateway(t, fmt.Sprintf("pools: [{name: a, models: [model-a, model-b], discovery: {static: [%q]}}]", fakePod(t, 0)))
	g.stops(g.dial(g.grpc), syscall.SIGHUP)
}

func TestServeFollowsTheFileOfPods(t *testing.T) {
	first, second := fakePod(t, 0), fakePod(t, 0)
	file := filepath.Join(t.TempDir(), "pods.yaml")
	write := func(addrs ...string) {
		text := "endpoints:\n"
		for i, a := range addrs {
			host, port, _ := net.SplitHostPort(a)
			text += fmt.Sprintf("- {name: pod-%d, address: %s, port: %q}\n", i, host, port)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first)
	g := startGateway(t, fmt.Sprintf("pools: [{name: a, models: [m], discovery: {file: %q}}]", file))
	if p := g.pods(); len(p) != 1 || p[0].Address != first || p[0].Name != "pod-0" {
		t.Errorf("a gateway that is ready has pods %v, want %s", p, first)
	}
	conn := g.dial(g.grpc)
	stream, pod := g.ask(conn, `{"model": "m", "prompt": "hello"}`)
	if pod != first {
		t.Errorf("picked %s, want %s", pod, first)
	}
	write(second)
	g.eventually("changed", func() bool { p := g.pods(); return len(p) == 1 && p[0].Address == second })
	if _, pod := g.ask(conn, `{"model": "m", "prompt": "hello"}`); pod != second {
		t.Errorf("picked %s after the change, want %s", pod, second)
	}
	stream.CloseSend() // of a pod that has left: its release harms nobody
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the stream of the pod that has left ended with %v", err)
	}
	if n := g.inFlight(); n != 1 {
		t.Errorf("%d requests in flight, want 1", n)
	}
}
