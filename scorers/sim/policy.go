package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

// ParsePolicy reads the name of a profile, or weights such as
// queue=2,kvCache=2,prefix=3. Each call of the result makes a policy that knows
// nothing yet.
func ParsePolicy(spec string) (func() (Policy, error), error) {
	name, weights := spec, map[string]float64(nil)
	if strings.Contains(spec, "=") {
		name, weights = "hyperpod", map[string]float64{}
		for part := range strings.SplitSeq(spec, ",") {
			scorer, text, ok := strings.Cut(part, "=")
			if !ok {
				return nil, fmt.Errorf("policy %q: %q has no weight, as in queue=2; profiles and weights go into separate flags", spec, part)
			}
			w, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("policy %q: weight %q of %s is no number; want 0 or more", spec, text, scorer)
			}
			if _, twice := weights[scorer]; twice {
				return nil, fmt.Errorf("policy %q: %s has two weights; want one", spec, scorer)
			}
			weights[scorer] = w
		}
	}
	if name == "round-robin" && !slices.Contains(scorers.Profiles(), name) {
		return func() (Policy, error) { return &roundRobin{}, nil }, nil
	}
	build := func() (Policy, error) { return scorers.NewProfile(name, weights) }
	_, err := build()
	return build, err
}

// roundRobin deals requests out in turn.
type roundRobin struct{ next int }

func (r *roundRobin) Choose(_ *scorers.Request, cands []podstate.Candidate) (first, second int) {
	if len(cands) == 0 {
		return -1, -1
	}
	r.next++
	return r.next % len(cands), (r.next + 1) % len(cands)
}
