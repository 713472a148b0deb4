package scorers

import (
	"slices"

	"github.com/warmpath/warmpath/podstate"
)

// gauge reads one scraped signal of all pods. Where a pod does not report it,
// the median of the others stands for it: unknown is neither zero nor full. The
// older a value is, the more it moves towards the median.
type gauge struct {
	fresh []float64
}

func (g *gauge) read(pods []podstate.Candidate, field podstate.Field, get func(*podstate.Stats) float64, out []float64) {
	g.fresh = g.fresh[:0]
	sure := true
	for i := range pods {
		known := pods[i].Stats.Has(field)
		if known {
			out[i] = get(pods[i].Stats)
			if trust(&pods[i]) > 0 {
				g.fresh = append(g.fresh, out[i])
			}
		}
		sure = sure && known && trust(&pods[i]) == 1
	}
	if sure {
		return
	}
	median := 0.0
	if n := len(g.fresh); n > 0 {
		slices.Sort(g.fresh)
		median = (g.fresh[n/2] + g.fresh[(n-1)/2]) / 2
	}
	for i := range pods {
		if !pods[i].Stats.Has(field) {
			out[i] = median
			continue
		}
		t := trust(&pods[i])
		out[i] = t*out[i] + (1-t)*median
	}
}

// trust says how far a pod's stats can be believed, 1 to 0, by the number of
// scrapes that are overdue.
func trust(c *podstate.Candidate) float64 {
	const full, none = 3, 10
	every := c.Stats.Every.Seconds()
	if every <= 0 {
		every = 1
	}
	return min(1, max(0, (none-c.Age/every)/(none-full)))
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
