package sim

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// groups are names for several scenarios.
var groups = map[string][]string{
	"study": {"A", "C", "D1", "D2", "F", "G", "H"},
	"aws":   {"M1", "M2", "B1", "B2", "P1", "U1"},
	"drawn": drawnGroup(100),
}

const (
	maxPods     = 10_000 // of a fleet
	maxParallel = 256    // runs at a time, each with its load in memory
)

// settings are what the command line says.
type settings struct {
	scenarios, policies      []string
	traces                   map[string]string // files, by scenario
	seeds, first             int
	scales                   []float64
	fleet                    []PodKind
	scrapes                  []time.Duration // 0: the scenario's own
	routers                  []int           // likewise
	gossip                   time.Duration
	labels                   bool
	blind, whole, tokenError float64
	csv, svg                 string
	parallel                 int
	list                     bool
}

func parseArgs(args []string, out io.Writer) (*settings, error) {
	s := &settings{scales: []float64{1}, scrapes: []time.Duration{0}, routers: []int{0}, traces: map[string]string{}, seeds: 5, first: 1,
		parallel: min(runtime.GOMAXPROCS(0), maxParallel)}
	f := flag.NewFlagSet("warmpath sim", flag.ContinueOnError)
	f.SetOutput(io.Discard) // an error is printed once, by the caller
	f.Func("scenario", "names separated by commas; also study, aws, all of the list, or drawn: a hundred that are drawn at random (default study)", func(v string) error {
		for name := range strings.SplitSeq(v, ",") {
			names := []string{name}
			if name == "all" {
				names = Names()
			} else if groups[name] != nil {
				names = groups[name]
			}
			for _, name := range names {
				if !slices.Contains(s.scenarios, name) { // or it would count twice
					s.scenarios = append(s.scenarios, name)
				}
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
		name, file, _ := strings.Cut(v, "=")
		if name == "" || file == "" {
			return errors.New("want SCENARIO=FILE")
		}
		if s.traces[name] != "" {
			return fmt.Errorf("%s has a trace already, %s; a scenario plays one", name, s.traces[name])
		}
		s.traces[name] = file
		return nil
	})
	one(f, &s.seeds, "seeds", whole(1, 10_000), "how many loads to draw (default 5)")
	one(f, &s.first, "seed", whole(0, 1_000_000_000), "the first seed (default 1)")
	several(f, &s.scales, "load", number(0.001, 100), "densities separated by commas; 1 is the scenario's own (default 1)")
	f.Func("fleet", "other pods, such as h100-8b=2,a10g-8b=2", func(v string) (err error) {
		s.fleet, err = parseFleet(v)
		return err
	})
	several(f, &s.scrapes, "scrape", duration(time.Millisecond, time.Hour), "pauses between scrapes, separated by commas (default the scenario's: 200ms)")
	several(f, &s.routers, "routers", whole(1, 100), "numbers of replicas of the router, separated by commas (default the scenario's: 1)")
	one(f, &s.gossip, "gossip", duration(0, time.Hour), "replicas learn of each other's requests after this time (default never)")
	f.BoolVar(&s.labels, "labels", false, "pods carry the name of their GPU as a label")
	one(f, &s.blind, "blind", number(0, 1), "share of requests whose first token the router does not see (default 0)")
	one(f, &s.whole, "whole", number(0, 1), "share of requests whose answer comes in one piece (default 0)")
	one(f, &s.tokenError, "token-error", number(0, 1), "how wrong the router counts tokens, as the standard deviation of the logarithm (default 0)")
	f.StringVar(&s.csv, "csv", "", "file for one row per run")
	f.StringVar(&s.svg, "svg", "", "file for a plot of TTFT against load")
	one(f, &s.parallel, "parallel", whole(1, maxParallel), "runs at a time (default the number of cores)")
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
	if len(s.scenarios) == 0 {
		s.scenarios = groups["study"]
	}
	if len(s.policies) == 0 {
		s.policies = []string{"latency", "hyperpod", "round-robin"}
	}
	for _, name := range s.scenarios {
		if _, err := Find(name); err != nil {
			return nil, err
		}
	}
	for _, spec := range s.policies {
		if _, err := ParsePolicy(spec); err != nil {
			return nil, err
		}
	}
	for name := range s.traces {
		if !slices.Contains(s.scenarios, name) {
			return nil, fmt.Errorf("a trace is given for scenario %q, which is not among those to run", name)
		}
	}
	return s, nil
}

func parseFleet(v string) (fleet []PodKind, err error) {
	count := whole(1, maxPods)
	pods := 0
	for part := range strings.SplitSeq(v, ",") {
		name, text, _ := strings.Cut(part, "=")
		n, err := count.read(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not KIND=NUMBER: %w", part, err)
		}
		if pods += n; pods > maxPods {
			return nil, fmt.Errorf("more than %d pods together; take fewer", maxPods)
		}
		k := PodKind{Preset: name, Count: n}
		if _, err := k.config(); err != nil {
			return nil, err
		}
		fleet = append(fleet, k)
	}
	return fleet, nil
}
