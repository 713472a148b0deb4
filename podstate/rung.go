package podstate

import "time"

// Rung is how much is known about a pool: what its decisions stand on. Each rung
// does without what the one above it had, and none stops the pool.
type Rung uint8

// The rungs of the ladder, from the top.
const (
	RungFresh    Rung = iota // scraped stats, and what we have sent ourselves
	RungStale                // the gauges are old: they count for less and less, the pool's median for the rest
	RungInFlight             // no gauges: only what we have sent, and the prefixes that it left behind
	RungHash                 // nothing: the prompt's head points to a pod, as long as that has no more than its share
	RungRandom               // not even a prompt

	// Rungs is how many there are.
	Rungs = 5
)

// String is the word for the rung in metrics and decisions.
func (r Rung) String() string {
	return [Rungs]string{"fresh", "stale", "in-flight", "hash", "random"}[r]
}

// RungOf returns the rung on which, or above which, half of the pods stand that
// may be picked. It is never RungRandom, which depends on the request.
func RungOf(pods []Candidate) Rung {
	var in, all [Rungs]int
	for i := range pods {
		r := pods[i].rung()
		all[r]++
		if pods[i].Health.Out == "" {
			in[r]++
			if r == RungFresh && 2*in[r] >= len(pods) {
				return r
			}
		}
	}
	if in == [Rungs]int{} {
		in = all
	}
	total, n := 0, 0
	for _, k := range in {
		total += k
	}
	for r, k := range in {
		if n += k; n > 0 && 2*n >= total {
			return Rung(r)
		}
	}
	return RungHash
}

func (c *Candidate) rung() Rung {
	switch {
	case c.Trust >= 1:
		return RungFresh
	case c.Trust > 0:
		return RungStale
	case c.Answered:
		return RungInFlight
	default:
		return RungHash
	}
}

// States of a pod besides the reasons of Health.Out.
const (
	StateIn     = "in" // it takes requests, if perhaps few at first
	StateAsleep = "asleep"
)

// States returns how many pods are in each state, those with none included. It
// tells what each pod is by itself: one that failed is out until it has answered
// again, also while its trial is only due (OutProbing), and while pods that are
// out are picked because too few others are left. Snapshot says whom a pick may
// take.
func (t *Table) States(now time.Time) map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := map[string]int{StateIn: 0, StateAsleep: 0, OutEjected: 0, OutProbing: 0, OutDown: 0}
	for _, p := range t.pods {
		n[p.state(now)]++
	}
	return n
}

func (p *Pod) state(now time.Time) string {
	c := Candidate{Stats: p.stats, Age: now.Sub(p.stats.At).Seconds(), Health: p.health.view(now)}
	switch {
	case c.Health.Out != "":
		return c.Health.Out
	case !p.health.ejected.IsZero():
		return OutProbing
	case p.stats.Asleep && p.stats.Has(FieldAsleep) && !c.Silent():
		return StateAsleep
	default:
		return StateIn
	}
}
