package engines_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience bounds everything that should happen soon, on a machine with too
// much to do.
const patience = time.Minute

// answer is what a chat answer and its last event have in common.
type answer struct {
	Model   string `json:"model"`
	Choices []struct {
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Delta struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage struct {
		Prompt  int `json:"prompt_tokens"`
		Output  int `json:"completion_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Timings struct {
		Cached    int `json:"cache_n"`
		Processed int `json:"prompt_n"`
		Generated int `json:"predicted_n"`

		PromptMS float64 `json:"prompt_ms"` // what it took to process the prompt
	} `json:"timings"`
}

// chat is the body of a request.
func chat(model, prompt string, tokens int, stream bool) []byte {
	body := map[string]any{
		"model": model, "max_tokens": tokens, "ignore_eos": true,
		"messages": []any{map[string]string{"role": "user", "content": prompt}},
	}
	if stream {
		body["stream"], body["stream_options"] = true, map[string]bool{"include_usage": true}
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return text
}

// words is a prompt of n words that the model has tokens for. Different prompts
// differ from the start.
func words(which, n int) string {
	some := strings.Fields("the value of an object is method class if name with type for code function that argument list")
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", which)
	for i := range n {
		b.WriteByte(' ')
		b.WriteString(some[(i*i+which)%len(some)])
	}
	return b.String()
}

// digits is a prompt of n tokens of one byte each.
func digits(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteByte(byte('0' + i*i/3%10))
	}
	return b.String()
}

func send(ctx context.Context, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// post returns a whole answer of any kind.
func post(ctx context.Context, url string, body []byte) (status int, text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	resp, err := send(ctx, url, body)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// tell returns a whole answer to a chat, which must be good.
func tell(ctx context.Context, gateway string, body []byte) (a answer, err error) {
	status, text, err := post(ctx, "http://"+gateway+"/v1/chat/completions", body)
	if err == nil && status == http.StatusOK {
		err = json.Unmarshal(text, &a)
	}
	if err != nil || status != http.StatusOK {
		return a, fmt.Errorf("status %d, %v: %s", status, err, text)
	}
	return a, nil
}

func ask(t *testing.T, gateway string, body []byte) answer {
	t.Helper()
	a, err := tell(t.Context(), gateway, body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func try(t *testing.T, url string, body []byte) (status int, text []byte) {
	t.Helper()
	status, text, err := post(t.Context(), url, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, text
}

// stream begins a stream of events, which ends with ctx or the test.
func stream(ctx context.Context, t *testing.T, gateway string, body []byte) io.Reader {
	t.Helper()
	resp, err := send(ctx, "http://"+gateway+"/v1/chat/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
		t.Fatalf("%s, %s; want a stream", resp.Status, kind)
	}
	return resp.Body
}

// events reads a stream to its end, or until each returns false.
func events(body io.Reader, each func(data string) bool) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && !each(data) {
			return nil
		}
	}
	return lines.Err()
}

// parse reads an event.
func parse(t *testing.T, data string) (a answer) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), &a); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return a
}

func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v\n%s", url, resp.Status, err, text)
	}
	return string(text)
}

// metric sums the series of a name that have all of these labels, as in
// `pool="demo"`.
func metric(t *testing.T, addr, name string, labels ...string) (sum float64) {
	t.Helper()
	found := false
next:
	for line := range strings.Lines(get(t, "http://"+addr+"/metrics")) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if is, _, _ := strings.Cut(series, "{"); is != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(series, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum += v
		found = true
	}
	if !found {
		t.Fatalf("no series %s with %q at %s", name, labels, addr)
	}
	return sum
}

// pod is a pod as /pods shows it.
type pod struct {
	Name     string         `json:"name"`
	Address  string         `json:"address"`
	Engine   string         `json:"engine"`
	Out      string         `json:"out"`
	Age      float64        `json:"ageSeconds"`
	Ramp     float64        `json:"ramp"`
	Epoch    int            `json:"epoch"`
	Reported map[string]any `json:"reported"`
	Charge   struct {
		Requests int     `json:"requests"`
		Ahead    float64 `json:"aheadTokens"`
	} `json:"charge"`
	Speed struct {
		Step  float64 `json:"stepSeconds"`
		Token float64 `json:"tokenSeconds"`
	} `json:"speed"`
}

// pods returns all pods by address.
func pods(t *testing.T, admin string) map[string]pod {
	t.Helper()
	var view struct {
		Pools []struct {
			Pods []pod `json:"pods"`
		} `json:"pools"`
	}
	if err := json.Unmarshal([]byte(get(t, "http://"+admin+"/pods")), &view); err != nil {
		t.Fatal(err)
	}
	all := map[string]pod{}
	for _, pool := range view.Pools {
		for _, p := range pool.Pods {
			all[p.Address] = p
		}
	}
	return all
}

// inflight is how many requests warmpath believes to be under way.
func inflight(t *testing.T, admin string) (n int) {
	t.Helper()
	for _, p := range pods(t, admin) {
		n += p.Charge.Requests
	}
	return n
}

// eventually waits for something that should happen soon, and returns how long
// that took.
func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(start) > patience {
			t.Fatalf("after %v still not so: %s", patience, what)
		}
		<-tick.C
	}
	return time.Since(start)
}

// number is a reported value, which must be there.
func (p pod) number(t *testing.T, name string) float64 {
	t.Helper()
	v, ok := p.Reported[name].(float64)
	if !ok {
		t.Fatalf("%s does not report %s but %s", p.Name, name, fmt.Sprint(p.Reported))
	}
	return v
}
