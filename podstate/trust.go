package podstate

import "time"

// What a pod reports can be wrong in three ways, and each is seen from outside:
//
//   - old: its scrapes fail, or take long;
//   - hidden: it says that it is idle while it has had requests of ours for
//     longer than a step. Engines set their gauges when a step ends, so a long
//     prefill hides whatever came meanwhile; and some metrics are just wrong;
//   - frozen: requests end well there, and no counter moves.
//
// Stats that are wrong are not believed. That costs precision and no more: what
// was sent to the pod is known, and the pool goes on with that.
const (
	// trustFull and trustNone are ages in scrapes: a scrape or two may be late or
	// lost.
	trustFull, trustNone = 3, 10

	// crowd is how many requests of ours an idle pod cannot have: a few may be on
	// their way in or out.
	crowd = 4
	// stepTokens is how many prompt tokens an engine processes in one step.
	stepTokens = 8192
	// stepSlack is for what a step does besides, and for the way to the pod.
	stepSlack = 50 * time.Millisecond

	// frozenScrapes in a row without any change, with as many requests that ended
	// since the last one, freeze the counters.
	frozenScrapes = 3
)

// evidence is what speaks against a pod's stats. Guarded by Table.mu.
type evidence struct {
	sparse   time.Time // when it last had fewer than crowd requests of ours
	moved    time.Time // the scrape that last brought something new
	still    int       // scrapes in a row since
	finished int       // answers since that counters must have noticed
	doubt    bool      // the last stats were hidden or frozen
}

// gauges are the fields that say what a pod is doing now.
const gauges = FieldRunning | FieldWaiting | FieldKVUsage | FieldLoad

// Overdue is how old the stats are, in scrapes: up to 1 is ordinary.
func (c *Candidate) Overdue() float64 {
	return c.Age / c.Stats.pause().Seconds()
}

// pause is the time to the next scrape.
func (s *Stats) pause() time.Duration {
	if s.Every <= 0 {
		return time.Second
	}
	return s.Every
}

// Silent reports whether the stats are so old that they say nothing any more.
func (c *Candidate) Silent() bool { return c.Overdue() >= trustNone }

// Asleep reports whether the pod's weights are unloaded: requests hang there. One
// that has been silent since may have woken up.
func (c *Candidate) Asleep() bool {
	return c.Stats.Asleep && c.Stats.Has(FieldAsleep) && !c.Silent()
}

// trust is Candidate.Trust of a candidate with Stats and Age.
func (e *evidence) trust(c *Candidate) float64 {
	if e.doubt || c.Stats.Known&gauges == 0 {
		return 0
	}
	return c.aged()
}

// aged is Trust if nothing but age speaks against the stats.
func (c *Candidate) aged() float64 {
	return min(1, max(0, (trustNone-c.Overdue())/(trustNone-trustFull)))
}

// unseen is Candidate.Unseen of a candidate with Stats, Charge and Trust.
func (p *Pod) unseen(c *Candidate) int {
	s, n := c.Stats, c.Charge.Requests
	if c.Trust == 0 && c.Stats.Known&gauges != 0 {
		return n
	}
	// At least those that came after the scrape began, and those for which there
	// is no room in what it read.
	hidden := int(min(uint64(n), p.sent-s.sent))
	switch {
	case s.Has(FieldRunning | FieldWaiting):
		hidden = max(hidden, n-int(max(s.Running+s.Waiting, s.Load)))
	case s.Has(FieldLoad):
		hidden = max(hidden, n-int(s.Load))
	}
	return hidden
}

// recount notes the number of requests before it changes.
func (e *evidence) recount(requests int, now time.Time) {
	if requests < crowd && now.After(e.sparse) {
		e.sparse = now
	}
}

// finish counts the end of an answer.
func (p *Pod) finish(r *Reservation) {
	if r.seen && !r.failed && r.output > 0 {
		p.evidence.finished++
	}
}

// weigh compares new stats with the old ones and with what the pod has of ours.
func (p *Pod) weigh(s *Stats) {
	e, old := &p.evidence, p.stats
	p.evidence.recount(p.charge.Requests, s.At)
	if moved(old, s) {
		e.moved, e.still, e.finished = s.At, 0, 0
	} else {
		e.still++
	}
	e.doubt = p.hides(s) || e.frozen(s)
}

func (p *Pod) hides(s *Stats) bool {
	if !s.Has(FieldRunning|FieldWaiting) || s.Running+s.Waiting+s.Load > 0 {
		return false
	}
	step := stepSlack + time.Duration(1e9*(p.speed.now().Base+stepTokens*p.speed.now().Token))
	return s.At.Sub(p.evidence.sparse) > step
}

func (e *evidence) frozen(s *Stats) bool {
	return counts(s) && e.still >= frozenScrapes && e.finished >= frozenScrapes && s.At.Sub(e.moved) >= frozenScrapes*s.Every
}

// counts reports whether each answer moves a counter of the pod.
func counts(s *Stats) bool { return s.Known&(FieldPromptTokens|FieldGenerationTokens) != 0 }

// moved reports whether anything has changed that a working engine changes.
func moved(a, b *Stats) bool {
	return a.Epoch != b.Epoch || a.Known&^FieldLoad != b.Known&^FieldLoad ||
		a.Running != b.Running || a.Waiting != b.Waiting || a.KVUsage != b.KVUsage || a.KVPeak != b.KVPeak ||
		a.PromptTokens != b.PromptTokens || a.GenerationTokens != b.GenerationTokens ||
		a.PrefixQueries != b.PrefixQueries || a.PrefillTokens != b.PrefillTokens || a.Asleep != b.Asleep
}
