package scorers

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/podstate"
)

// Verdict is what a profile thinks of one pod for one request.
type Verdict struct {
	Filter string  // what passed over the pod; empty: nothing
	Cost   float64 // the lowest wins; NaN for a pod that was passed over
	Scores []Score // what the cost is made of, for the profiles that add it up
}

// Score is one part of a cost: a scorer of a weighted profile, or a term of a
// cost in seconds.
type Score struct {
	Name   string
	Weight float64
	Value  float64 // 0 to 1, or seconds
}

// Explain returns the verdict on each pod by the code that Choose runs. It is
// for people and for replay, and not fast. Like Choose it is for one goroutine
// at a time; pods stay as they are.
func (p *Profile) Explain(req *Request, pods []podstate.Candidate) []Verdict {
	verdicts := make([]Verdict, len(pods))
	left := make([]int, len(pods))
	for i := range left {
		left[i] = i
	}
	some := slices.Clone(pods) // those that are left
	for _, s := range p.filters {
		if len(left) == 0 {
			break
		}
		out := make([]bool, len(left))
		s.filter.Filter(req, some, out)
		if !s.hard && !slices.Contains(out, false) {
			continue
		}
		n := 0
		for k, i := range left {
			if out[k] {
				verdicts[i].Filter = filterName(s.filter)
				continue
			}
			left[n], some[n] = i, some[k]
			n++
		}
		left, some = left[:n], some[:n]
	}
	for i := range verdicts {
		verdicts[i].Cost = math.NaN()
	}
	if len(left) == 0 {
		return verdicts
	}
	costs := make([]float64, len(left))
	policy := p.ladder(req, some)
	policy.cost(req, some, costs)
	for k, i := range left {
		verdicts[i].Cost = costs[k]
	}
	switch policy := policy.(type) {
	case *weighted:
		for _, part := range policy.parts {
			part.scorer.Score(req, some, costs)
			for k, i := range left {
				verdicts[i].Scores = append(verdicts[i].Scores, Score{part.name, part.weight, costs[k]})
			}
		}
	case *cost:
		pool := policy.pool(req, some, costs)
		for k, i := range left {
			var parts terms
			pool.terms(req, &some[k], costs[k], &parts)
			for j, weight := range policy.weights() {
				verdicts[i].Scores = append(verdicts[i].Scores, Score{costTerms[j], weight, parts[j]})
			}
		}
	}
	return verdicts
}

// filterName is the name of a filter's type, which says what it rules out.
func filterName(f Filter) string {
	name := fmt.Sprintf("%T", f)
	return name[strings.LastIndexByte(name, '.')+1:]
}
