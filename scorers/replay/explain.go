package replay

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

// Explain prints why the decision came out as it did: what was known of each
// pod, and what the profile made of it. The chosen pod is the first.
func (d *Decision) Explain(w io.Writer) error {
	fmt.Fprintf(w, "decision %s of %s, pool %s, profile %s\n", d.ID(), d.Time.UTC().Format(time.RFC3339Nano), d.Pool, d.policyName())
	fmt.Fprintf(w, "request of %d prompt tokens, %d expected output", d.Request.Tokens, d.Request.Output)
	if d.Request.Adapter != "" {
		fmt.Fprintf(w, ", adapter %s", d.Request.Adapter)
	}
	if d.Request.Subset != nil {
		fmt.Fprintf(w, ", only for %s", strings.Join(d.Request.Subset, ", "))
	}
	fmt.Fprintf(w, "; rung %v\n", d.Request.Rung)
	if d.First == nil {
		fmt.Fprintf(w, "refused: %s\n", cmp.Or(d.Request.Refusal, "no reason given"))
	}
	verdicts := make([]scorers.Verdict, len(d.Candidates))
	p, err := scorers.NewProfile(d.Profile, d.Weights)
	if err == nil {
		req := d.Request
		verdicts = p.Explain(&req, d.Candidates)
	} else {
		fmt.Fprintf(w, "without costs: %v\n", err)
	}
	fmt.Fprintln(w)
	return d.table(w, verdicts)
}

// views are the columns of an explanation, in which all else is looked up that
// is worth a look.
var views = []struct {
	name string
	of   func(*Decision, *candidate) string
}{
	{"first token", func(d *Decision, c *candidate) string { return short(d.firstToken(c)) + "s" }},
	{"wait", func(_ *Decision, c *candidate) string { return short(c.Wait) + "s" }},
	{"cached", func(_ *Decision, c *candidate) string { return strconv.Itoa(c.Cached) }},
	{"s/token", func(_ *Decision, c *candidate) string { return short(c.Speed.Token) }},
	{"requests", func(_ *Decision, c *candidate) string { return strconv.Itoa(c.Charge.Requests) }},
	{"unseen", func(_ *Decision, c *candidate) string { return strconv.Itoa(c.Unseen) }},
	{"age", func(_ *Decision, c *candidate) string {
		if math.IsInf(c.Age, 1) {
			return "never"
		}
		return short(c.Age) + "s"
	}},
	{"trust", func(_ *Decision, c *candidate) string { return short(c.Trust) }},
	{"running", known(podstate.FieldRunning, func(s *podstate.Stats) float64 { return s.Running })},
	{"waiting", known(podstate.FieldWaiting, func(s *podstate.Stats) float64 { return s.Waiting })},
	{"kv", known(podstate.FieldKVUsage, func(s *podstate.Stats) float64 { return s.KVUsage })},
	{"adapter", func(_ *Decision, c *candidate) string {
		return [...]string{"", "resident", "free slot", "full", "missing"}[min(c.Adapter, podstate.AdapterMissing)]
	}},
	{"ramp", func(_ *Decision, c *candidate) string { return short(c.Health.Ramp) }},
}

func known(f podstate.Field, of func(*podstate.Stats) float64) func(*Decision, *candidate) string {
	return func(_ *Decision, c *candidate) string {
		if !c.Stats.Has(f) {
			return "?"
		}
		return short(of(c.Stats))
	}
}

// order lists the candidates: the chosen ones, then the others by their cost,
// then those that were passed over.
func (d *Decision) order(verdicts []scorers.Verdict) []int {
	rank := func(i int) int {
		switch {
		case d.Candidates[i].Pod == d.First:
			return 0
		case d.Candidates[i].Pod == d.Second:
			return 1
		case verdicts[i].Filter == "":
			return 2
		}
		return 3
	}
	order := make([]int, len(d.Candidates))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(rank(i), rank(j)), cmp.Compare(verdicts[i].Cost, verdicts[j].Cost))
	})
	return order
}

func (d *Decision) table(w io.Writer, verdicts []scorers.Verdict) error {
	var scores []scorers.Score // those that pods have which were not passed over
	for _, v := range verdicts {
		if len(v.Scores) > 0 {
			scores = v.Scores
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "pod\taddress\tchoice\tcost")
	for _, s := range scores {
		fmt.Fprintf(t, "\t%s×%v", s.Name, s.Weight)
	}
	for _, v := range views {
		fmt.Fprintf(t, "\t%s", v.name)
	}
	fmt.Fprintln(t)
	for _, i := range d.order(verdicts) {
		c, v := &d.Candidates[i], &verdicts[i]
		choice := v.Filter
		switch {
		case c.Pod == d.First:
			choice = "first"
		case c.Pod == d.Second:
			choice = "second"
		case choice != "" && c.Health.Out != "":
			choice += ": " + c.Health.Out
		}
		cost := ""
		if !math.IsNaN(v.Cost) {
			cost = short(v.Cost)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s", c.Pod.Spec.Name, c.Pod.Addr, choice, cost)
		for k := range scores {
			text := ""
			if k < len(v.Scores) {
				text = short(v.Scores[k].Value)
			}
			fmt.Fprintf(t, "\t%s", text)
		}
		for _, view := range views {
			fmt.Fprintf(t, "\t%s", view.of(d, c))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func short(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }
