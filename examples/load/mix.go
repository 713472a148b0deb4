package load

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Mix is chat traffic as a company has it: a few applications, each with a long
// system prompt of its own, now and then a long document, and bursts.
type Mix struct {
	Model    string
	Duration time.Duration
	Rate     float64 // requests a second, on average
	Seed     uint64

	Apps         int     // system prompts
	SystemTokens int     // length of each
	LongShare    float64 // share of requests that carry a document
	LongTokens   int     // its length
}

const (
	burstEvery = 10 * time.Second
	burstShare = 0.2 // of all requests come in bursts
	burstLasts = time.Second
)

// Plan draws the requests.
func (m Mix) Plan() []Request {
	rng := rand.New(rand.NewPCG(m.Seed, 0))
	systems := make([]string, m.Apps)
	for i := range systems {
		systems[i] = words(rng, m.SystemTokens)
	}
	bursts := max(1, int(m.Duration/burstEvery))
	var plan []Request
	for range int(m.Rate * m.Duration.Seconds()) {
		at := rng.Float64() * float64(m.Duration)
		if rng.Float64() < burstShare {
			at = (float64(rng.IntN(bursts))+0.5)*float64(burstEvery) + rng.Float64()*float64(burstLasts)
		}
		text := words(rng, 50+rng.IntN(400))
		if rng.Float64() < m.LongShare {
			text += words(rng, m.LongTokens)
		}
		plan = append(plan, Request{At: time.Duration(at), Body: m.body(systems[rng.IntN(len(systems))], text, 20+rng.IntN(100))})
	}
	slices.SortFunc(plan, func(a, b Request) int { return int(a.At - b.At) })
	return plan
}

func (m Mix) body(system, user string, tokens int) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	b, err := json.Marshal(map[string]any{
		"model": m.Model, "stream": true, "max_tokens": tokens,
		"stream_options": map[string]bool{"include_usage": true},
		"messages":       []message{{"system", system}, {"user", user}},
	})
	if err != nil {
		panic("BUG: strings and numbers are always JSON: " + err.Error())
	}
	return b
}

// words makes text of about n tokens, four bytes each.
func words(rng *rand.Rand, n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	var b strings.Builder
	for range n {
		for range 3 {
			b.WriteByte(letters[rng.IntN(len(letters))])
		}
		b.WriteByte(' ')
	}
	return b.String()
}
