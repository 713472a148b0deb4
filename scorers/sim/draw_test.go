package sim

import (
	"reflect"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/scorers/sim/engine"
)

func TestDrawnScenarios(t *testing.T) {
	kinds := map[string]int{}
	for _, name := range drawnGroup(100) {
		sc, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range sc.Fleet {
			if _, err := engine.New(*k.Config); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		load := sc.Generate(1, 1)
		if len(load) < drawnRequests/6 || len(load) > drawnRequests*4 {
			t.Errorf("%s has %d requests, want about %d", name, len(load), drawnRequests)
		}
		again, _ := Find(name)
		if !reflect.DeepEqual(load, again.Generate(1, 1)) {
			t.Errorf("%s is another one the next time", name)
		}
		kinds[sc.About]++
	}
	if len(kinds) != 4 {
		t.Errorf("kinds of load: %v, want four", kinds)
	}
	for _, name := range []string{"drawn-", "drawn-x", "drawn--1", "drawn"} {
		if _, err := Find(name); err == nil || !strings.Contains(err.Error(), "drawn-NUMBER") {
			t.Errorf("%q: got error %v, want one that tells how drawn scenarios are named", name, err)
		}
	}
}

func TestSummary(t *testing.T) {
	run := func(ttft float64) []Measures {
		return []Measures{{TTFT: Spread{ttft, ttft, ttft, ttft}}}
	}
	of := func(a, b float64) *result {
		return &result{study: &study{policies: []string{"a", "b"}}, runs: [][][]Measures{{run(a), run(b)}}}
	}
	var w strings.Builder
	if err := summary(&w, []*result{of(1, 2), of(1, 1.02), of(4, 1)}); err != nil {
		t.Fatal(err)
	}
	// a is half, practically equal, and four times: behind in one of three.
	for _, want := range []string{"1.25  33%  4", "0.80  33%  2"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("got\n%swant %q in it", w.String(), want)
		}
	}
}

func TestFrontier(t *testing.T) {
	runs := func(p50, p99 float64) []Measures { return []Measures{{TTFT: Spread{p50, 1, 1, p99}}} }
	r := &result{study: &study{policies: []string{"fast", "fair", "neither", "twin"}, seeds: 1},
		runs: [][][]Measures{{runs(1, 9), runs(2, 5), runs(2, 6), runs(2, 5)}}}
	for p, want := range []string{"yes", "yes", "< fair", "yes"} {
		if got := r.frontier(0, p); got != want {
			t.Errorf("%s: %q, want %q", r.policies[p], got, want)
		}
	}
}
