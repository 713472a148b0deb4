package scorers

import (
	"slices"
	"testing"

	"github.com/warmpath/warmpath/podstate"
)

// inFlight is a pod with requests in flight, prompt tokens ahead, and a part of the
// prompt in its cache.
func inFlight(requests int, ahead float64, cached int) podstate.Candidate {
	return podstate.Candidate{
		Charge: podstate.Charge{Requests: requests, Ahead: ahead, Held: 300 * float64(requests)},
		Cached: cached, Trust: 1, Answered: true, Last: uint64(requests),
	}
}

func TestRivalsChoose(t *testing.T) {
	type pods = []podstate.Candidate
	tests := []struct {
		name, profile string
		pods          pods
		want          []int // any of these
	}{
		{"tokens times requests", "lmetric", pods{inFlight(9, 100, 0), inFlight(1, 2000, 0)}, []int{1}},
		{"cached tokens do not count", "lmetric", pods{inFlight(4, 500, 900), inFlight(4, 400, 0)}, []int{0}},
		{"tokens only", "least-tokens", pods{inFlight(9, 100, 0), inFlight(1, 2000, 0)}, []int{0}},
		{"prompt and answer tokens add up", "dynamo", pods{inFlight(9, 100, 0), inFlight(1, 2000, 0)}, []int{1}},
		{"requests only", "least-request", pods{inFlight(3, 0, 900), inFlight(2, 9000, 0)}, []int{1}},
		{"the pod whose turn is longest ago", "round-robin", pods{inFlight(3, 0, 0), inFlight(2, 0, 0), inFlight(4, 0, 0)}, []int{1}},
		{"stays with the cache", "sticky", pods{inFlight(0, 0, 0), inFlight(30, 200_000, 900)}, []int{1}},
		{"until it is 18 seconds behind", "sticky", pods{inFlight(0, 0, 0), inFlight(30, 300_000, 900)}, []int{0}},
		{"among those that hold it, the fewest tokens", "sticky", pods{inFlight(9, 5000, 850), inFlight(9, 3000, 850), inFlight(0, 0, 100)}, []int{1}},
		{"less than 80 % is not holding it", "sticky", pods{inFlight(0, 0, 0), inFlight(9, 3000, 700)}, []int{0}},
	}
	for _, tt := range tests {
		t.Run(tt.profile+"/"+tt.name, func(t *testing.T) {
			p, err := NewProfile(tt.profile, nil)
			if err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(20) {
				cands := named(slices.Clone(tt.pods)...)
				first, _ := p.Choose(&Request{Tokens: 1000, Seed: seed, Key: 7}, cands)
				if got := cands[first].Pod.Slot; !slices.Contains(tt.want, got) {
					t.Fatalf("pod %d, want one of %v", got, tt.want)
				}
			}
		})
	}
}

func TestConsistentHashingStaysWithinItsBound(t *testing.T) {
	p, err := NewProfile("chwbl", nil)
	if err != nil {
		t.Fatal(err)
	}
	home := -1
	for _, requests := range []int{0, 4, 5, 50} { // of that pod; the others have 4
		cands := make([]podstate.Candidate, 4)
		for i := range cands {
			cands[i] = inFlight(4, 0, 0)
		}
		if home >= 0 {
			cands[home] = inFlight(requests, 0, 0)
		}
		cands = named(cands...)
		first, _ := p.Choose(&Request{Tokens: 10, Key: 42}, cands)
		got := cands[first].Pod.Slot
		switch {
		case home < 0:
			home = got
		case requests <= 4 && got != home:
			t.Errorf("left its pod, which has %d requests", requests)
		case requests > 5 && got == home:
			t.Errorf("stayed with a pod that has %d requests", requests)
		}
	}
}

func TestPowerOfTwoTakesTheBetterOfTwo(t *testing.T) {
	p, err := NewProfile("p2c", nil)
	if err != nil {
		t.Fatal(err)
	}
	var got [4]int
	for seed := range uint64(6000) {
		cands := named(inFlight(0, 0, 0), inFlight(1, 0, 0), inFlight(2, 0, 0), inFlight(3, 0, 0))
		first, _ := p.Choose(&Request{Tokens: 10, Seed: seed}, cands)
		got[cands[first].Pod.Slot]++
	}
	for slot, want := range []int{3000, 2000, 1000, 0} { // pairs of which it is the better one
		if n := got[slot]; n < want-200 || n > want+200 {
			t.Errorf("pod %d got %d of 6,000, want about %d", slot, n, want)
		}
	}
}
