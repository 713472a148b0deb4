package replay

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
	"github.com/warmpath/warmpath/scorers/sim"
)

// reference is the profile whose cost, in seconds, says what a choice is worth.
const reference = "latency"

// Study makes logged decisions again, and compares them with what other policies
// would have chosen in the same states.
type Study struct {
	decisions  int
	reproduced int
	unreadable int
	problem    error  // with the first line that was unreadable
	unequal    string // the first decision that came out otherwise

	pools       map[string]bool
	least, most int // pods
	from, to    time.Time

	logged    map[string]Policy // by name and weights
	reference *scorers.Profile
	others    []*other
	onRow     func(row) error
}

// other is a policy to compare with.
type other struct {
	name   string
	policy Policy

	differ  int
	refused int // by one of both only
	later   []float64
	dearer  []float64
}

// row is one policy's choice.
type row struct {
	*Decision
	policy     string
	pod        *podstate.Pod
	same       bool    // as logged
	firstToken float64 // seconds; NaN for none
	cost       float64 // by the reference; NaN for none
}

// NewStudy returns a study that compares with these policies: names of profiles,
// or weights such as queue=2,prefix=3.
func NewStudy(policies []string) (*Study, error) {
	s := &Study{pools: map[string]bool{}, logged: map[string]Policy{}}
	var err error
	if s.reference, err = scorers.NewProfile(reference, nil); err != nil {
		return nil, err
	}
	for _, name := range policies {
		build, err := sim.ParsePolicy(name)
		if err != nil {
			return nil, err
		}
		p, err := build()
		if err != nil {
			return nil, err
		}
		s.others = append(s.others, &other{name: name, policy: p})
	}
	return s, nil
}

// Skip takes note of a line that could not be read.
func (s *Study) Skip(err error) {
	s.unreadable++
	if s.problem == nil {
		s.problem = err
	}
}

// Add studies a decision.
func (s *Study) Add(d *Decision) error {
	p, err := s.profile(d)
	if err != nil {
		s.Skip(fmt.Errorf("decision %s: %w", d.ID(), err))
		return nil
	}
	s.count(d)
	first, second, refusal := d.Choose(p)
	if first == d.First && second == d.Second && refusal == d.Request.Refusal {
		s.reproduced++
	} else if s.unequal == "" {
		s.unequal = d.ID()
	}
	if len(s.others) == 0 && s.onRow == nil {
		return nil
	}
	value := s.valuer(d)
	was := value("", d.First)
	if err := s.row(was); err != nil {
		return err
	}
	for _, o := range s.others {
		pod, _, _ := d.Choose(o.policy)
		is := value(o.name, pod)
		if !is.same {
			o.add(was, is)
		}
		if err := s.row(is); err != nil {
			return err
		}
	}
	return nil
}

// row hands a row on, if anybody wants it.
func (s *Study) row(r row) error {
	if s.onRow == nil {
		return nil
	}
	return s.onRow(r)
}

// valuer returns what values choices of a pod for this request.
func (s *Study) valuer(d *Decision) func(policy string, pod *podstate.Pod) row {
	req := d.Request
	verdicts := s.reference.Explain(&req, d.Candidates)
	return func(policy string, pod *podstate.Pod) row {
		r := row{Decision: d, policy: policy, pod: pod, same: pod == d.First, firstToken: math.NaN(), cost: math.NaN()}
		if i := d.index(pod); i >= 0 {
			r.firstToken, r.cost = d.firstToken(&d.Candidates[i]), verdicts[i].Cost
		}
		return r
	}
}

func (s *Study) count(d *Decision) {
	n := len(d.Candidates)
	if s.decisions == 0 {
		s.least, s.from, s.to = n, d.Time, d.Time
	}
	s.decisions++
	s.pools[d.Pool] = true
	s.least, s.most = min(s.least, n), max(s.most, n)
	if d.Time.Before(s.from) {
		s.from = d.Time
	}
	if d.Time.After(s.to) {
		s.to = d.Time
	}
}

// profile returns the one that made the decision.
func (s *Study) profile(d *Decision) (Policy, error) {
	key := d.policyName()
	p, ok := s.logged[key]
	if !ok {
		var err error
		if p, err = scorers.NewProfile(d.Profile, d.Weights); err != nil {
			return nil, err
		}
		s.logged[key] = p
	}
	return p, nil
}

// policyName is the profile with its weights.
func (d *Decision) policyName() string {
	if len(d.Weights) == 0 {
		return d.Profile
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(d.Weights)) {
		parts = append(parts, fmt.Sprintf("%s=%v", name, d.Weights[name]))
	}
	return d.Profile + " " + strings.Join(parts, ",")
}

// add takes note of a choice that differs from the logged one.
func (o *other) add(was, is row) {
	o.differ++
	if was.pod == nil || is.pod == nil {
		o.refused++
		return
	}
	o.later = append(o.later, is.firstToken-was.firstToken)
	// What the reference passes over has no cost.
	if x := is.cost - was.cost; !math.IsNaN(x) {
		o.dearer = append(o.dearer, x)
	}
}

// OK reports whether every line was read and every choice came out as logged.
func (s *Study) OK() error {
	switch {
	case s.unreadable > 0:
		return fmt.Errorf("%d lines could not be replayed; %w", s.unreadable, s.problem)
	case s.reproduced < s.decisions:
		return fmt.Errorf("%d of %d choices came out otherwise than logged, %s as the first; was the log written by another version of warmpath?",
			s.decisions-s.reproduced, s.decisions, s.unequal)
	}
	return nil
}
