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
		fmt.Fprintf(t, ", of %s, among %s pods, %s to %s", strings.Join(slices.Sorted(maps.Keys(s.pools)), ", "), span(s.least, s.most),
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
		share, all := 0.0, 0.0
		if s.decisions > 0 {
			share = 100 * float64(o.differ) / float64(s.decisions)
			for _, x := range o.later {
				all += x / float64(s.decisions)
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f%%\t%s\t%s\t%s\t%d\t\n", o.name, o.differ, share, digits(all), distribution(o.later), distribution(o.dearer), o.refused)
	}
	return t.Flush()
}

func span(least, most int) string {
	if least == most {
		return strconv.Itoa(least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// distribution is the mean, the median, the 95th percentile and the largest of x.
func distribution(x []float64) string {
	if len(x) == 0 {
		return "-\t-\t-\t-"
	}
	slices.Sort(x)
	mean := 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	at := func(q float64) float64 { return x[int(math.Ceil(q*float64(len(x))))-1] } // nearest rank
	return strings.Join([]string{digits(mean), digits(at(0.5)), digits(at(0.95)), digits(x[len(x)-1])}, "\t")
}

func digits(x float64) string {
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
	s.onRow = func(r row) error {
		pod := ""
		if r.pod != nil {
			pod = r.pod.Addr
		}
		return rows.Write([]string{r.ID(), r.Time.UTC().Format(time.RFC3339Nano), r.Pool, r.policyName(),
			strconv.Itoa(r.Request.Tokens), strconv.Itoa(r.Request.Output), r.policy, pod, strconv.FormatBool(r.same),
			number(r.firstToken), number(r.cost)})
	}
	return func() error {
		rows.Flush()
		return rows.Error()
	}
}

// number is empty for what there is none of.
func number(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', 6, 64)
}
