package sim

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
)

// four are the measures that users read first. They are infinite if no token
// came at all.
var four = []struct {
	name string
	of   func(*Measures) float64
}{
	{"p50", func(m *Measures) float64 { return came(m.TTFT.P50) }},
	{"mean", func(m *Measures) float64 { return came(m.TTFT.Mean) }},
	{"p95", func(m *Measures) float64 { return came(m.TTFT.P95) }},
	{"p99", func(m *Measures) float64 { return came(m.TTFT.P99) }},
}

func came(seconds float64) float64 {
	if seconds == 0 {
		return math.Inf(1)
	}
	return seconds
}

// finite reports whether x is a time, or a multiple of one: that of requests
// that got an answer.
func finite(x float64) bool { return x > 0 && x <= math.MaxFloat64 }

// text prints the tables of a study: medians over the seeds, then how each
// policy compares with the first one.
func (r *result) text(w io.Writer) error {
	sc := r.scenario
	source := "generated load"
	switch {
	case r.trace != nil:
		source = "recorded load"
	case sc.Trace != "":
		source = "generated load in place of " + sc.Trace
	}
	fmt.Fprintf(w, "%s: %s\n%s, %s, scrape %v, %d router(s), %d seed(s)\n", sc.Name, sc.About, sc.size(), source, sc.Scrape, max(1, sc.Routers), r.seeds)
	for k := range r.scales {
		if err := r.table(w, k); err != nil {
			return err
		}
	}
	return nil
}

func (r *result) table(w io.Writer, k int) error {
	runs := r.runs[k]
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nload ×%g, %.0f requests; seconds to first token, whole answer, per token\n", r.scales[k], mean(values(runs[0], func(m *Measures) float64 { return float64(m.Requests) })))
	fmt.Fprintln(t, "policy\tp50\tmean\tp95\tp99\tanswer p50\tp99\ttoken p50\tp99\thits\tfailed\tunfinished\ttokens/s\tpreempted\tworst mean\tcollapsed\tfrontier\t")
	fallen := collapsed(runs)
	for p, name := range r.policies {
		col := func(of func(*Measures) float64) float64 { return median(values(runs[p], of)) }
		worst := 0.0
		for _, m := range runs[p] {
			worst = max(worst, came(m.TTFT.Mean))
		}
		fmt.Fprintf(t, "%s\t", name)
		for _, c := range four {
			fmt.Fprintf(t, "%s\t", digits(col(c.of)))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.1f%%\t%.1f%%\t%.1f%%\t%.0f\t%.0f\t%s\t%d/%d\t%s\t\n",
			digits(col(func(m *Measures) float64 { return m.Total.P50 })), digits(col(func(m *Measures) float64 { return m.Total.P99 })),
			digits(col(func(m *Measures) float64 { return m.TPOT.P50 })), digits(col(func(m *Measures) float64 { return m.TPOT.P99 })),
			100*col(func(m *Measures) float64 { return m.Hit }), 100*col(func(m *Measures) float64 { return m.Failed }),
			100*col(func(m *Measures) float64 { return m.Unfinished }), col(func(m *Measures) float64 { return m.Throughput }),
			col(func(m *Measures) float64 { return float64(m.Preemptions) }), digits(worst), fallen[p], r.seeds, r.frontier(k, p))
	}
	if err := t.Flush(); err != nil || len(r.policies) < 2 {
		return err
	}
	fmt.Fprintf(w, "\ntimes to first token as multiples of those of %s, with 95 %% confidence over the seeds; = is a tie\n", r.policies[0])
	fmt.Fprintln(t, "policy\tp50\tmean\tp95\tp99\t")
	for p := 1; p < len(r.policies); p++ {
		fmt.Fprintf(t, "%s\t", r.policies[p])
		for _, c := range four {
			fmt.Fprintf(t, "%s\t", multiple(ratio(values(runs[p], c.of), values(runs[0], c.of))))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// frontier is "yes" for a policy on the frontier, and else names one that is better
// in all four times to first token, or as good. Who has no times is not on it.
func (r *result) frontier(k, p int) string {
	if !finite(r.ttft(k, p, 0)) {
		return "no"
	}
	for q, name := range r.policies {
		if q != p && r.beats(k, q, p) {
			return "< " + name
		}
	}
	return "yes"
}

// beats reports whether no time of q is longer than that of p, and one is
// shorter.
func (r *result) beats(k, q, p int) bool {
	shorter := false
	for i := range four {
		a, b := r.ttft(k, q, i), r.ttft(k, p, i)
		if !(a <= b) {
			return false
		}
		shorter = shorter || a < b
	}
	return shorter
}

// ttft is the median over the seeds of one of the four measures.
func (r *result) ttft(k, p, which int) float64 {
	if m := median(values(r.runs[k][p], four[which].of)); !math.IsNaN(m) {
		return m
	}
	return math.Inf(1) // amid infinite ones
}

func multiple(r Ratio) string {
	if !finite(r.Value) {
		return "-"
	}
	sign := ""
	if r.Tie() {
		sign = "= "
	}
	return fmt.Sprintf("%s%.2f [%.2f, %.2f]", sign, r.Value, r.Low, r.High)
}

// digits prints seconds with three digits.
func digits(x float64) string {
	if !finite(x) {
		return "-"
	}
	if x >= 100 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

var csvHead = []string{"scenario", "scrape", "routers", "load", "policy", "seed", "requests", "ttft_p50", "ttft_mean", "ttft_p95", "ttft_p99",
	"total_p50", "total_mean", "total_p95", "total_p99", "tpot_p50", "tpot_mean", "tpot_p95", "tpot_p99",
	"hit", "failed", "unfinished", "tokens_per_second", "preemptions", "adapter_loads"}

func (r *result) csv(w *csv.Writer) error {
	for k, scale := range r.scales {
		for p, name := range r.policies {
			for i := range r.seeds {
				m := &r.runs[k][p][i]
				row := []string{r.scenario.Name, r.scenario.Scrape.String(), strconv.Itoa(max(1, r.scenario.Routers)), ftoa(scale), name, strconv.FormatUint(r.first+uint64(i), 10), strconv.Itoa(m.Requests)}
				for _, s := range []Spread{m.TTFT, m.Total, m.TPOT} {
					row = append(row, ftoa(s.P50), ftoa(s.Mean), ftoa(s.P95), ftoa(s.P99))
				}
				row = append(row, ftoa(m.Hit), ftoa(m.Failed), ftoa(m.Unfinished), ftoa(m.Throughput), strconv.Itoa(m.Preemptions), strconv.Itoa(m.AdapterLoads))
				if err := w.Write(row); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func ftoa(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }

// sweepTable compares settings of one scenario, if there are several: mean and
// p99 of the time to first token at the first density.
func sweepTable(w io.Writer, done []*result) error {
	if len(done) < 2 {
		return nil
	}
	fmt.Fprintf(w, "%s, load ×%g: mean and p99 of the seconds to first token\n", done[0].scenario.Name, done[0].scales[0])
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "policy\t")
	for _, r := range done {
		fmt.Fprintf(t, "%v, %d router(s)\t", r.scenario.Scrape, max(1, r.scenario.Routers))
	}
	fmt.Fprintln(t)
	for p, name := range done[0].policies {
		fmt.Fprintf(t, "%s\t", name)
		for _, r := range done {
			fmt.Fprintf(t, "%s  %s\t", digits(r.ttft(0, p, 1)), digits(r.ttft(0, p, 3)))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
