package podstate

import (
	"math"
	"time"
)

// busy is what a pod had of ours since its last scrape.
type busy struct {
	at       time.Time
	seconds  float64 // with any request
	requests float64 // seconds of all requests together
}

// tick brings busy up to date, before the number of requests changes.
func (p *Pod) tick(now time.Time) {
	dt := now.Sub(p.busy.at).Seconds()
	if dt <= 0 {
		return
	}
	p.busy.at = now
	if n := p.charge.Requests; n > 0 {
		p.busy.seconds += dt
		p.busy.requests += dt * float64(n)
	}
}

// count learns from the pod's counters where first tokens are not seen: while
// the pod was busy, its time went into steps of decoding and into prompts.
func (p *Pod) count(s *Stats) {
	p.tick(s.At)
	old := p.stats
	const need = FieldPromptTokens | FieldGenerationTokens
	if !s.Has(need) || !old.Has(need) || s.Epoch != old.Epoch || p.busy.seconds < 0.05 {
		return
	}
	tokens := s.PromptTokens - old.PromptTokens
	if s.Has(FieldPrefixHits) && old.Has(FieldPrefixHits) {
		tokens -= s.PrefixHits - old.PrefixHits
	}
	generated := s.GenerationTokens - old.GenerationTokens
	if tokens < 0 || generated < 0 || tokens+generated == 0 {
		return
	}
	batch := p.busy.requests / p.busy.seconds
	if in := s.Running + s.Waiting; in > 0 && s.Has(FieldRunning|FieldWaiting) {
		batch *= s.Running / in
	}
	steps := generated / max(1, batch)
	p.learn(steps, work{tokens, tokens * p.lookback}, p.busy.seconds)
}

const utilTime = 15.0

func (p *Pod) utilization(now time.Time) float64 {
	return p.util * math.Exp(-now.Sub(p.utilAt).Seconds()/utilTime)
}
