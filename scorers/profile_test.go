package scorers

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

func TestNewProfileErrors(t *testing.T) {
	tests := []struct {
		name, profile string
		weights       map[string]float64
		want          string
	}{
		{"unknown profile", "latancy", nil, `unknown profile "latancy"; known are chwbl, `},
		{"unknown scorer", "latency", map[string]float64{"kvcache": 1}, `unknown scorer "kvcache"; known are activeRequests, `},
		{"negative weight", "latency", map[string]float64{"queue": -1}, "weight of queue is -1"},
		{"weights that cannot choose", "latency", map[string]float64{"queue": 0, "prefix": 0}, "all weights are 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewProfile(tt.profile, tt.weights)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestChooseTakesTheBestAndTheNext(t *testing.T) {
	for _, name := range Profiles() {
		t.Run(name, func(t *testing.T) {
			p, err := NewProfile(name, map[string]float64{"prefix": 1})
			if err != nil {
				t.Fatal(err)
			}
			cands := named(caches(10), caches(90), caches(0), caches(50))
			first, second := p.Choose(&Request{Tokens: 100}, cands)
			if cands[first].Cached != 90 || cands[second].Cached != 50 {
				t.Errorf("got pods with %d and %d cached tokens, want 90 and 50", cands[first].Cached, cands[second].Cached)
			}
			if first, second = p.Choose(&Request{Tokens: 100}, cands[:1]); first != 0 || second != -1 {
				t.Errorf("of a single pod: got %d, %d, want 0, -1", first, second)
			}
			req := &Request{}
			if first, second = p.Choose(req, nil); first != -1 || second != -1 || req.Refusal != RefusalNoPod {
				t.Errorf("of no pod: got %d, %d, %q", first, second, req.Refusal)
			}
		})
	}
}

func TestTiesAreBrokenBySeed(t *testing.T) {
	p, err := NewProfile("hyperpod", nil)
	if err != nil {
		t.Fatal(err)
	}
	var got [4]int
	for seed := range uint64(4000) {
		cands := named(waits(0, 0), waits(0, 0), waits(0, 0), waits(0, 0))
		first, _ := p.Choose(&Request{Tokens: 1, Seed: seed}, cands)
		again, _ := p.Choose(&Request{Tokens: 1, Seed: seed}, cands)
		if first != again {
			t.Fatal("the same seed chose another pod")
		}
		got[cands[first].Pod.Slot]++
	}
	for slot, n := range got {
		if n < 900 || n > 1100 {
			t.Errorf("pod %d got %d of 4,000", slot, n)
		}
	}
}

// table returns n pods that were scraped just now.
func table(n int, stats podstate.Stats, now time.Time) *podstate.Table {
	t := podstate.NewTable()
	var specs []podstate.Spec
	for i := range n {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
		specs = append(specs, podstate.Spec{Addr: addr})
	}
	t.SetPods(specs)
	for _, p := range t.Pods() {
		s := stats
		s.At, s.Every = now, time.Second
		t.SetStats(p, &s, t.BeginScrape(p))
	}
	return t
}

// pick sends one request and leaves it open.
func pick(tb testing.TB, t *podstate.Table, p *Profile, req *Request, now time.Time) *podstate.Reservation {
	tb.Helper()
	r, err := t.PickAndReserve(&podstate.Ask{Now: now, Tokens: req.Tokens, Output: req.Output}, func(c []podstate.Candidate) (int, int) {
		return p.Choose(req, c)
	})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func TestBurstBetweenTwoScrapesSpreads(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, name := range Profiles() {
		if name == "chwbl" || name == "random" || name == "p2c" {
			continue // they do not aim at equal shares
		}
		t.Run(name, func(t *testing.T) {
			p, err := NewProfile(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			tab := table(8, podstate.Stats{
				Known:    podstate.FieldWaiting | podstate.FieldRunning | podstate.FieldKVUsage | podstate.FieldKVTokens,
				KVTokens: 400_000,
			}, now)
			got := map[*podstate.Pod]int{}
			for seed := range uint64(400) {
				r := pick(t, tab, p, &Request{Tokens: 1000, Output: 100, Seed: seed}, now)
				got[r.Pod()]++
			}
			for _, pod := range tab.Pods() {
				if got[pod] < 30 || got[pod] > 80 {
					t.Errorf("%s got %d of 400 equal requests to 8 equal pods", pod.Addr, got[pod])
				}
			}
		})
	}
}

func TestChooseDoesNotAllocate(t *testing.T) {
	for _, name := range Profiles() {
		p, err := NewProfile(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		cands := named(waits(0, 0), unreported(), waits(1, 2), aged(waits(3, 0), 100), caches(7))
		req := &Request{Tokens: 100, Subset: []string{"10.0.0.1", "10.0.0.2:8000", "10.0.0.3", "10.0.0.4", "10.0.0.5"}}
		p.Choose(req, cands)
		if n := testing.AllocsPerRun(100, func() { p.Choose(req, cands) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
