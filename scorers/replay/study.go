package replay

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
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
	rows      *csv.Writer // nil: nobody wants them
}

// other is a policy to compare with.
type other struct {
	name   string
	policy Policy

	differ  int
	refused int       // by one of both only
	later   []float64 // seconds until the first token, more than with the logged choice
	dearer  []float64 // cost by the reference
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
func (s *Study) Add(d *Decision) {
	name := d.policyName()
	p, ok := s.logged[name]
	if !ok {
		profile, err := scorers.NewProfile(d.Profile, d.Weights)
		if err != nil {
			s.Skip(fmt.Errorf("decision %s: %w", d.ID(), err))
			return
		}
		p = profile
		s.logged[name] = p
	}
	s.count(d)
	first, second, refusal := d.Choose(p)
	if first == d.First && second == d.Second && refusal == d.Request.Refusal {
		s.reproduced++
	} else if s.unequal == "" {
		s.unequal = d.ID()
	}
	if len(s.others) == 0 && s.rows == nil {
		return
	}
	req := d.Request
	verdicts := s.reference.Explain(&req, d.Candidates)
	later, cost := d.worth(d.First, verdicts)
	s.row(d, "", d.First, later, cost)
	for _, o := range s.others {
		pod, _, _ := d.Choose(o.policy)
		l, c := d.worth(pod, verdicts)
		s.row(d, o.name, pod, l, c)
		switch {
		case pod == d.First:
			continue
		case pod == nil || d.First == nil:
			o.refused++
		default:
			o.later = append(o.later, l-later)
			if x := c - cost; !math.IsNaN(x) { // what the reference passes over has no cost
				o.dearer = append(o.dearer, x)
			}
		}
		o.differ++
	}
}

func (s *Study) count(d *Decision) {
	n := len(d.Candidates)
	if s.decisions == 0 {
		s.least, s.from = n, d.Time
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

// worth is when the request's first token would come from this pod, in seconds,
// and what that costs by the verdicts; NaN for none.
func (d *Decision) worth(pod *podstate.Pod, verdicts []scorers.Verdict) (firstToken, cost float64) {
	i := d.index(pod)
	if i < 0 {
		return math.NaN(), math.NaN()
	}
	return FirstToken(&d.Candidates[i], d.Request.Tokens, d.Candidates[i].Cached), verdicts[i].Cost
}

// WriteCSV writes a row for each choice that is added from now on, the logged
// ones among them. Call the result when all are added.
func (s *Study) WriteCSV(w io.Writer) (flush func() error) {
	rows := csv.NewWriter(w)
	rows.Write([]string{"id", "time", "pool", "profile", "tokens", "output", "policy", "pod", "as_logged", "first_token_seconds", "cost"})
	s.rows = rows
	return func() error {
		rows.Flush()
		return rows.Error()
	}
}

// row writes a choice down, if anybody wants it. The writer remembers errors.
func (s *Study) row(d *Decision, policy string, pod *podstate.Pod, firstToken, cost float64) {
	if s.rows == nil {
		return
	}
	addr := ""
	if pod != nil {
		addr = pod.Addr
	}
	s.rows.Write([]string{d.ID(), d.Time.UTC().Format(time.RFC3339Nano), d.Pool, d.policyName(), strconv.Itoa(d.Request.Tokens),
		strconv.Itoa(d.Request.Output), policy, addr, strconv.FormatBool(pod == d.First), digits(firstToken, 6), digits(cost, 6)})
}

// OK reports whether there were lines, every one was read and every choice came
// out as logged.
func (s *Study) OK() error {
	switch {
	case s.unreadable > 0:
		return fmt.Errorf("%d lines could not be replayed; %w", s.unreadable, s.problem)
	case s.decisions == 0:
		return errors.New("the log holds no decisions; server.decisionLog of the configuration says where they are written")
	case s.reproduced < s.decisions:
		return fmt.Errorf("%d of %d choices came out otherwise than logged, %s as the first; was the log written by another version of warmpath?",
			s.decisions-s.reproduced, s.decisions, s.unequal)
	}
	return nil
}

// WriteText prints what the study has found.
func (s *Study) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "decisions\t%d", s.decisions)
	if s.decisions > 0 {
		pods := strconv.Itoa(s.least)
		if s.most > s.least {
			pods += fmt.Sprintf(" to %d", s.most)
		}
		fmt.Fprintf(t, ", of %s, among %s pods, %s to %s", strings.Join(slices.Sorted(maps.Keys(s.pools)), ", "), pods,
			s.from.UTC().Format(time.DateTime), s.to.UTC().Format(time.DateTime))
	}
	fmt.Fprintf(t, "\nreproduced\t%d\n", s.reproduced)
	if s.unreadable > 0 {
		fmt.Fprintf(t, "not replayed\t%d\n", s.unreadable)
	}
	if err := t.Flush(); err != nil || len(s.others) == 0 {
		return err
	}
	fmt.Fprintf(w, `
What other policies would have chosen, each time in the state that was logged.
The differences are seconds, as predicted, by which their choice is worse: until
the request's own first token, and as cost by profile %s.

`, reference)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tdiffer\t\tof all, mean\tfirst token, mean\tp50\tp95\tmax\tcost, mean\tp50\tp95\tmax\tno pod\t")
	for _, o := range s.others {
		n := float64(max(1, s.decisions))
		fmt.Fprintf(t, "%s\t%d\t%.1f%%\t%s\t%s\t%s\t%d\t\n", o.name, o.differ, 100*float64(o.differ)/n, signed(sum(o.later)/n),
			distribution(o.later), distribution(o.dearer), o.refused)
	}
	return t.Flush()
}

// distribution is the mean, the median, the 95th percentile and the largest of x.
func distribution(x []float64) string {
	if len(x) == 0 {
		return "-\t-\t-\t-"
	}
	slices.Sort(x)
	at := func(q float64) float64 { return x[int(math.Ceil(q*float64(len(x))))-1] } // nearest rank
	return strings.Join([]string{signed(sum(x) / float64(len(x))), signed(at(0.5)), signed(at(0.95)), signed(x[len(x)-1])}, "\t")
}

func sum(x []float64) (sum float64) {
	for _, v := range x {
		sum += v
	}
	return sum
}

func signed(x float64) string {
	if x == 0 {
		return "0"
	}
	return fmt.Sprintf("%+.3g", x)
}
