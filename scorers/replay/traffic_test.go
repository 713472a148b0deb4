package replay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
	"github.com/warmpath/warmpath/scorers/sim"
)

// spy logs the decisions of a simulation. A policy is not told the time; the
// ages of scrapes tell it.
type spy struct {
	Policy
	add func(*Decision)
}

func (s spy) Choose(req *scorers.Request, cands []podstate.Candidate) (int, int) {
	d := &Decision{Pool: "p", Profile: "latency", Request: *req, Prompt: req.Key, Candidates: slices.Clone(cands), Time: time.Unix(1e9, 0)}
	for _, c := range cands {
		if !c.Stats.At.IsZero() {
			d.Time = c.Stats.At.Add(time.Duration(1e9 * c.Age))
		}
	}
	s.add(d)
	return s.Policy.Choose(req, cands)
}

// A load is played and logged; what is played from the log alone must come out
// like it, for the policy that was logged and for one that was not.
func TestTrafficOfALogIsLikeTheLoad(t *testing.T) {
	sc, err := sim.Find("F")
	if err != nil {
		t.Fatal(err)
	}
	load := sc.Generate(1, 1)[:500]
	traffic := Traffic{}
	real := map[string]float64{}
	for _, policy := range []string{"latency", "round-robin"} {
		build, err := sim.ParsePolicy(policy)
		if err != nil {
			t.Fatal(err)
		}
		out, err := sim.Run(t.Context(), sc, load, func() (sim.Policy, error) {
			p, err := build()
			if policy == "latency" {
				p = spy{p, traffic.Add}
			}
			return p, err
		}, 1)
		if err != nil {
			t.Fatal(err)
		}
		real[policy] = sim.Measure(out).TTFT.P50
	}
	var text strings.Builder
	if err := traffic.WriteText(t.Context(), &text, []string{"round-robin"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "the 500 requests to p on 8 pods") {
		t.Error(text.String())
	}
	for line := range strings.Lines(text.String()) {
		for name, policy := range map[string]string{"as logged": "latency", "round-robin": "round-robin"} {
			values, ok := strings.CutPrefix(strings.TrimSpace(line), name)
			if !ok {
				continue
			}
			var p50 float64
			if _, err := fmt.Sscan(values, &p50); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if p50 < real[policy]/2 || p50 > 2*real[policy] {
				t.Errorf("%s: median %v s, and %v s with the load itself", policy, p50, real[policy])
			}
			delete(real, policy)
		}
	}
	if len(real) > 0 {
		t.Errorf("no row for %v in\n%s", real, &text)
	}
}

func TestPromptsThatBeginAlike(t *testing.T) {
	traffic := Traffic{}
	begin := time.Unix(1e9, 0)
	add := func(after time.Duration, key uint64, tokens, cached int) {
		traffic.Add(&Decision{Time: begin.Add(after), Prompt: key,
			Request:    scorers.Request{Tokens: tokens, Seed: uint64(after)},
			Candidates: []podstate.Candidate{{Cached: cached / 2}, {Cached: cached}}})
	}
	add(2*time.Hour, 1, 500, 300)
	add(time.Second, 2, 100, 0)
	add(0, 1, 400, 0)
	add(2*time.Second, 1, 200, 250)

	var got []string
	for _, r := range traffic[""].load() {
		text := r.At.String()
		for _, s := range r.Prompt {
			if s.ID == 1 {
				text += fmt.Sprintf(" shared %d", s.Tokens)
			} else {
				text += fmt.Sprintf(" own %d", s.Tokens)
			}
		}
		got = append(got, text)
	}
	// Of a pause of two hours a minute is played.
	want := []string{"0s shared 300 own 100", "1s own 100", "2s shared 199 own 1", "1m2s shared 300 own 200"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
