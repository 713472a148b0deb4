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
// pod, and what the profile made of it. The chosen pod is the first, then come
// the others by their cost, and last those that were passed over.
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
	if p, err := scorers.NewProfile(d.Profile, d.Weights); err == nil {
		req := d.Request
		verdicts = p.Explain(&req, d.Candidates)
	} else {
		fmt.Fprintf(w, "without costs: %v\n", err)
	}

	var scores []scorers.Score // those that pods have which were not passed over
	rows := make([]int, len(d.Candidates))
	for i := range rows {
		rows[i] = i
		if len(verdicts[i].Scores) > 0 {
			scores = verdicts[i].Scores
		}
	}
	place := func(i int) uint { // what is passed over, and so not in the list, gets the greatest
		return uint(slices.Index([]string{"first", "second", ""}, d.choice(i, &verdicts[i])))
	}
	slices.SortStableFunc(rows, func(i, j int) int {
		return cmp.Or(cmp.Compare(place(i), place(j)), cmp.Compare(verdicts[i].Cost, verdicts[j].Cost))
	})
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\npod\taddress\tchoice\tcost\t")
	for _, s := range scores {
		fmt.Fprintf(t, "%s×%v\t", s.Name, s.Weight)
	}
	fmt.Fprint(t, "first token\twait\tcached\ts/token\trequests\tunseen\tage\ttrust\trunning\twaiting\tkv\tadapter\tramp\n")
	for _, i := range rows {
		d.row(t, i, &verdicts[i], len(scores))
	}
	return t.Flush()
}

// choice says what became of a candidate.
func (d *Decision) choice(i int, v *scorers.Verdict) string {
	switch c := &d.Candidates[i]; {
	case c.Pod == d.First:
		return "first"
	case c.Pod == d.Second:
		return "second"
	case v.Filter != "" && c.Health.Out != "":
		return v.Filter + ": " + c.Health.Out
	}
	return v.Filter
}

// row prints what was known of a candidate, and the verdict with so many scores.
func (d *Decision) row(w io.Writer, i int, v *scorers.Verdict, scores int) {
	c := &d.Candidates[i]
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t", c.Pod.Spec.Name, c.Pod.Addr, d.choice(i, v), short(v.Cost))
	for k := range scores {
		if k < len(v.Scores) {
			fmt.Fprint(w, short(v.Scores[k].Value))
		}
		fmt.Fprint(w, "\t")
	}
	age := short(c.Age) + "s"
	if math.IsInf(c.Age, 1) {
		age = "never"
	}
	known := func(f podstate.Field, x float64) string {
		if !c.Stats.Has(f) {
			return "?"
		}
		return short(x)
	}
	adapter := [...]string{"", "resident", "free slot", "full", "missing"}[min(c.Adapter, podstate.AdapterMissing)]
	fmt.Fprintf(w, "%ss\t%ss\t%d\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
		short(FirstToken(c, d.Request.Tokens, c.Cached)), short(c.Wait), c.Cached, short(c.Speed.Token), c.Charge.Requests, c.Unseen, age, short(c.Trust),
		known(podstate.FieldRunning, c.Stats.Running), known(podstate.FieldWaiting, c.Stats.Waiting), known(podstate.FieldKVUsage, c.Stats.KVUsage),
		adapter, short(c.Health.Ramp))
}

func short(x float64) string { return digits(x, 3) }

// digits is empty for what there is none of.
func digits(x float64, n int) string {
	if math.IsNaN(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', n, 64)
}
