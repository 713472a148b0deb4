package sim

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// ErrUsage is in errors that say that the arguments of Main are wrong.
var ErrUsage = errors.New("wrong arguments")

// Main is the command `warmpath sim`.
func Main(ctx context.Context, args []string, stdout io.Writer) error {
	s, err := parseArgs(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if s.list {
		for _, name := range Names() {
			sc, _ := Find(name)
			fmt.Fprintf(stdout, "%-12s %s; %s\n", name, sc.About, sc.size())
		}
		return nil
	}
	var rows *csv.Writer
	if s.csv != "" {
		f, err := os.Create(s.csv)
		if err != nil {
			return err
		}
		defer f.Close()
		rows = csv.NewWriter(f)
		rows.Write(csvHead) // an error shows up at Error
	}
	results := map[string]*result{}
	var first []*result // of each scenario
	for _, name := range s.scenarios {
		variants, err := s.variants(name)
		if err != nil {
			return err
		}
		var done []*result
		for _, v := range variants {
			r, err := v.run(ctx)
			if err != nil {
				return err
			}
			done = append(done, r)
			if err := r.print(s, stdout, rows); err != nil {
				return err
			}
		}
		results[name] = done[0]
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
	if rows != nil {
		rows.Flush()
		return rows.Error()
	}
	return nil
}

// print writes what is asked for of one result.
func (r *result) print(s *settings, stdout io.Writer, rows *csv.Writer) error {
	if err := r.text(stdout); err != nil {
		return err
	}
	fmt.Fprintln(stdout)
	if rows != nil {
		if err := r.csv(rows); err != nil {
			return err
		}
	}
	if s.svg != "" {
		return r.writePlot(s.svg, len(s.scenarios) > 1)
	}
	return nil
}

// variants are a scenario with the changes that the command line asks for: one
// study for each age of scrapes and number of routers.
func (s *settings) variants(name string) (list []*study, err error) {
	var trace *Trace
	for _, t := range s.traces {
		if whose, path, _ := strings.Cut(t, "="); whose == name {
			if trace, err = ReadTrace(path); err != nil {
				return nil, err
			}
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
			list = append(list, &study{scenario: sc, trace: trace, policies: s.policies, seeds: s.seeds, first: uint64(s.first), scales: s.scales, parallel: s.parallel})
		}
	}
	return list, nil
}
