package sim

import (
	"cmp"
	"context"
	"fmt"
	"sync"
)

// study is a set of runs: every policy with every seed and every density.
type study struct {
	scenario *Scenario
	trace    *Trace // in place of the scenario's own load; may be nil
	policies []string
	seeds    int
	first    uint64 // seed
	scales   []float64
	parallel int
	plot     string // file to write; empty: none
}

// result holds the measures of a study's runs, by density, policy and seed.
type result struct {
	*study
	runs [][][]Measures
}

func (s *study) run(ctx context.Context) (*result, error) {
	builders := make([]func() (Policy, error), len(s.policies))
	for i, p := range s.policies {
		var err error
		if builders[i], err = ParsePolicy(p); err != nil {
			return nil, err
		}
	}
	r := &result{study: s, runs: make([][][]Measures, len(s.scales))}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var open sync.WaitGroup
	slots := make(chan struct{}, s.parallel)
study:
	for k, scale := range s.scales {
		r.runs[k] = make([][]Measures, len(s.policies))
		for p := range s.policies {
			r.runs[k][p] = make([]Measures, s.seeds)
		}
		for i := range s.seeds {
			seed := s.first + uint64(i)
			if slots <- struct{}{}; ctx.Err() != nil {
				break study
			}
			open.Go(func() {
				defer func() { <-slots }()
				load := s.load(seed, scale)
				if len(load) == 0 {
					cancel(misuse(fmt.Errorf("%s, seed %d: the load has no requests at density %g; want a higher --load", s.scenario.Name, seed, scale)))
				}
				for p := range s.policies {
					if ctx.Err() != nil {
						return
					}
					out, err := Run(ctx, s.scenario, load, builders[p], seed)
					if err != nil {
						cancel(fmt.Errorf("%s, %s, seed %d: %w", s.scenario.Name, s.policies[p], seed, err))
						return
					}
					r.runs[k][p][i] = Measure(out)
				}
			})
		}
	}
	open.Wait()
	return r, context.Cause(ctx)
}

func (s *study) load(seed uint64, scale float64) []Request {
	if s.trace == nil {
		return s.scenario.Generate(seed, scale)
	}
	return s.trace.play(newGen(seed, scale), cmp.Or(s.scenario.TraceSpeed, 1))
}

// values are one measure of every seed.
func values(runs []Measures, of func(*Measures) float64) []float64 {
	list := make([]float64, len(runs))
	for i := range runs {
		list[i] = of(&runs[i])
	}
	return list
}
