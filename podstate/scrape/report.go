package scrape

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// String says it in a few words.
func (h Headers) String() string {
	return [...]string{
		HeadersUnknown:    "nothing that is known",
		HeadersAccepted:   "accepted",
		HeadersSlot:       "slot assigned",
		HeadersFirstToken: "first token",
	}[h]
}

// WriteTo writes the report for people.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	out := &sink{w: w}
	fmt.Fprintf(out, "%s is %s\n\n", r.URL, r.Engine)
	how := "all series"
	if r.Named {
		how = "the wanted series only"
	}
	fmt.Fprintf(out, "asked   %s for %s: %.1f KB in %v (all: %.1f KB, %d families)\n\n",
		r.Path, how, float64(r.Bytes)/1000, r.Took.Round(100*time.Microsecond), float64(r.Full)/1000, r.Series)

	tab := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tab, "FIELD\tVALUE\tSOURCE")
	for _, f := range r.Fields {
		if f.Value == "" {
			continue
		}
		source := f.Source
		if f.Age > 0 {
			source += fmt.Sprintf(" (%v old)", f.Age.Round(100*time.Millisecond))
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\n", f.Name, f.Value, source)
	}
	_ = tab.Flush()
	head := "\nNOT REPORTED\tWHAT THAT COSTS"
	for _, f := range r.Fields {
		if f.Value != "" {
			continue
		}
		if head != "" {
			fmt.Fprintln(tab, head)
			head = ""
		}
		cost := f.Missing
		if cost == "" {
			cost = "little"
		}
		fmt.Fprintf(tab, "%s\t%s\n", f.Name, cost)
	}
	_ = tab.Flush()
	for i, n := range r.Notes {
		if i == 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "note: %s\n", n)
	}
	return out.n, out.err
}

// sink keeps the first error, so that a report is written without asking at
// each line.
type sink struct {
	w   io.Writer
	n   int64
	err error
}

func (c *sink) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.err = err
	return n, err
}

// sources lists the series that a quantity was read from.
func (r *reader) sources(q quantity) (names []string) {
	for _, i := range r.prog.byIs[q] {
		row := &r.prog.rows[i]
		if len(r.acc[i]) == 0 || len(names) > 0 && !row.plus {
			continue
		}
		name := row.name
		if row.where != "" {
			name += "{" + row.where + "}"
		}
		if row.label != "" {
			name += " " + row.label
		}
		names = append(names, name)
	}
	return names
}

// age is how long ago the newest combination of adapters was written.
func (l *lora) age(now time.Time) time.Duration {
	newest := 0.0
	for _, s := range l.now {
		newest = max(newest, l.time(s.value, float64(now.Unix())))
	}
	seconds, fraction := math.Modf(newest)
	return max(0, now.Sub(time.Unix(int64(seconds), int64(1e9*fraction))))
}

// source is the path that a field was read from, or empty.
func (l *loader) source(f podstate.Field) string {
	const slots = podstate.FieldRunning | podstate.FieldMaxRunning | podstate.FieldMaxModelLen
	const loads = podstate.FieldRunning | podstate.FieldWaiting | podstate.FieldKVUsage | podstate.FieldKVTokens | podstate.FieldMaxRunning
	const both = podstate.FieldLoad | podstate.FieldPrefillTokens
	switch {
	case l.kind == vllmLoad && f == podstate.FieldLoad:
		return "/load"
	case l.kind == sglangLoads && f&(loads|both) != 0:
		return "/v1/loads"
	case l.kind == llamaSlots && f&(slots|both) != 0:
		return "/slots"
	}
	return ""
}

func (k cardKind) path() string {
	return [...]string{noCard: "", openAICard: "/v1/models", tgiInfoCard: "/info"}[k]
}
