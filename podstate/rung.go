package podstate

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
