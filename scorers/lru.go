package scorers

import (
	"slices"

	"github.com/warmpath/warmpath/podstate"
)

// lru spreads requests of which no pod has anything cached: the pod that got
// such a request longest ago, or never, scores 1, the last one 0, the others by
// their rank between. For all other requests every pod scores 0.5.
type lru struct {
	order []uint64
}

var _ Scorer = (*lru)(nil)

func (l *lru) Score(_ *Request, pods []podstate.Candidate, out []float64) {
	l.order = l.order[:0]
	for i := range pods {
		if pods[i].Cached > 0 {
			l.order = l.order[:0]
			break
		}
		l.order = append(l.order, pods[i].LastCold)
	}
	slices.Sort(l.order)
	for i := range pods {
		switch n := len(l.order); n {
		case 0:
			out[i] = 0.5
		case 1:
			out[i] = 1
		default:
			rank, _ := slices.BinarySearch(l.order, pods[i].LastCold)
			out[i] = 1 - float64(rank)/float64(n-1)
		}
	}
}
