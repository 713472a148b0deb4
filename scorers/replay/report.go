package replay

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

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
