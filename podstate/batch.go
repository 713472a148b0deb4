package podstate

import (
	"math"
	"time"
)

// batch is what is known of the requests that a pod runs at once.
type batch struct {
	limit float64 // how many it takes; 0: not known
	told  bool    // it says so itself
	stay  float64 // seconds that those that have ended ran after their first token, moving average; 0: none has

	running int     // of this replica
	begun   float64 // sum of when they began, seconds since Table.epoch

	crowd struct { // what scrapes say while requests wait
		running float64   // 0: none waits
		scrapes int       // in a row with about as many
		since   time.Time // the first of them
		work    float64   // seconds of prompts that have been processed since
		ended   bool      // an answer, since the last one
	}
}

// turns is how long a request waits for its turn, in stays: for another one to
// end, however short its prompt.
func (p *Pod) turns() float64 {
	limit := p.batch.limit
	if limit == 0 {
		return 0
	}
	return max(0, float64(p.charge.Requests)+p.others.requests+1-limit) / limit
}

// stay tells how long requests run after their first tokens, as a pick reads it.
// What has ended says nothing of those that have not, and those alone are waited
// for: what has run for long will run for long.
type stay struct {
	usual float64 // seconds
	begun float64 // when those that run began, in the mean, seconds since Table.epoch; +Inf: none runs
}

func (b *batch) stays() stay {
	s := stay{b.stay, math.Inf(1)}
	if b.stay == 0 {
		s.usual = stayUnknown
	}
	if b.running > 0 {
		s.begun = b.begun / float64(b.running)
	}
	return s
}

// seconds is how long they run, as of now, in seconds since Table.epoch. Half of
// the mean age is more than the usual stay only where those that run are out of
// the ordinary: where they are not, and stays scatter by v times their mean, the
// mean age is (1+v²)/2 of it (the paradox of inspection).
func (s stay) seconds(now float64) float64 { return max(s.usual, (now-s.begun)/2) }

// stayUnknown is a middling answer, seconds.
const stayUnknown = 5

// begins says that the prompt of r was processed at this time, or again that it
// was.
func (b *batch) begins(r *Reservation, at time.Time) {
	b.leaves(r)
	r.begun = at
	b.running++
	b.begun += at.Sub(r.table.epoch).Seconds()
}

// leaves says that r does not run there any more.
func (b *batch) leaves(r *Reservation) {
	if r.begun.IsZero() {
		return
	}
	b.running--
	b.begun -= r.begun.Sub(r.table.epoch).Seconds()
	if b.running == 0 {
		b.begun = 0 // of rounding
	}
	r.begun = time.Time{}
}

const (
	// As many scrapes in a row as requests run, at least fullLeast and at most
	// fullMost, with the same number running while others wait, though answers have
	// ended between any two of them, show that the batch is full: each end lets the
	// next request in. While prompts are what others wait for, the number changes.
	// A limit that was seen by chance is lifted by the first scrape that shows
	// more, for it forbids nothing.
	fullLeast, fullMost = 3, 10
	// prefilling is the share of the time from which on prompts are what others
	// wait for, though the number stands still, as it does where long prompts have
	// short answers. A limit taken from those would hold the pod to a few requests
	// when long answers come, and nothing there would lift it while others like it
	// run dozens. At 0.5 such loads still teach some.
	prefilling = 0.25
	// crammed is where the KV cache is what others wait for.
	crammed = 0.9
)

// fit learns how many requests the pod runs at once, for most engines do not say.
// Pods of a class are taken to have the same limit until they show another one.
func (p *Pod) fit(s *Stats) {
	b := &p.batch
	if s.Has(FieldMaxRunning) && s.MaxRunning > 0 {
		b.limit, b.told = float64(s.MaxRunning), true
	}
	if b.told || !s.Has(FieldRunning|FieldWaiting) {
		return
	}
	if s.Epoch != p.stats.Epoch {
		b.limit, b.crowd.running = 0, 0
	}
	if b.limit == 0 {
		b.limit = p.speed.class.limit
	}
	if b.limit > 0 && s.Running > b.limit {
		b.limit = s.Running
		p.speed.class.limit = max(p.speed.class.limit, b.limit)
	}
	c := &b.crowd
	switch {
	case s.Running < 1 || s.queued() < 1 || p.queue.head == nil || s.KVUsage > crammed: // or only others say that they wait
		c.running = 0
	// A scrape between the end of one and the start of the next shows one less.
	case s.Running > c.running || c.running-s.Running > 1+0.02*c.running:
		c.running, c.scrapes, c.since, c.work, c.ended = s.Running, 1, s.At, 0, false
	case c.ended && c.work > prefilling*s.At.Sub(c.since).Seconds():
		c.running = 0
	case c.ended:
		c.ended = false
		if c.scrapes++; float64(c.scrapes) >= min(fullMost, max(fullLeast, c.running)) {
			b.limit, p.speed.class.limit = c.running, c.running
		}
	}
}

// ended takes note of how long a request stayed, which has been processed.
func (b *batch) ended(r *Reservation, now time.Time) {
	b.crowd.ended = true
	if r.whole {
		return
	}
	x := max(0, now.Sub(r.begun).Seconds())
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
