package sim

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// tied is by how much two times may differ and still count as equal.
const tied = 0.03

// summary compares the policies over many scenarios, at the first density. Of
// each it says how far it is behind the best of the others, in the geometric
// mean over the scenarios; in how many it is behind by more than what counts as
// equal; and by how much in the worst one.
func summary(w io.Writer, done []*result) error {
	if len(done) < 2 || len(done[0].policies) < 2 {
		return nil
	}
	fmt.Fprintf(w, "%d scenarios: times to first token as multiples of those of the best other policy:\ngeometric mean, share of scenarios in which they are more than %.0f %% longer, worst scenario\n", len(done), 100*tied)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tp50\tmean\tp95\tp99\tcollapsed seeds\t")
	for p, name := range done[0].policies {
		fmt.Fprintf(t, "%s\t", name)
		for i := range four {
			logs, behind, worst := 0.0, 0.0, 0.0
			n := 0.0
			for _, r := range done {
				best := r.bestOther(p, i)
				if !finite(best) {
					continue // nobody to be behind
				}
				x := r.ttft(0, p, i) / best
				logs += math.Log(x)
				worst = max(worst, x)
				if x > 1+tied {
					behind++
				}
				n++
			}
			mean := "-"
			if x := math.Exp(logs / n); finite(x) {
				mean = fmt.Sprintf("%.2f", x)
			}
			fmt.Fprintf(t, "%s  %.0f%%  %s\t", mean, 100*behind/max(n, 1), digits(worst))
		}
		fallen := 0
		for _, r := range done {
			fallen += collapsed(r.runs[0])[p]
		}
		fmt.Fprintf(t, "%d\t\n", fallen)
	}
	return t.Flush()
}

// bestOther is the smallest of a measure among the policies but p.
func (r *result) bestOther(p, measure int) float64 {
	best := math.Inf(1)
	for q := range r.policies {
		if q != p {
			best = min(best, r.ttft(0, q, measure))
		}
	}
	return best
}
