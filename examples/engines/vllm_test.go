//go:build vllm && linux

package engines_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warmpath/warmpath/examples/engines"
	"github.com/warmpath/warmpath/examples/rig"
)

// pythonEnv is the interpreter of vLLM, which `make vllm-test` installs.
const pythonEnv = "VLLM_PYTHON"

// startVLLM runs a vLLM, which serves under the rig's name for the model.
func startVLLM(t *testing.T, args ...string) *engines.Server {
	t.Helper()
	python := os.Getenv(pythonEnv)
	if python == "" {
		t.Fatalf("$%s is not set: run `make vllm-test`", pythonEnv)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(python, append([]string{"vllm.py", "--port", port, "--served-model-name", rig.Model}, args...)...)
	cmd.Env = append(os.Environ(), "VLLM_SERVER_DEV_MODE=1") // for /sleep
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	begin := time.Now()
	s, err := engines.Start(ctx, cmd, addr)
	if cmd.Process != nil {
		t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // its engine and workers, too
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("vLLM started in %v", time.Since(begin).Round(time.Second))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("vLLM has printed:\n%s", s.Log())
		}
		s.Close()
	})
	return s
}

// pool is pods of which one is a vLLM, behind warmpath and a real Envoy.
type pool struct {
	*rig.Rig
	vllm string
}

func newPool(t *testing.T, servers ...*engines.Server) *pool {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
	}
	p := &pool{startRig(t, rig.Options{Servers: addrs, Warmpath: warmpath, Scrape: 500 * time.Millisecond}), addrs[0]}
	eventually(t, "warmpath has read all servers", func() bool {
		for _, pod := range pods(t, p.Admin) {
			if len(pod.Reported) == 0 {
				return false
			}
		}
		return true
	})
	return p
}

// pod is the vLLM as warmpath sees it.
func (p *pool) pod(t *testing.T) pod { return pods(t, p.Admin)[p.vllm] }

func TestVLLM(t *testing.T) {
	s := startVLLM(t, "--enable-lora", "--max-loras", "2", "--max-cpu-loras", "4", "--max-num-seqs", "8",
		"--enable-server-load-tracking", "--enable-prompt-tokens-details", "--shutdown-timeout", "300")
	other := startOther(t)
	alone, both := newPool(t, s), newPool(t, s, other)
	// The first requests of an engine are slow, and are no measure.
	ask(t, alone.Warmpath, chat(rig.Model, digits(300), 5, false))

	t.Run("inspect explains it", func(t *testing.T) { inspectVLLM(t, s.Addr) })
	t.Run("streams and caches are understood", func(t *testing.T) { vllmUsage(t, alone) })
	t.Run("an abort gives the reservation back", func(t *testing.T) { vllmAbort(t, alone) })
	t.Run("adapters in slots are known, and who waits for one", func(t *testing.T) { vllmAdapters(t, alone) })
	t.Run("a long prompt holds up nobody who can go elsewhere", func(t *testing.T) { vllmPrefill(t, both) })
	t.Run("asleep, it gets no requests", func(t *testing.T) { vllmSleep(t, alone, both) })
	t.Run("draining, it is left out after three failures", func(t *testing.T) { vllmDrain(t, s, alone, both, other.Addr) })
}

