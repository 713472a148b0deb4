// Package replay writes decisions down and makes them again.
//
// A Decision is all that a policy was given and what it chose. As a line of JSON
// it holds every value that a scorer can see, to the last bit, and nothing of the
// prompt; so the code that chose can choose again, elsewhere and later, and
// another policy can be asked what it would have done.
package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

// Decision is one choice and what it was made from.
type Decision struct {
	Time       time.Time
	Pool       string
	Profile    string
	Weights    map[string]float64   // empty: the profile's own
	Request    scorers.Request      // as it was after the choice
	Prompt     uint64               // equal for prompts that begin alike; 0: not known
	Candidates []podstate.Candidate // as they were before it
	First      *podstate.Pod        // that was chosen; nil: none, and Request.Refusal says why
	Second     *podstate.Pod        // to be tried next; nil: none
}

// ID names the decision: it is the request's seed, which is random.
func (d *Decision) ID() string { return fmt.Sprintf("%016x", d.Request.Seed) }

// policyName is the profile, or the weights that were used in its place.
func (d *Decision) policyName() string {
	if len(d.Weights) == 0 {
		return d.Profile
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(d.Weights)) {
		parts = append(parts, fmt.Sprintf("%s=%v", name, d.Weights[name]))
	}
	return strings.Join(parts, ",")
}

// Policy chooses; scorers.Profile does.
type Policy interface {
	Choose(req *scorers.Request, cands []podstate.Candidate) (first, second int)
}

// Choose lets a policy make the decision, and returns the pods.
func (d *Decision) Choose(p Policy) (first, second *podstate.Pod, refusal string) {
	req, cands := d.Request, slices.Clone(d.Candidates)
	req.Refusal = ""
	i, j := p.Choose(&req, cands)
	if i >= 0 {
		first = cands[i].Pod
	}
	if j >= 0 {
		second = cands[j].Pod
	}
	return first, second, req.Refusal
}

// index returns which candidate the pod is, or -1.
func (d *Decision) index(p *podstate.Pod) int {
	if p == nil {
		return -1
	}
	return slices.IndexFunc(d.Candidates, func(c podstate.Candidate) bool { return c.Pod == p })
}

// FirstToken is when the first token of a request that comes now is expected on
// this pod, in seconds, by what the table knows.
func FirstToken(c *podstate.Candidate, tokens, cached int) float64 {
	return c.Wait + c.Speed.Base + c.Speed.Prefill(tokens, cached)
}
