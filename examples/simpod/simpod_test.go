package simpod

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/scorers/sim/engine"
)

func open(t *testing.T, edit func(*Config)) *Server {
	t.Helper()
	e, err := engine.Preset("h100-8b")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Addr: "127.0.0.1:0", Model: "base", Adapters: []string{"lora-a", "lora-b"}, Engine: e, Speedup: 20}
	if edit != nil {
		edit(&cfg)
	}
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func call(t *testing.T, s *Server, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// eventually waits for what another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("after half a minute still not: %s", what)
		}
	}
}

func TestStreamIsFramedAsByVLLM(t *testing.T) {
	s := open(t, nil)
	for _, tt := range []struct{ path, body, id, object string }{
		{"/v1/chat/completions", `{"model":"base","messages":[{"role":"user","content":"hello"}],"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`, "chatcmpl-", "chat.completion.chunk"},
		{"/v1/completions", `{"model":"base","prompt":"hello","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`, "cmpl-", "text_completion"},
	} {
		_, text := call(t, s, "POST", tt.path, tt.body)
		events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
		if events[len(events)-1] != "data: [DONE]" {
			t.Fatalf("%s ends with %q", tt.path, events[len(events)-1])
		}
		var output, role, finish string
		var usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		for i, e := range events[:len(events)-1] {
			var v struct {
				ID, Object string
				Choices    []struct {
					Delta  struct{ Role, Content string }
					Text   string
					Finish *string `json:"finish_reason"`
				}
				Usage json.RawMessage
			}
			data, ok := strings.CutPrefix(e, "data: ")
			if err := json.Unmarshal([]byte(data), &v); !ok || err != nil {
				t.Fatalf("%s: event %q: %v", tt.path, e, err)
			}
			if !strings.HasPrefix(v.ID, tt.id) || v.Object != tt.object {
				t.Errorf("%s: id %q, object %q", tt.path, v.ID, v.Object)
			}
			if len(v.Choices) == 0 {
				if i != len(events)-2 {
					t.Errorf("%s: usage is event %d of %d, not the last", tt.path, i, len(events)-1)
				}
				if err := json.Unmarshal(v.Usage, &usage); err != nil {
					t.Fatal(err)
				}
				continue
			}
			c := v.Choices[0]
			output += c.Text + c.Delta.Content
			role += c.Delta.Role
			if c.Finish != nil {
				finish = *c.Finish
			}
		}
		if len(output) != 5*tokenBytes || finish != "length" || usage.Completion != 5 || usage.Prompt == 0 {
			t.Errorf("%s: output %q, finish %q, usage %+v", tt.path, output, finish, usage)
		}
		if want := map[bool]string{true: "assistant"}[tt.object == "chat.completion.chunk"]; role != want {
			t.Errorf("%s: role %q, want %q", tt.path, role, want)
		}
	}
}

func TestHeadersComeBeforeTheFirstToken(t *testing.T) {
	body := fmt.Sprintf(`{"prompt":%q,"stream":true}`, strings.Repeat("word ", 20_000))
	begin := func(s *Server) io.Reader {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+s.Addr+"/v1/completions", strings.NewReader(body))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.Body
	}
	slow := open(t, func(c *Config) { c.Speedup = 0.01 }) // a minute of prefill
	begin(slow)
	if r := slow.Report(); r.PromptTokens != 0 {
		t.Error("the prompt had been processed when the headers came")
	}
	s := open(t, nil)
	line, err := bufio.NewReader(begin(s)).ReadString('\n')
	if r := s.Report(); err != nil || r.PromptTokens == 0 || !strings.HasPrefix(line, "data: {") {
		t.Errorf("first line %q, error %v, %d prompt tokens processed", line, err, r.PromptTokens)
	}
}

func TestNextTurnFindsPromptAndAnswerCached(t *testing.T) {
	s := open(t, nil)
	type msg struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	ask := func(model string, msgs []msg) (content string, prompt, cached int) {
		b, _ := json.Marshal(map[string]any{"model": model, "messages": msgs, "max_tokens": 200})
		status, text := call(t, s, "POST", "/v1/chat/completions", string(b))
		var v struct {
			Choices []struct{ Message msg }
			Usage   struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(text), &v); status != 200 || err != nil {
			t.Fatalf("status %d, %v: %s", status, err, text)
		}
		return v.Choices[0].Message.Content, v.Usage.Prompt, v.Usage.Details.Cached
	}
	turn := []msg{{"system", strings.Repeat("be kind ", 200)}, {"user", "hello"}}
	answer, n, cached := ask("base", turn)
	if cached != 0 {
		t.Errorf("first turn: %d tokens cached", cached)
	}
	turn = append(turn, msg{"assistant", answer}, msg{"user", "go on, please"})
	_, _, cached = ask("base", turn)
	if low := n + 200 - 2*16; cached < low {
		t.Errorf("second turn: %d tokens cached, want at least %d: the prompt of %d and the answer of 200", cached, low, n)
	}
	if _, _, cached = ask("lora-a", turn); cached != 0 {
		t.Errorf("another adapter: %d tokens cached", cached)
	}
}