// startOther runs a llama.cpp that is about as slow.
func startOther(t *testing.T) *engines.Server {
	t.Helper()
	s, err := engines.StartLlamaCpp(t.Context(), engines.Options{Script: "llamacpp.py",
		Args: []string{"--alias", "other", "--hidden", "512", "--layers", "8", "--context", "8192"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func inspectVLLM(t *testing.T, addr string) {
	// One that runs makes the load endpoint trustworthy.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := stream(ctx, t, addr, chat("ad0", "the value of", 1000, true))
	if err := events(body, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), warmpath, "inspect", "http://"+addr).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("\n%s", out)
	text := strings.Join(strings.Fields(string(out)), " ")
	for _, want := range []string{
		" is vllm ", "asked /metrics/ for the wanted series only",
		"running 1 requests vllm:num_requests_running", "waiting 0 requests vllm:num_requests_waiting", "load 1 requests at this instant /load",
		"vllm:kv_cache_usage_perc", "blockTokens 128 tokens", "maxModelLen 8192 tokens /v1/models",
		"asleep false vllm:engine_sleep_state", "models " + rig.Model + " /v1/models", "loadable ad0, ad1, ad2 /v1/models",
		"adapters ad0 vllm:lora_requests_info", "maxAdapters 2 slots vllm:lora_requests_info",
		"note: response headers mean accepted",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("inspect does not say %q", want)
		}
	}
}

func vllmUsage(t *testing.T, p *pool) {
	prompt := chat(rig.Model, words(1, 1000), 3, false)
	first, second := ask(t, p.Warmpath, prompt), ask(t, p.Warmpath, prompt)
	if first.Usage.Details.Cached != 0 || second.Usage.Details.Cached < 800 { // whole blocks of 128
		t.Errorf("of the same prompt, %d and then %d tokens were cached", first.Usage.Details.Cached, second.Usage.Details.Cached)
	}
	actual := metric(t, p.Admin, "warmpath_extproc_cached_tokens_actual_total")
	if int(actual) != second.Usage.Details.Cached {
		t.Errorf("warmpath has learned of %v cached tokens, the engine said %d", actual, second.Usage.Details.Cached)
	}

	sum := func() float64 { return metric(t, p.Admin, "warmpath_extproc_first_token_seconds_sum") }
	var took, seen time.Duration
	const prompts = 8
	for i := range prompts {
		before, begin := sum(), time.Now()
		first, done := time.Duration(0), false
		err := events(stream(t.Context(), t, p.Warmpath, chat(rig.Model, words(30+i, 600), 5, true)), func(data string) bool {
			if first == 0 {
				first = time.Since(begin)
			}
			done = data == "[DONE]"
			return true
		})
		if err != nil || !done {
			t.Errorf("error %v, at its end: %v", err, done)
		}
		eventually(t, "warmpath has seen the first token", func() bool { return sum() > before })
		took += first
		seen += time.Duration((sum() - before) * float64(time.Second))
	}
	if seen < took/2 {
		t.Errorf("warmpath takes %v for the time to the first token of all prompts, which was %v", seen, took)
	}
	speed := p.pod(t).Speed
	t.Logf("first token of 600 tokens: %v for the client, %v for warmpath, %v predicted for the next one",
		took/prompts, seen/prompts, time.Duration(float64(time.Second)*(speed.Step+600*speed.Token)))
}

func vllmAbort(t *testing.T, p *pool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	err := events(stream(ctx, t, p.Warmpath, chat(rig.Model, "the value of", 4000, true)), func(string) bool { n++; return n < 5 })
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	released := eventually(t, "warmpath counts no request", func() bool { return inflight(t, p.Admin) == 0 })
	freed := eventually(t, "vLLM runs none", func() bool { return metric(t, p.vllm, "vllm:num_requests_running") == 0 })
	t.Logf("after an abort, the reservation was given back within %v, the engine was free within %v more", released, freed)
}

// With several API servers, series cannot be asked for by name, and some are
// absent until the first request.
func TestVLLMWithTwoAPIServers(t *testing.T) {
	s := startVLLM(t, "--api-server-count", "2", "--max-num-seqs", "8")
	p := newPool(t, s)
	if a := ask(t, p.Warmpath, chat(rig.Model, "the value of", 3, false)); a.Usage.Output != 3 {
		t.Errorf("%+v", a)
	}
	eventually(t, "its load is read", func() bool { _, ok := p.pod(t).Reported["running"]; return ok })
	if pod := p.pod(t); pod.Engine != "vllm" || pod.Out != "" {
		t.Errorf("%+v", pod)
	}
	out, err := exec.CommandContext(t.Context(), warmpath, "inspect", "http://"+s.Addr).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("\n%s", out)
	text := strings.Join(strings.Fields(string(out)), " ")
	for _, want := range []string{
		" is vllm ", "asked /metrics for all series", "running 0 requests vllm:num_requests_running",
		"note: the pod sends all of its series, or none, when asked for some",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("inspect does not say %q", want)
		}
	}
}
