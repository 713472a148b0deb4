package engines_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Several prompts come at once, and then twice more, one by one. Dealt out by
// chance, each would meet its prefix half the time.
func prefixStays(t *testing.T, f *fleet) {
	const prompts = 4
	prompt := func(p int) []byte { return chat("any", words(10+p, 1500), 3, false) }
	var served [prompts]string
	var burst sync.WaitGroup
	for p := range prompts {
		burst.Go(func() {
			a, err := tell(t.Context(), f.Warmpath, prompt(p))
			if err != nil {
				t.Error(err)
			}
			served[p] = a.Model
		})
	}
	burst.Wait()
	if n := len(slices.Compact(slices.Sorted(slices.Values(served[:])))); n != len(f.servers) {
		t.Errorf("a burst went to %v; want all servers to share it", served)
	}
	for range 2 {
		for p := range prompts {
			a := ask(t, f.Warmpath, prompt(p))
			if cached := a.Usage.Details.Cached; a.Model != served[p] || cached < a.Usage.Prompt*9/10 {
				t.Errorf("prompt %d: %s has %d of %d tokens cached; before, %s answered it", p, a.Model, cached, a.Usage.Prompt, served[p])
			}
		}
	}
}

func everyAPI(t *testing.T, f *fleet) {
	actual := func() float64 { return metric(t, f.Admin, "warmpath_extproc_cached_tokens_actual_total") }
	for i, c := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":%q}],"max_tokens":3}`},
		{"/v1/completions", `{"prompt":%q,"max_tokens":3}`},
		{"/v1/messages", `{"messages":[{"role":"user","content":%q}],"max_tokens":3}`},
		{"/v1/responses", `{"input":%q,"max_output_tokens":3}`},
	} {
		t.Run(strings.TrimPrefix(c.path, "/v1/"), func(t *testing.T) {
			body := fmt.Appendf(nil, c.body, words(20+i, 1000))
			var before, cached float64
			for range 2 {
				before = actual()
				status, text := try(t, "http://"+f.Warmpath+c.path, body)
				if status != http.StatusOK {
					t.Fatalf("status %d: %s", status, text)
				}
				cached = cachedTokens(t, text)
			}
			if cached < 900 {
				t.Fatalf("a prompt of 1,000 words, sent again, finds %v tokens cached", cached)
			}
			eventually(t, "warmpath has learned what was cached", func() bool { return actual()-before == cached })
		})
	}
}

// Of streams, a share is read to its end; all of them, as long as there are few.
func streamsTell(t *testing.T, f *fleet) {
	actual := func() float64 { return metric(t, f.Admin, "warmpath_extproc_cached_tokens_actual_total") }
	body := chat("any", words(30, 1000), 30, true)
	cached := 0
	send := func() {
		err := events(stream(t.Context(), t, f.Warmpath, body), func(data string) bool {
			if data != "[DONE]" {
				cached = parse(t, data).Usage.Details.Cached
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	send()
	eventually(t, "warmpath has learned what was cached", func() bool {
		before := actual()
		send()
		if cached < 900 {
			t.Fatalf("a prompt of 1,000 words, sent again, finds %d tokens cached", cached)
		}
		// What is shown later than a second after the end is lost.
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if actual()-before == float64(cached) {
				return true
			}
		}
		return false
	})
}

// cachedTokens finds how many tokens were cached, whatever the API.
func cachedTokens(t *testing.T, text []byte) float64 {
	t.Helper()
	type details struct {
		Cached float64 `json:"cached_tokens"`
	}
	var a struct {
		Usage struct {
			Chat      details `json:"prompt_tokens_details"`
			Responses details `json:"input_tokens_details"`
			Anthropic float64 `json:"cache_read_input_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return a.Usage.Chat.Cached + a.Usage.Responses.Cached + a.Usage.Anthropic
}
