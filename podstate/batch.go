package podstate

import "time"

// batch is what is known of a pod's limit on requests that run at once: a
// setting of the server, or the size of its KV cache. While it is reached, a
// request waits for another one to end, however short its prompt.
type batch struct {
	limit float64 // requests; 0: not known
	told  bool    // by the pod itself
	last  float64 // requests that ran while others waited, at the last such scrape
	same  int     // such scrapes in a row that found the same number
	stay  float64 // seconds that a request runs after its first token, moving average
}

// wait is how long a request waits for its turn, with so many others here.
func (b *batch) wait(requests int) float64 {
	if b.limit == 0 {
		return 0
	}
	return max(0, float64(requests)+1-b.limit) * b.stay / b.limit
}

// scraped finds the limit where a pod does not tell it. Requests also wait for
// prompts ahead of them; but only a limit keeps the number that runs the same.
func (b *batch) scraped(s *Stats) {
	if s.Has(FieldMaxRunning) && s.MaxRunning > 0 {
		b.limit, b.told = float64(s.MaxRunning), true
	}
	if b.told || !s.Has(FieldRunning|FieldWaiting) {
		return
	}
	waiting := s.Waiting
	if s.Has(FieldDeferred) {
		waiting -= s.Deferred
	}
	if waiting < 1 {
		if s.Running >= b.limit {
			b.limit = 0
		}
		return
	}
	if s.Running == b.last {
		b.same++
	} else {
		b.last, b.same = s.Running, 1
	}
	full := s.Has(FieldKVUsage) && s.KVUsage > 0.95
	if s.Running > b.limit && !full {
		b.limit = 0
	}
	if full && s.Running >= 1 || b.same >= 3 && s.Running >= 4 {
		b.limit = s.Running
	}
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

// fill is Candidate.Fill of a candidate with Stats, Charge, Trust and Unseen.
func (p *Pod) fill(c *Candidate) float64 {
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
		used += coming * (p.mean.tokens + growth) / float64(s.KVTokens)
	}
	return used
}

// growth is how many tokens a request is taken to add to its prompt.
const growth = 256
