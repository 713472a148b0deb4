package sim

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

// ErrUsage is in errors that say that the arguments of Main are wrong.
var ErrUsage = errors.New("wrong arguments")

func misuse(err error) error { return fmt.Errorf("%w: %w", ErrUsage, err) }

// Main is the command `warmpath sim`.
func Main(ctx context.Context, args []string, stdout io.Writer) error {
	s, err := parseArgs(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return misuse(err)
	}
	if s.list {
		for _, name := range Names() {
			sc, _ := Find(name)
			fmt.Fprintf(stdout, "%-12s %s; %s\n", name, sc.About, sc.size())
		}
		return nil
	}
	var plan [][]*study // by scenario
	for _, name := range s.scenarios {
		variants, err := s.variants(name)
		if err != nil {
			return err
		}
		plan = append(plan, variants)
	}
	rows, err := s.open(plan)
	if err != nil {
		return err
	}
	results := map[string]*result{}
	var first []*result // of each scenario
	for _, variants := range plan {
		var done []*result
		for _, v := range variants {
			r, err := v.run(ctx)
			if err != nil {
				return err
			}
			done = append(done, r)
			if err := r.print(stdout, rows); err != nil {
				return err
			}
		}
		results[done[0].scenario.Name] = done[0]
		first = append(first, done[0])
		if err := sweepTable(stdout, done); err != nil {
			return err
		}
	}
	if err := summary(stdout, first); err != nil {
		return err
	}
	if s.policies[0] == "round-robin" {
		if err := awsTable(stdout, results); err != nil {
			return err
		}
	}
	return nil
}

// open prepares the files for the results, so that what cannot be written is
// known before anything has run. The rows are nil if nobody wants them.
func (s *settings) open(plan [][]*study) (rows *csv.Writer, err error) {
	files := []string{s.csv}
	for _, st := range slices.Concat(plan...) {
		files = append(files, st.plot)
	}
	for _, file := range files {
		for _, trace := range s.traces {
			if SameFile(file, trace) {
				return nil, misuse(fmt.Errorf("%s is the trace, which would be lost; write to another file", file))
			}
		}
	}
	for _, file := range files[1:] {
		if file == "" {
			continue
		}
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	if s.csv == "" {
		return nil, nil
	}
	f, err := os.Create(s.csv) // closed by the end of the process
	if err != nil {
		return nil, err
	}
	rows = csv.NewWriter(f)
	rows.Write(csvHead) // an error shows up at Error
	return rows, nil
}

// SameFile reports whether both names are of one file that is there: what is to
// be read would be lost if results were written to it.
func SameFile(a, b string) bool {
	one, err1 := os.Stat(a)
	other, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, other)
}

// print writes what is asked for of one result.
func (r *result) print(stdout io.Writer, rows *csv.Writer) error {
	if err := r.text(stdout); err != nil {
		return err
	}
	fmt.Fprintln(stdout)
	if rows != nil {
		if err := r.csv(rows); err != nil {
			return err
		}
		if rows.Flush(); rows.Error() != nil { // what is done is kept if the rest is not
			return rows.Error()
		}
	}
	if r.plot != "" {
		return os.WriteFile(r.plot, r.svg(), 0o644)
	}
	return nil
}

// variants are a scenario with the changes that the command line asks for: one
// study for each age of scrapes and number of routers.
func (s *settings) variants(name string) (list []*study, err error) {
	var trace *Trace
	if file := s.traces[name]; file != "" {
		if trace, err = ReadTrace(file); err != nil {
			return nil, err
		}
	}
	for _, scrape := range s.scrapes {
		for _, routers := range s.routers {
			sc, err := Find(name)
			if err != nil {
				return nil, err
			}
			if s.fleet != nil {
				sc.Fleet = s.fleet
			}
			if scrape > 0 {
				sc.Scrape = scrape
			}
			if routers > 0 {
				sc.Routers = routers
			}
			if s.gossip > 0 {
				sc.Gossip = s.gossip
			}
			sc.Labels = sc.Labels || s.labels
			sc.Blind, sc.Whole, sc.TokenError = max(sc.Blind, s.blind), max(sc.Whole, s.whole), max(sc.TokenError, s.tokenError)
			if i := slices.IndexFunc(sc.Failures, func(f Failure) bool { return f.Pod >= len(sc.pods()) }); i >= 0 {
				return nil, misuse(fmt.Errorf("in scenario %s pod %d fails, counted from 0, and --fleet has %d; give it more", name, sc.Failures[i].Pod, len(sc.pods())))
			}
			list = append(list, &study{scenario: sc, trace: trace, policies: s.policies, seeds: s.seeds, first: uint64(s.first), scales: s.scales, parallel: s.parallel,
				plot: s.plotFile(sc)})
		}
	}
	return list, nil
}
