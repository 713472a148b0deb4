package sim

import (
	"errors"
	"flag"
	"fmt"
	"io"
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
	"drawn": drawnGroup(100),
}

// settings are what the command line says.
type settings struct {
	scenarios, policies, traces []string
	seeds, first                int
	scales                      []float64
	fleet                       []PodKind
	scrapes                     []time.Duration // 0: the scenario's own
	routers                     []int           // likewise
	gossip                      time.Duration
	labels                      bool
	blind, whole, tokenError    float64
	csv, svg                    string
	parallel                    int
	list                        bool
}

func parseArgs(args []string, out io.Writer) (*settings, error) {
	s := &settings{scales: []float64{1}, scrapes: []time.Duration{0}, routers: []int{0}}
	f := flag.NewFlagSet("warmpath sim", flag.ContinueOnError)
	f.SetOutput(io.Discard) // an error is printed once, by the caller
	f.Func("scenario", "names separated by commas; also study, aws, all of the list, or drawn: a hundred that are drawn at random (default study)", func(v string) error {
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
		s.scales, err = list(v, number, func(x float64) bool { return x > 0 && x <= 100 })
		return err
	})
	f.Func("fleet", "other pods, such as h100-8b=2,a10g-8b=2", func(v string) (err error) {
		s.fleet, err = parseFleet(v)
		return err
	})
	f.Func("scrape", "pauses between scrapes, separated by commas (default the scenario's: 200ms)", func(v string) (err error) {
		s.scrapes, err = list(v, time.ParseDuration, func(d time.Duration) bool { return d >= time.Millisecond })
		return err
	})
	f.Func("routers", "numbers of replicas of the router, separated by commas (default the scenario's: 1)", func(v string) (err error) {
		s.routers, err = list(v, strconv.Atoi, func(n int) bool { return n >= 1 && n <= 100 })
		return err
	})
	f.DurationVar(&s.gossip, "gossip", 0, "replicas learn of each other's requests after this time (default never)")
	f.BoolVar(&s.labels, "labels", false, "pods carry the name of their GPU as a label")
	f.Float64Var(&s.blind, "blind", 0, "share of requests whose first token the router does not see")
	f.Float64Var(&s.whole, "whole", 0, "share of requests whose answer comes in one piece")
	f.Float64Var(&s.tokenError, "token-error", 0, "how wrong the router counts tokens, as the standard deviation of the logarithm")
	f.StringVar(&s.csv, "csv", "", "file for one row per run")
	f.StringVar(&s.svg, "svg", "", "file for a plot of TTFT against load")
	f.IntVar(&s.parallel, "parallel", runtime.GOMAXPROCS(0), "runs at a time")
	f.BoolVar(&s.list, "list", false, "list the scenarios and end")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(out, "Usage of warmpath sim:")
		f.SetOutput(out)
		f.PrintDefaults()
		return nil, err
	} else if err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; all settings are flags", f.Arg(0))
	}
	if s.seeds < 1 || s.first < 0 || s.parallel < 1 {
		return nil, errors.New("seeds and parallel must be at least 1, seed at least 0")
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

func number(v string) (float64, error) { return strconv.ParseFloat(v, 64) }

// list parses values that are separated by commas.
func list[T any](v string, parse func(string) (T, error), ok func(T) bool) (list []T, err error) {
	for part := range strings.SplitSeq(v, ",") {
		x, err := parse(part)
		if err != nil || !ok(x) {
			return nil, fmt.Errorf("%q is no such value, or out of range", part)
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
