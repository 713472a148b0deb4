package scorers

import (
	"slices"

	"github.com/warmpath/warmpath/podstate"
)

// gauge reads one scraped signal of all pods. Where a pod does not report it,
// the median of the others stands for it: unknown is neither zero nor full. The
// less a value is to be trusted, the more it moves towards the median.
type gauge struct {
	fresh []float64
}

func (g *gauge) read(pods []podstate.Candidate, field podstate.Field, get func(*podstate.Candidate) float64, out []float64) {
	sure := true
	for i := range pods {
		out[i] = get(&pods[i])
		sure = sure && trust(&pods[i], field) == 1
	}
	if sure {
		return
	}
	g.fresh = g.fresh[:0]
	for i := range pods {
		if trust(&pods[i], field) > 0 {
			g.fresh = append(g.fresh, out[i])
		}
	}
	median := 0.0
	if n := len(g.fresh); n > 0 {
		slices.Sort(g.fresh)
		median = (g.fresh[n/2] + g.fresh[(n-1)/2]) / 2
	}
	for i := range pods {
		t := trust(&pods[i], field)
		out[i] = t*out[i] + (1-t)*median
	}
}

// trust says how far a gauge of a pod can be believed, 1 to 0.
func trust(c *podstate.Candidate, field podstate.Field) float64 {
	if !c.Stats.Has(field) {
		return 0
	}
	return c.Trust
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
