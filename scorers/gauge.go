package scorers

import (
	"slices"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// gauge reads one scraped signal of all pods. Where a pod does not report it,
// the median of the others stands for it: unknown is neither zero nor full. The
// older a value is, the more it moves towards the median.
type gauge struct {
	fresh []float64
}

func (g *gauge) read(pods []podstate.Candidate, field podstate.Field, get func(*podstate.Stats) float64, out []float64) {
	sure := true
	for i := range pods {
		s := pods[i].Stats
		out[i] = get(s)
		sure = sure && s.Has(field) && trust(&pods[i]) == 1
	}
	if sure {
		return
	}
	g.fresh = g.fresh[:0]
	for i := range pods {
		if pods[i].Stats.Has(field) && trust(&pods[i]) > 0 {
			g.fresh = append(g.fresh, out[i])
		}
	}
	median := 0.0
	if n := len(g.fresh); n > 0 {
		slices.Sort(g.fresh)
		median = (g.fresh[n/2] + g.fresh[(n-1)/2]) / 2
	}
	for i := range pods {
		t := 0.0
		if pods[i].Stats.Has(field) {
			t = trust(&pods[i])
		}
		out[i] = t*out[i] + (1-t)*median
	}
}

// trust says how far a pod's stats can be believed, 1 to 0, by how many scrapes
// are overdue.
func trust(c *podstate.Candidate) float64 {
	const full, none = 3, 10
	every := float64(c.Stats.Every) / float64(time.Second)
	if every <= 0 {
		every = 1
	}
	if c.Age <= full*every {
		return 1
	}
	return max(0, (none-c.Age/every)/(none-full))
}

// unseenShare is the part of what was sent and has not ended that the stats
// cannot include.
func unseenShare(c *podstate.Candidate) float64 {
	if c.Charge.Requests == 0 {
		return 0
	}
	return float64(c.Unseen) / float64(c.Charge.Requests)
}

// spread turns loads into scores: 1 for the lowest, 0 for the highest, and 1 for
// all if they are equal.
func spread(x []float64) {
	lo, hi := slices.Min(x), slices.Max(x)
	for i := range x {
		if hi == lo {
			x[i] = 1
		} else {
			x[i] = (hi - x[i]) / (hi - lo)
		}
	}
}
