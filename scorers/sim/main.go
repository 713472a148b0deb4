package sim

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// groups are names for several scenarios.
var groups = map[string][]string{
	"study": {"A", "C", "D1", "D2", "F", "G", "H"},
	"aws":   {"M1", "M2", "B1", "B2", "P1", "U1"},
}

// settings are what the command line says.
type settings struct {
	scenarios, policies, traces []string
	seeds, first                int
	scales                      []float64
	fleet                       []PodKind
	scrape, gossip              time.Duration
	routers                     int
	labels                      bool
	blind, tokenError           float64
	csv, svg                    string
	parallel                    int
	list                        bool
}

// Main is the command `warmpath sim`.
func Main(ctx context.Context, args []string, stdout io.Writer) error {
	s, err := parseArgs(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
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
	for i, name := range s.scenarios {
		r, err := s.play(ctx, name)
		if err != nil {
			return err
		}
		results[name] = r
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		if err := r.text(stdout); err != nil {
			return err
		}
		if rows != nil {
			if err := r.csv(rows); err != nil {
				return err
			}
		}
		if s.svg != "" {
			if err := r.writePlot(s.svg, len(s.scenarios) > 1); err != nil {
				return err
			}
		}
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

// play runs one scenario with the changes that the command line asks for.
func (s *settings) play(ctx context.Context, name string) (*result, error) {
	sc, err := Find(name)
	if err != nil {
		return nil, err
	}
	if s.fleet != nil {
		sc.Fleet = s.fleet
	}
	if s.scrape > 0 {
		sc.Scrape = s.scrape
	}
	if s.routers > 0 {
		sc.Routers = s.routers
	}
	if s.gossip > 0 {
		sc.Gossip = s.gossip
	}
	sc.Labels = sc.Labels || s.labels
	sc.Blind, sc.TokenError = max(sc.Blind, s.blind), max(sc.TokenError, s.tokenError)
	st := &study{scenario: sc, policies: s.policies, seeds: s.seeds, first: uint64(s.first), scales: s.scales, parallel: s.parallel}
	for _, t := range s.traces {
		if for_, path, _ := strings.Cut(t, "="); for_ == name {
			if st.trace, err = ReadTrace(path); err != nil {
				return nil, err
			}
		}
	}
	return st.run(ctx)
}

func parseArgs(args []string, out io.Writer) (*settings, error) {
	s := &settings{scales: []float64{1}}
	f := flag.NewFlagSet("warmpath sim", flag.ContinueOnError)
	f.SetOutput(out)
	f.Func("scenario", "names separated by commas; also study, aws or all (default study)", func(v string) error {
		for name := range strings.SplitSeq(v, ",") {
			switch {
			case name == "all":
				s.scenarios = append(s.scenarios, Names()...)
			case groups[name] != nil:
				s.scenarios = append(s.scenarios, groups[name]...)
			default:
				s.scenarios = append(s.scenarios, name)
			}
		}
		return nil
	})
	f.Func("policy", "profiles separated by commas, or the weights of one; may be repeated; the others are compared with the first (default latency,hyperpod,round-robin)", func(v string) error {
		if strings.Contains(v, "=") {
			s.policies = append(s.policies, v)
		} else {
			s.policies = append(s.policies, strings.Split(v, ",")...)
		}
		return nil
	})
	f.Func("trace", "SCENARIO=FILE plays a recorded load in place of the scenario's own: .jsonl (Mooncake) or .csv (Azure); may be repeated", func(v string) error {
		if !strings.Contains(v, "=") {
			return errors.New("want SCENARIO=FILE")
		}
		s.traces = append(s.traces, v)
		return nil
	})
	f.IntVar(&s.seeds, "seeds", 5, "how many loads to draw")
	f.IntVar(&s.first, "seed", 1, "the first seed")
	f.Func("load", "densities separated by commas; 1 is the scenario's own", func(v string) (err error) {
		s.scales, err = floats(v)
		return err
	})
	f.Func("fleet", "other pods, such as h100-8b=2,a10g-8b=2", func(v string) (err error) {
		s.fleet, err = parseFleet(v)
		return err
	})
	f.DurationVar(&s.scrape, "scrape", 0, "pause between scrapes (default the scenario's: 200ms)")
	f.IntVar(&s.routers, "routers", 0, "replicas of the router")
	f.DurationVar(&s.gossip, "gossip", 0, "replicas learn of each other's requests after this time (default never)")
	f.BoolVar(&s.labels, "labels", false, "pods carry the name of their GPU as a label")
	f.Float64Var(&s.blind, "blind", 0, "share of requests whose first token the router does not see")
	f.Float64Var(&s.tokenError, "token-error", 0, "how wrong the router counts tokens, as the standard deviation of the logarithm")
	f.StringVar(&s.csv, "csv", "", "file for one row per run")
	f.StringVar(&s.svg, "svg", "", "file for a plot of TTFT against load")
	f.IntVar(&s.parallel, "parallel", runtime.GOMAXPROCS(0), "runs at a time")
	f.BoolVar(&s.list, "list", false, "list the scenarios and end")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; all settings are flags", f.Arg(0))
	}
	if s.seeds < 1 || s.first < 0 || s.parallel < 1 || s.routers < 0 {
		return nil, errors.New("seeds and parallel must be at least 1, seed and routers at least 0")
	}
	if len(s.scenarios) == 0 {
		s.scenarios = groups["study"]
	}
	if len(s.policies) == 0 {
		s.policies = []string{"latency", "hyperpod", "round-robin"}
	}
	for _, t := range s.traces {
		if name, _, _ := strings.Cut(t, "="); !slices.Contains(s.scenarios, name) {
			return nil, fmt.Errorf("a trace is given for scenario %q, which is not among those to run", name)
		}
	}
	return s, nil
}

func floats(v string) (list []float64, err error) {
	for part := range strings.SplitSeq(v, ",") {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil || !(x > 0 && x <= 100) {
			return nil, fmt.Errorf("%q is no number above 0 and up to 100", part)
		}
		list = append(list, x)
	}
	return list, nil
}

func parseFleet(v string) (fleet []PodKind, err error) {
	for part := range strings.SplitSeq(v, ",") {
		name, text, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 10_000 {
			return nil, fmt.Errorf("%q: want KIND=NUMBER", part)
		}
		k := PodKind{Preset: name, Count: n}
		if _, err := k.config(); err != nil {
			return nil, err
		}
		fleet = append(fleet, k)
	}
	return fleet, nil
}
