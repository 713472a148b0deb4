// Command compare plays one scenario of the simulator twice for each policy:
// in the simulator, and in real time through a real Envoy, warmpath and
// simulated model servers. The two should agree.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/examples/load"
	"github.com/warmpath/warmpath/examples/rig"
	"github.com/warmpath/warmpath/scorers/sim"
)

type options struct {
	warmpath string
	scenario string
	policies []string
	density  float64
	seed     uint64
	scrape   time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.warmpath, "warmpath", "", "the binary; empty: build it from this module")
	flag.StringVar(&o.scenario, "scenario", "wall", "see scorers/sim")
	policies := flag.String("policy", "latency,hyperpod,round-robin", "profiles, separated by commas; round-robin is Envoy's own")
	flag.Float64Var(&o.density, "load", 1, "density of the load")
	flag.Uint64Var(&o.seed, "seed", 1, "of the load")
	flag.DurationVar(&o.scrape, "scrape", 200*time.Millisecond, "pause between scrapes")
	flag.Parse()
	o.policies = strings.Split(*policies, ",")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	sc, err := sim.Find(o.scenario)
	if err != nil {
		return err
	}
	sc.Scrape = o.scrape
	requests := sc.Generate(o.seed, o.density)
	plan, err := plan(requests)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d requests in %v; seconds to first token\n%-14s %26s   %26s\n%-14s %8s %8s %8s   %8s %8s %8s %8s %8s\n",
		o.scenario, len(plan), plan[len(plan)-1].At.Round(time.Second), "", "simulated", "in real time", "policy", "p50", "p90", "p99", "p50", "p90", "p99", "failed", "late")
	for _, policy := range o.policies {
		simulated, err := simulate(ctx, sc, requests, policy, o.seed)
		if err != nil {
			return err
		}
		real, failed, late, err := play(ctx, sc, plan, policy, o)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-14s %8.3f %8.3f %8.3f   %8.3f %8.3f %8.3f %8d %8.3f\n", policy,
			at(simulated, 0.5), at(simulated, 0.9), at(simulated, 0.99), at(real, 0.5), at(real, 0.9), at(real, 0.99), failed, late.Seconds())
	}
	return nil
}

// plan makes real requests of simulated ones.
func plan(requests []sim.Request) (list []load.Request, err error) {
	for i := range requests {
		q := &requests[i]
		if q.After > 0 || q.Adapter != "" {
			return nil, fmt.Errorf("request %d waits for another one, or wants an adapter: such scenarios cannot be played in real time", i)
		}
		var text strings.Builder
		for _, s := range q.Prompt {
			write(&text, s)
		}
		body, err := json.Marshal(map[string]any{
			"model": rig.Model, "prompt": text.String(), "max_tokens": q.Output, "stream": true,
			"stream_options": map[string]bool{"include_usage": true},
		})
		if err != nil {
			return nil, err
		}
		list = append(list, load.Request{At: q.At, Body: body})
	}
	return list, nil
}

// write makes text of a segment: four bytes a token, which is what the model
// servers count as one.
func write(b *strings.Builder, s sim.Segment) {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	x := s.ID
	for range s.Tokens {
		x = x*6364136223846793005 + 1442695040888963407
		b.WriteByte(' ')
		b.WriteByte(letters[x>>33%26])
		b.WriteByte(letters[x>>41%26])
		b.WriteByte(letters[x>>49%26])
	}
}

func simulate(ctx context.Context, sc *sim.Scenario, requests []sim.Request, policy string, seed uint64) ([]float64, error) {
	build, err := sim.ParsePolicy(policy)
	if err != nil {
		return nil, err
	}
	out, err := sim.Run(ctx, sc, requests, build, seed)
	if err != nil {
		return nil, err
	}
	var ttft []float64
	for _, r := range out.Records {
		ttft = append(ttft, r.TTFT.Seconds())
	}
	return ttft, nil
}

func play(ctx context.Context, sc *sim.Scenario, plan []load.Request, policy string, o options) (ttft []float64, failed int, late time.Duration, err error) {
	pods, err := sc.Engines()
	if err != nil {
		return nil, 0, 0, err
	}
	profile := policy
	if policy == "round-robin" {
		profile = ""
	}
	r, err := rig.Start(ctx, rig.Options{Pods: pods, Warmpath: o.warmpath, Profile: profile, Scrape: o.scrape})
	if err != nil {
		return nil, 0, 0, err
	}
	defer r.Close()
	addr := r.Warmpath
	if policy == "round-robin" {
		addr = r.RoundRobin
	}
	results := load.Run(ctx, plan, load.Options{URL: "http://" + addr + "/v1/completions", Timeout: 5 * time.Minute})
	for _, res := range results {
		if res.Err == nil {
			ttft = append(ttft, res.TTFT.Seconds())
		}
	}
	s := load.Summarize(plan, results)
	if s.Failed == s.Requests {
		return nil, 0, 0, fmt.Errorf("all requests failed, the first with: %w", results[0].Err)
	}
	return ttft, s.Failed, s.Late, ctx.Err()
}

func at(x []float64, q float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[min(len(x)-1, int(q*float64(len(x))))]
}