func TestMetrics(t *testing.T) {
	s := open(t, nil)
	call(t, s, "POST", "/v1/completions", `{"model":"lora-b","prompt":"hello hello","max_tokens":3}`)
	_, full := call(t, s, "GET", "/metrics?name[]=vllm:num_requests_running", "")
	for _, want := range []string{
		`vllm:num_requests_running{engine="0",model_name="base"} 0.0`,
		`vllm:num_requests_waiting_by_reason{engine="0",model_name="base",reason="deferred"} 0.0`,
		`vllm:generation_tokens_total{engine="0",model_name="base"} 3.0`,
		`vllm:cache_config_info{block_size="16"`,
		`vllm:lora_requests_info{max_lora="8",running_lora_adapters="lora-b",waiting_lora_adapters="lora-b"} 1`,
		`vllm:lora_requests_info{max_lora="8",running_lora_adapters="",waiting_lora_adapters=""} 1`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="base"} 1.0`,
		`# TYPE vllm:generation_tokens_total counter`,
	} {
		if !strings.Contains(full, want) {
			t.Errorf("the exact path, which ignores name[], lacks %s", want)
		}
	}
	_, some := call(t, s, "GET", "/metrics/?name[]=vllm:num_requests_running&name[]=vllm:prefix_cache_hits_total&name[]=nope", "")
	if lines := strings.Count(some, "\n"); lines != 6 || !strings.Contains(some, "vllm:prefix_cache_hits_total{") {
		t.Errorf("the filtered answer has %d lines, want 6:\n%s", lines, some)
	}
	if status, none := call(t, s, "GET", "/metrics/?name[]=nope", ""); status != 200 || none != "" {
		t.Errorf("nothing matches: %d %q, want 200 and nothing", status, none)
	}
}

func TestErrors(t *testing.T) {
	s := open(t, nil)
	long := `{"prompt":"` + strings.Repeat("a", 600_000) + `"}`
	for _, tt := range []struct {
		rule, body string
		status     int
		says       string
	}{
		{"a missing model is the base model", `{"prompt":"hi"}`, 200, `"model":"base"`},
		{"an adapter is a model", `{"model":"lora-a","prompt":"hi"}`, 200, `"model":"lora-a"`},
		{"an unknown model", `{"model":"nope","prompt":"hi"}`, 404, `"type":"NotFoundError"`},
		{"broken JSON", `{"prompt":`, 400, `"type":"Bad Request"`},
		{"no prompt", `{}`, 400, "empty"},
		{"no output", `{"prompt":"hi","max_tokens":0}`, 400, "max_tokens"},
		{"too long", long, 400, `"param":"input_tokens"`},
		{"a list of prompts", `{"prompt":["hi","ho"]}`, 200, "usage"},
		{"unknown fields are ignored", `{"prompt":"hi","frobnicate":1}`, 200, "usage"},
	} {
		if status, text := call(t, s, "POST", "/v1/completions", tt.body); status != tt.status || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %d %s", tt.rule, status, text[:min(len(text), 300)])
		}
	}
	if status, text := call(t, s, "GET", "/v1/models", ""); status != 200 || !strings.Contains(text, `"id":"lora-a","object":"model"`) || !strings.Contains(text, `"parent":"base"`) {
		t.Errorf("models: %d %s", status, text)
	}
}

func TestAbortFreesThePlace(t *testing.T) {
	s := open(t, func(c *Config) { c.ServerLoad = true })
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+s.Addr+"/v1/completions", strings.NewReader(`{"prompt":"hi","max_tokens":100000,"stream":true}`))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	eventually(t, "the request runs", func() bool { return s.Report().Running == 1 })
	if _, text := call(t, s, "GET", "/load", ""); !strings.Contains(text, `"server_load":1`) {
		t.Errorf("load is %s", text)
	}
	cancel()
	eventually(t, "nothing runs", func() bool { r := s.Report(); return r.Running == 0 && r.KVUsage == 0 })
	eventually(t, "no load", func() bool {
		_, text := call(t, s, "GET", "/load", "")
		return strings.Contains(text, `"server_load":0`)
	})
}

func TestFaults(t *testing.T) {
	s := open(t, nil)
	for _, tt := range []struct {
		fault  Fault
		status int
	}{{FaultBusy, 503}, {FaultDrain, 500}, {FaultNone, 200}} {
		call(t, s, "POST", "/simpod/fault?fault="+string(tt.fault), "")
		if status, _ := call(t, s, "POST", "/v1/completions", `{"prompt":"hi"}`); status != tt.status {
			t.Errorf("fault %q: status %d, want %d", tt.fault, status, tt.status)
		}
		if status, _ := call(t, s, "GET", "/health", ""); status != 200 {
			t.Errorf("fault %q: health %d; a server that fails still says that it is well", tt.fault, status)
		}
	}
	s.SetFault(FaultSleep)
	if _, text := call(t, s, "GET", "/metrics", ""); !strings.Contains(text, `sleep_state="awake"} 0.0`) {
		t.Error("sleeping is not shown")
	}
	if status, _ := call(t, s, "POST", "/simpod/fault?fault=nope", ""); status != 400 {
		t.Error("an unknown fault was taken")
	}
	if _, err := Start(Config{Addr: "127.0.0.1:0", Fault: "nope"}); err == nil {
		t.Error("an unknown fault was taken from the config")
	}
}
