package podstate

import "time"

// batch is what is known of the requests that a pod runs at once.
type batch struct {
	limit float64 // how many it takes, if it tells; 0: not known
	stay  float64 // seconds that a request runs after its first token, moving average
}

// wait is how long a request waits for its turn, with so many others here: for
// one of them to end, however short its prompt. Limits that are not told are not
// guessed from what waits: guesses that differ from pod to pod cost more than
// they tell.
func (b *batch) wait(requests int) float64 {
	if b.limit == 0 {
		return 0
	}
	return max(0, float64(requests)+1-b.limit) * b.stay / b.limit
}

// left takes note of how long a request stayed.
func (p *Pod) left(r *Reservation, now time.Time) {
	if r.whole {
		return
	}
	begun := r.begun
	if begun.IsZero() {
		begun = r.sent.Add(time.Duration(1e9 * r.wait))
	}
	b := &p.batch
	x := max(0, now.Sub(begun).Seconds())
	if b.stay == 0 {
		b.stay = x
	}
	b.stay += 0.05 * (x - b.stay)
}

// fill is Candidate.Fill of a candidate with Stats, Charge, Trust and Unseen,
// whose prompts have this mean.
func (c *Candidate) fill(mean work) float64 {
	s := c.Stats
	if !s.Has(FieldKVUsage) {
		return 0
	}
	used := c.Trust * s.KVUsage // without it, what we have sent is left
	if s.Has(FieldKVTokens) && s.KVTokens > 0 {
		coming := float64(c.Unseen)
		if s.Has(FieldWaiting) {
			coming = min(coming+c.Trust*s.Waiting, max(coming, float64(c.Charge.Requests)))
		}
		used += coming * (mean.tokens + growth) / float64(s.KVTokens)
	}
	return used
}

// growth is how many tokens a request is taken to add to its prompt.
const growth = 256
