package scorers

import (
	"maps"
	"slices"

	"github.com/warmpath/warmpath/podstate"
)

// weighted is the classic policy: the sum of scores times weights, highest wins.
type weighted struct {
	parts []part
	score []float64
}

type part struct {
	name   string
	scorer Scorer
	weight float64
}

var _ policy = (*weighted)(nil)

// newWeighted returns the policy of these weights, which must be valid.
func newWeighted(weights map[string]float64) *weighted {
	w := new(weighted)
	for _, name := range slices.Sorted(maps.Keys(weights)) { // a fixed order of adding, or equal pods might not be equal
		if weights[name] > 0 {
			w.parts = append(w.parts, part{name, builders[name](), weights[name]})
		}
	}
	return w
}

func (w *weighted) cost(req *Request, pods []podstate.Candidate, out []float64) {
	clear(out)
	w.score = slices.Grow(w.score[:0], len(pods))[:len(pods)]
	for _, p := range w.parts {
		p.scorer.Score(req, pods, w.score)
		for i, s := range w.score {
			out[i] -= p.weight * min(1, max(0, s))
		}
	}
}
