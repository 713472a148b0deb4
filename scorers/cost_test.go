package scorers

import (
	"slices"
	"testing"

	"github.com/warmpath/warmpath/podstate"
)

var fast, slow = podstate.Speed{Base: 0.01, Token: 25e-6, Square: 4e-10}, podstate.Speed{Base: 0.04, Token: 300e-6, Square: 4e-9}

// seconds is a pod with a speed, a wait and requests that run.
func seconds(s podstate.Speed, wait float64, running int) podstate.Candidate {
	return podstate.Candidate{Speed: s, Wait: wait, Charge: podstate.Charge{Requests: running}, Trust: 1, Answered: true}
}

func with(c podstate.Candidate, change func(*podstate.Candidate)) podstate.Candidate {
	change(&c)
	return c
}

func TestLatencyChooses(t *testing.T) {
	type pods = []podstate.Candidate
	cached := func(c podstate.Candidate, n int) podstate.Candidate {
		return with(c, func(c *podstate.Candidate) { c.Cached = n })
	}
	loaded := func(c podstate.Candidate, util float64) podstate.Candidate {
		return with(c, func(c *podstate.Candidate) { c.Util = util })
	}
	filled := func(c podstate.Candidate, fill float64) podstate.Candidate {
		return with(c, func(c *podstate.Candidate) { c.Fill, c.Stay = fill, 10 })
	}
	lora := func(c podstate.Candidate, a podstate.AdapterState, wait float64) podstate.Candidate {
		return with(c, func(c *podstate.Candidate) { c.Adapter, c.AdapterWait = a, wait })
	}
	tests := []struct {
		name   string
		tokens int
		pods   pods
		want   int
	}{
		{"the shorter queue", 1000, pods{seconds(fast, 0.5, 9), seconds(fast, 0.1, 9)}, 1},
		{"a fast pod with a short queue before an idle slow one", 4000, pods{seconds(slow, 0, 0), seconds(fast, 0.3, 5)}, 1},
		{"an idle slow pod before a fast one with a long queue", 500, pods{seconds(slow, 0, 0), seconds(fast, 2, 5)}, 0},
		{"the pod that holds the prompt", 6000, pods{seconds(fast, 0, 0), cached(seconds(fast, 0.05, 0), 5500)}, 1},
		{"not the pod that holds it behind a long queue", 6000, pods{seconds(fast, 0, 0), cached(seconds(fast, 3, 0), 5500)}, 0},
		{"the idle pod although another one holds it, when there is time", 6000, pods{seconds(fast, 0, 0), cached(seconds(fast, 0.3, 0), 5500)}, 0},
		{"the pod that holds it, when copies are paid for by others", 6000, pods{loaded(seconds(fast, 0, 0), 0.9), cached(loaded(seconds(fast, 0.3, 0), 0.9), 5500)}, 1},
		{"fewer running answers, for a long prompt", 8000, pods{seconds(fast, 0.1, 60), seconds(fast, 0.15, 10)}, 1},
		{"the shorter queue, for a short prompt", 100, pods{seconds(fast, 0.1, 30), seconds(fast, 0.3, 10)}, 0},
		{"room in the KV cache", 1000, pods{filled(seconds(fast, 0, 9), 0.95), filled(seconds(fast, 0.2, 9), 0.5)}, 1},
		{"a KV cache that is half full is no matter", 1000, pods{filled(seconds(fast, 0, 9), 0.5), filled(seconds(fast, 0.1, 9), 0.1)}, 0},
		{"the pod that has the adapter", 500, pods{lora(seconds(fast, 0, 5), podstate.AdapterFree, 0.02), lora(seconds(fast, 0.06, 5), podstate.AdapterResident, 0)}, 1},
		{"another pod, where the one with the adapter is overrun", 500, pods{lora(seconds(fast, 0, 5), podstate.AdapterFree, 0.02), lora(seconds(fast, 0.5, 5), podstate.AdapterResident, 0)}, 0},
		{"a very long prompt behind another one, not on one more busy pod", 80_000, pods{seconds(fast, 2, 3), seconds(fast, 0, 15)}, 0},
		{"requests of others count", 2000, pods{with(seconds(fast, 0.1, 5), func(c *podstate.Candidate) { c.Foreign = 90 }), seconds(fast, 0.12, 5)}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := NewProfile("latency", nil)
			if err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(20) {
				cands := named(slices.Clone(tt.pods)...)
				first, _ := p.Choose(&Request{Tokens: tt.tokens, Output: 200, Seed: seed, Key: seed}, cands)
				if got := cands[first].Pod.Slot; got != tt.want {
					t.Fatalf("key %d: pod %d, want %d; costs %v", seed, got, tt.want, p.costs)
				}
			}
		})
	}
}

// A busy pod holds what all requests begin with, an idler one does not.
func TestCopiesOfHotPrefixesAreMade(t *testing.T) {
	const busy, idle = 0, 1
	for name, tt := range map[string]struct {
		reuse, retention float64
		want             int
	}{
		"many will use it":                   {5, 600, idle},
		"nobody knows":                       {0, 600, busy},
		"a few will use it":                  {0.2, 600, busy},
		"the cache gives it up soon":         {5, 2, busy},
		"the size of the cache is not known": {5, 0, busy},
	} {
		t.Run(name, func(t *testing.T) {
			pod := func(running, cached int) podstate.Candidate {
				return with(seconds(fast, 0, running), func(c *podstate.Candidate) {
					c.Cached, c.Util, c.Stay, c.Retention = cached, 0.4, 10, tt.retention
				})
			}
			p, err := NewProfile("latency", nil)
			if err != nil {
				t.Fatal(err)
			}
			cands := named(pod(250, 5500), pod(40, 0))
			if got, _ := p.Choose(&Request{Tokens: 6000, Output: 200, Reuse: tt.reuse}, cands); got != tt.want {
				t.Errorf("pod %d, want %d; costs %v", got, tt.want, p.costs)
			}
		})
	}
}

func TestNearlyEqualPodsAreChosenByKey(t *testing.T) {
	p, err := NewProfile("latency", nil)
	if err != nil {
		t.Fatal(err)
	}
	var got [3]int
	for key := range uint64(300) {
		chosen := -1
		for seed := range uint64(10) {
			cands := named(seconds(fast, 0.100, 0), seconds(fast, 0.101, 0), seconds(fast, 0.102, 0))
			first, second := p.Choose(&Request{Tokens: 500, Seed: seed, Key: key}, cands)
			slot := cands[first].Pod.Slot
			if chosen >= 0 && slot != chosen || second == first {
				t.Fatalf("key %d: pod %d after pod %d, next %d", key, slot, chosen, second)
			}
			chosen = slot
		}
		got[chosen]++
	}
	for slot, n := range got {
		if n < 70 || n > 130 {
			t.Errorf("pod %d has %d of 300 keys", slot, n)
		}
	}
}

func TestPodsOfWhichNothingIsKnownAreNoMatter(t *testing.T) {
	k := latency
	pods := named(podstate.Candidate{}, podstate.Candidate{Cached: 10})
	out := make([]float64, 2)
	k.cost(&Request{Tokens: 100}, pods, out)
	for i, c := range out {
		if c != c || c < 0 || c > 1e9 {
			t.Errorf("pod %d costs %v", i, c)
		}
	}
}
