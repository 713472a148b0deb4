package scorers

import (
	"math"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/podstate"
)

func TestExplainSaysWhoPassedOverAPod(t *testing.T) {
	p, err := NewProfile("hyperpod", nil)
	if err != nil {
		t.Fatal(err)
	}
	sick := waits(0, 0)
	sick.Health.Out = podstate.OutEjected
	sleeps := reported(podstate.FieldAsleep, podstate.Stats{Asleep: true})
	pods := named(waits(1, 0), sick, sleeps, waits(3, 0), aged(waits(0, 0), 100), waits(2, 0))
	req := &Request{Tokens: 10}
	for i := range pods {
		if i != 3 {
			req.Subset = append(req.Subset, pods[i].Pod.Addr)
		}
	}

	before := slices.Clone(pods)
	var got []string
	for _, v := range p.Explain(req, pods) {
		got = append(got, v.Filter)
		if (v.Filter != "") != math.IsNaN(v.Cost) {
			t.Errorf("filter %q and cost %v; a pod that was passed over has none, every other has one", v.Filter, v.Cost)
		}
	}
	if want := []string{"", "unhealthy", "asleep", "subset", "stale", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i := range pods {
		if pods[i] != before[i] {
			t.Error("the pods were reordered")
		}
	}
}

func TestExplainAgreesWithChoose(t *testing.T) {
	for _, name := range Profiles() {
		p, err := NewProfile(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(50) {
			pods := named(waits(float64(seed%3), 1), caches(int(seed)), unreported(), busy(int(seed%4), 100), adapter(podstate.AdapterFull), adapter(podstate.AdapterFree), aged(waits(0, 0), 4))
			req := &Request{Tokens: 100, Output: 10, Seed: seed, Key: seed % 5}
			verdicts := p.Explain(req, pods)
			of := map[*podstate.Pod]Verdict{}
			least := math.Inf(1)
			for i, v := range verdicts {
				of[pods[i].Pod] = v
				if v.Cost < least {
					least = v.Cost
				}
			}
			first, _ := p.Choose(req, pods)
			if v := of[pods[first].Pod]; v.Filter != "" || v.Cost > least+latency.near(least) {
				t.Errorf("%s: chose a pod of cost %v, passed over by %q; the least is %v", name, v.Cost, v.Filter, least)
			}
			for _, v := range verdicts {
				sum := 0.0
				for _, s := range v.Scores {
					sum += s.Weight * s.Value
				}
				if _, points := p.policy.(*weighted); points {
					sum = -sum // the most of them win
				}
				if len(v.Scores) > 0 && math.Abs(sum-v.Cost) > 1e-9 {
					t.Errorf("%s: scores %v do not add up to cost %v", name, v.Scores, v.Cost)
				}
			}
		}
	}
}

func TestExplainOfNoPod(t *testing.T) {
	p, err := NewProfile("latency", nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := p.Explain(&Request{}, nil); len(v) != 0 {
		t.Errorf("got %v", v)
	}
	v := p.Explain(&Request{Subset: []string{}}, named(waits(0, 0)))
	if len(v) != 1 || v[0].Filter != "subset" {
		t.Errorf("got %+v, want the subset to have passed over it", v)
	}
}
