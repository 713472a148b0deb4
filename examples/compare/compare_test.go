package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/scorers/sim"
)

func TestBodiesHaveTheSimulatedTexts(t *testing.T) {
	requests := []sim.Request{
		{At: 1, Prompt: []sim.Segment{{ID: 1, Tokens: 100}, {ID: 2, Tokens: 30}}, Output: 7},
		{At: 2, Prompt: []sim.Segment{{ID: 1, Tokens: 100}, {ID: 3, Tokens: 30}}, Output: 8},
	}
	list, err := plan(requests)
	if err != nil {
		t.Fatal(err)
	}
	var prompts []string
	for i, r := range list {
		var v struct {
			Prompt    string
			MaxTokens int `json:"max_tokens"`
		}
		if err := json.Unmarshal(r.Body, &v); err != nil || v.MaxTokens != requests[i].Output || r.At != requests[i].At {
			t.Errorf("request %d: %v, %+v", i, err, v)
		}
		prompts = append(prompts, v.Prompt)
	}
	if len(prompts[0]) != 520 || prompts[0][:400] != prompts[1][:400] || prompts[0][400:] == prompts[1][400:] {
		t.Errorf("prompts of %d bytes; they must share the first 400 and no more", len(prompts[0]))
	}
	for _, q := range []sim.Request{{After: 1}, {Adapter: "a"}} {
		if _, err := plan([]sim.Request{q}); err == nil {
			t.Errorf("%+v cannot be played, but is no error", q)
		}
	}
}

// Through a real Envoy. The figures of so short a load say nothing, and are not
// looked at; that all answers came, and who was asked, is.
func TestPlay(t *testing.T) {
	sc, err := sim.Find("wall")
	if err != nil {
		t.Fatal(err)
	}
	requests := sc.Generate(1, 1)
	requests = requests[:20]
	list, err := plan(requests)
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"hyperpod", "round-robin"} {
		ttft, failed, _, err := play(t.Context(), sc, list, policy, options{scrape: 200 * time.Millisecond})
		if err != nil || failed > 0 || len(ttft) != 20 || slices.Min(ttft) <= 0 {
			t.Errorf("%s: error %v, %d failed, TTFT %v", policy, err, failed, ttft)
		}
		simulated, err := simulate(t.Context(), sc, requests, policy, 1)
		if err != nil || len(simulated) != 20 {
			t.Errorf("%s: error %v, %d simulated", policy, err, len(simulated))
		}
	}
	var out strings.Builder
	if err := run(t.Context(), options{scenario: "nope"}, &out); err == nil {
		t.Error("an unknown scenario is no error")
	}
}
