package replay

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
	"github.com/warmpath/warmpath/scorers/sim"
	"github.com/warmpath/warmpath/scorers/sim/engine"
)

// Traffic is the requests of a log, for the simulator to play: there other
// choices have their consequences.
//
// A log tells lengths, times and the pods' learned speeds; texts it does not.
// So prompts of the same name begin alike for as long as some pod was expected
// to have them cached, and the rest of each is its own.
type Traffic map[string]*traffic // by pool

type traffic struct {
	requests []logged
	last     *Decision
	shared   map[uint64]int // tokens, by the prompt's name
}

type logged struct {
	scorers.Request
	time   time.Time
	prompt uint64
	cached int // on the pod that had most
}

// Add adds a decision. They may come in any order.
func (t Traffic) Add(d *Decision) {
	p := t[d.Pool]
	if p == nil {
		p = &traffic{last: d, shared: map[uint64]int{}}
		t[d.Pool] = p
	}
	q := logged{Request: d.Request, time: d.Time, prompt: cmp.Or(d.Prompt, d.Request.Key)}
	for i := range d.Candidates {
		q.cached = max(q.cached, d.Candidates[i].Cached)
	}
	p.requests = append(p.requests, q)
	p.shared[q.prompt] = max(p.shared[q.prompt], q.cached)
	if !d.Time.Before(p.last.Time) {
		p.last = d
	}
}

// maxPause is how much of a pause without requests is played.
const maxPause = time.Minute

// load is the requests as the simulator takes them.
func (p *traffic) load() []sim.Request {
	slices.SortStableFunc(p.requests, func(a, b logged) int { return a.time.Compare(b.time) })
	load := make([]sim.Request, len(p.requests))
	seen := map[uint64]bool{}
	at := time.Duration(0)
	for i, q := range p.requests {
		if i > 0 {
			at += min(q.time.Sub(p.requests[i-1].time), maxPause)
		}
		head := q.cached
		if !seen[q.prompt] { // of the first nothing can be cached, but it begins as the others
			head = p.shared[q.prompt]
			seen[q.prompt] = true
		}
		tokens := max(1, q.Tokens)
		head = min(head, tokens-1)
		load[i] = sim.Request{At: at, Output: max(1, q.Output), Reply: ^q.Seed, Adapter: q.Adapter,
			Prompt: []sim.Segment{{ID: q.prompt, Tokens: head}, {ID: q.Seed, Tokens: tokens - head}}}
		if head == 0 {
			load[i].Prompt = load[i].Prompt[1:]
		}
	}
	return load
}

// scenario is the pods of the last decision, as fast as they were learned to be.
func (p *traffic) scenario() *sim.Scenario {
	adapters := slices.ContainsFunc(p.requests, func(q logged) bool { return q.Adapter != "" })
	sc := &sim.Scenario{Name: p.last.Pool, Scrape: time.Second, Adapters: adapters}
	for i := range p.last.Candidates {
		c := &p.last.Candidates[i]
		if c.Stats.Every > 0 {
			sc.Scrape = c.Stats.Every
		}
		sc.Fleet = append(sc.Fleet, sim.PodKind{Count: 1, Config: server(c)})
	}
	return sc
}

// server is a model server like the one behind a candidate. What the pod does
// not report is as vLLM starts on a large GPU.
func server(c *candidate) *engine.Config {
	known := func(f podstate.Field, value, otherwise int) int {
		if c.Stats.Has(f) && value > 0 {
			return value
		}
		return otherwise
	}
	cfg := &engine.Config{
		// The table learns the square of a prompt's length, of which attention looks
		// back at half.
		Speed:        engine.Speed{Overhead: c.Speed.Base, PerToken: c.Speed.Token, Attention: 2 * c.Speed.Square},
		KVTokens:     known(podstate.FieldKVTokens, c.Stats.KVTokens, 400_000),
		BlockTokens:  known(podstate.FieldBlockTokens, c.Stats.BlockTokens, 16),
		MaxSeqs:      known(podstate.FieldMaxRunning, c.Stats.MaxRunning, 256),
		TokenBudget:  8192,
		AdapterSlots: known(podstate.FieldMaxAdapters, c.Stats.MaxAdapters, 8),
		AdapterLoad:  8 * time.Millisecond, AdapterFetch: 100 * time.Millisecond,
	}
	cfg.TokenBudget = max(cfg.TokenBudget, cfg.MaxSeqs)
	most := cfg.KVTokens - 2*cfg.BlockTokens
	cfg.MaxModelLen = min(most, known(podstate.FieldMaxModelLen, c.Stats.MaxModelLen, most))
	return cfg
}

// seeds is how often the traffic is played. It is the same each time; what
// differs is how ties come out.
const seeds = 3

// asLogged stands for the profile of the last decision.
const asLogged = "as logged"

// WriteText plays the traffic with the profile of the last decision and with
// these policies, and prints what comes of it.
func (t Traffic) WriteText(ctx context.Context, w io.Writer, policies []string) error {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		p := t[name]
		if len(p.last.Candidates) == 0 {
			continue
		}
		load, sc := p.load(), p.scenario()
		fmt.Fprintf(w, "\nsimulated: the %d requests to %s on %d pods of their learned speed; seconds to the first token\n\n", len(load), name, len(sc.Fleet))
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "policy\tp50\tmean\tp95\tp99\thits\tfailed\t")
		for _, policy := range slices.Concat([]string{asLogged}, policies) {
			m, err := p.play(ctx, sc, load, policy)
			if err != nil {
				return err
			}
			fmt.Fprintf(table, "%s\t%.3g\t%.3g\t%.3g\t%.3g\t%.1f%%\t%.1f%%\t\n", policy, m.TTFT.P50, m.TTFT.Mean, m.TTFT.P95, m.TTFT.P99, 100*m.Hit, 100*m.Failed)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// play returns the run of which the mean time to the first token is the median.
func (p *traffic) play(ctx context.Context, sc *sim.Scenario, load []sim.Request, policy string) (m sim.Measures, err error) {
	build := func() (sim.Policy, error) { return scorers.NewProfile(p.last.Profile, p.last.Weights) }
	if policy != asLogged {
		if build, err = sim.ParsePolicy(policy); err != nil {
			return m, err
		}
	}
	var runs []sim.Measures
	for seed := range uint64(seeds) {
		if err := ctx.Err(); err != nil {
			return m, err
		}
		out, err := sim.Run(ctx, sc, load, build, seed)
		if err != nil {
			return m, err
		}
		runs = append(runs, sim.Measure(out))
	}
	slices.SortFunc(runs, func(a, b sim.Measures) int { return cmp.Compare(a.TTFT.Mean, b.TTFT.Mean) })
	return runs[len(runs)/2], nil
}
