package scorers

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/podstate"
)

// Profile is a way to choose. It has scratch memory that the lock of one table
// guards, so each table needs its own.
type Profile struct {
	policy  policy
	filters []step

	costs  []float64
	places []place
	out    []bool
	left   []podstate.Candidate // by the filters
	index  []int                // of those, among all; empty: none was ruled out
}

// step is one filter of a profile.
type step struct {
	filter  Filter
	hard    bool   // it may leave nothing; others are then passed over
	refusal string // why, if a hard one leaves nothing
}

// NewProfile returns the named profile. Weights, by the names of scorers, are
// used in place of what the profile would do, if there are any.
func NewProfile(name string, weights map[string]float64) (*Profile, error) {
	preset, ok := presets[name]
	if !ok {
		return nil, unknown("profile", name, Profiles())
	}
	p := &Profile{policy: preset()}
	if len(weights) > 0 {
		if err := checkWeights(weights); err != nil {
			return nil, err
		}
		p.policy = newWeighted(weights)
	}
	p.filters = []step{
		{filter: new(subset), hard: true, refusal: RefusalSubset},
		{filter: asleep{}, hard: true, refusal: RefusalNoPod},
		{filter: unhealthy{}},
		{filter: missing{}},
		{filter: tooLong{}},
		{filter: full{}},
		{filter: ramping{}},
	}
	if _, ok := p.policy.(*weighted); ok {
		p.filters = append(p.filters, step{filter: stale{}})
	}
	return p, nil
}

func checkWeights(weights map[string]float64) error {
	var errs []error
	any := false
	for name, w := range weights {
		if _, ok := builders[name]; !ok {
			errs = append(errs, unknown("scorer", name, Names()))
		}
		if w < 0 || math.IsNaN(w) || math.IsInf(w, 0) {
			errs = append(errs, fmt.Errorf("weight of %s is %v; it must be 0 or more, and finite", name, w))
		}
		any = any || w > 0
	}
	if !any && len(errs) == 0 {
		errs = append(errs, errors.New("all weights are 0: nothing can be chosen by them; leave them out to use the profile"))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// Choose returns the indices of the pod for the request and of the one to try
// if that fails. A negative index is none; then req.Refusal says why.
func (p *Profile) Choose(req *Request, pods []podstate.Candidate) (first, second int) {
	left := p.filter(req, pods)
	if len(left) == 0 {
		return -1, -1
	}
	first, second = p.cheapest(req, left)
	if len(p.index) > 0 {
		first = p.index[first]
		if second >= 0 {
			second = p.index[second]
		}
	}
	return first, second
}

// cheapest returns the indices of the two pods of the lowest costs.
func (p *Profile) cheapest(req *Request, pods []podstate.Candidate) (first, second int) {
	p.costs = slices.Grow(p.costs[:0], len(pods))[:len(pods)]
	policy := p.ladder(req, pods)
	policy.cost(req, pods, p.costs)

	best := math.Inf(1)
	for i, c := range p.costs {
		if math.IsNaN(c) { // a bug of a policy must not stop traffic
			c = math.Inf(1)
			p.costs[i] = c
		}
		if c < best {
			best = c
		}
	}
	key := req.Seed
	if n, ok := policy.(nearer); ok {
		best += n.near(best)
		key = req.Key
	}
	places := p.placesOf(pods)
	first, second = -1, -1
	var firstHash, secondHash uint64
	for i, c := range p.costs {
		if c > best {
			continue
		}
		if h := places[i].order(key); first < 0 || h > firstHash {
			first, firstHash = i, h
		}
	}
	for i, c := range p.costs {
		if i == first || second >= 0 && c > p.costs[second] {
			continue
		}
		if h := mix(req.Seed, places[i].slot); second < 0 || c < p.costs[second] || h > secondHash {
			second, secondHash = i, h
		}
	}
	return first, second
}

// nearer is a policy for which pods of nearly the same cost are equal. Of those
// the one is taken to which the request's key points.
type nearer interface {
	near(best float64) (more float64)
}

// filter returns the pods that may take the request: all, as they stand, or a
// copy of some, and then p.index has their places among all.
func (p *Profile) filter(req *Request, pods []podstate.Candidate) []podstate.Candidate {
	p.index = p.index[:0]
	if len(pods) == 0 {
		req.Refusal = RefusalNoPod
	}
	for _, s := range p.filters {
		if len(pods) == 0 {
			break
		}
		p.out = slices.Grow(p.out[:0], len(pods))[:len(pods)]
		switch n := s.filter.Filter(req, pods, p.out); {
		case n == 0: // most filters find nothing most of the time
		case n < len(pods):
			pods = p.keep(pods)
		case s.hard:
			req.Refusal = s.refusal
			return nil
		}
	}
	return pods
}

// keep copies the pods that are not ruled out.
func (p *Profile) keep(pods []podstate.Candidate) []podstate.Candidate {
	all := len(p.index) == 0 // so far
	left, index := p.left[:0], p.index[:0]
	for i := range pods {
		if p.out[i] {
			continue
		}
		at := i
		if !all {
			at = p.index[i]
		}
		left, index = append(left, pods[i]), append(index, at)
	}
	p.left, p.index = left, index
	return left
}

// mix is a hash of both: the order of pods in which ties are broken.
func mix(key uint64, slot int) uint64 {
	h := key ^ (uint64(slot)+1)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
