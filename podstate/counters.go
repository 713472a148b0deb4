package podstate

import (
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
// the pod was busy, its time went into steps of decoding and into prompts. Old
// stats are those of the last time that it learned, or gave up.
func (p *Pod) count(s *Stats) {
	p.tick(s.At)
	old := p.counted
	const need = FieldPromptTokens | FieldGenerationTokens
	if old == nil || !s.Has(need) || !old.Has(need) || s.Epoch != old.Epoch || s.At.Sub(old.At) > time.Minute {
		p.counted, p.busy = s, busy{at: p.busy.at}
		return
	}
	// Counters count a prompt at its end, so a few must fit in.
	if p.busy.seconds < 1 || p.busy.seconds < 4*p.speed.now().of(p.mean) {
		return
	}
	tokens := s.PromptTokens - old.PromptTokens
	if s.Has(FieldPrefixHits) && old.Has(FieldPrefixHits) {
		tokens -= s.PrefixHits - old.PrefixHits
	}
	generated := s.GenerationTokens - old.GenerationTokens
	if tokens >= 0 && generated >= 0 && tokens+generated > 0 && p.mean.tokens > 0 {
		batch := p.busy.requests / p.busy.seconds
		if in := s.Running + s.Waiting; in > 0 && s.Has(FieldRunning|FieldWaiting) {
			batch *= s.Running / in
		}
		p.learn(generated/max(1, batch), work{tokens, tokens * p.mean.square / p.mean.tokens}, p.busy.seconds, noiseSum)
	}
	p.counted, p.busy = s, busy{at: p.busy.at}
}

// lived learns from how long a request took as a whole, where there are neither
// first tokens nor counters. How much it generated is a guess, but the guess is
// the same for all pods, so it tells at least the slow ones from the fast ones.
func (p *Pod) lived(r *Reservation, now time.Time) {
	if p.counted != nil && p.counted.Has(FieldPromptTokens|FieldGenerationTokens) || r.output == 0 {
		return
	}
	if took := now.Sub(r.sent).Seconds(); r.wait < took/2 {
		p.learn(r.output, r.work, took-r.wait, noiseSum)
	}
}

const utilTime = 15.0

// faded is what is left of a utilization after some time: less as exp(-x) would
// make it for small x. A pick asks for it of every pod, and the exponential
// function would be its dearest part.
func faded(util float64, after time.Duration) float64 {
	if util == 0 {
		return 0
	}
	x := float64(after) * (1e-9 / utilTime)
	return util / (1 + x*(1+x*(0.5+x*(1.0/6))))
}
