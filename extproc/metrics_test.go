package extproc

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/warmpath/warmpath/podstate"
)

func TestMetrics(t *testing.T) {
	g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
	for range 2 {
		d := decidedStream(t, g, buffered)
		d.send(respHeaders(false, "200", podA, 1))
		d.expect("response-headers")
	}
	d := g.open(t)
	d.send(in(reqHeaders(false), buffered))
	d.expect("headers")
	d.send(reqBody(`{"model":"none"}`, true))
	d.expect("immediate 404 unknown-model")

	for _, want := range []struct {
		name, label string
		value       float64
	}{
		{"decisions_total", "picked", 2},
		{"decisions_total", "unknown-model", 1},
		{"responses_total", "2xx", 2},
		{"inflight_requests", "pod-" + podA, 2},
		{"inflight_requests", "pod-" + podB, 0},
		{"inflight_requests", "m", 2},
	} {
		if got := g.count(want.name, want.label); got != want.value {
			t.Errorf("%s of %s is %v, want %v", want.name, want.label, got, want.value)
		}
	}
	if g.count("prompt_tokens_total", "m") < 2 {
		t.Error("no prompt tokens were counted")
	}

	families, err := g.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("promlint: %s: %s", p.Metric, p.Text)
	}
	g.compareREADME()
}

// A pick may take pods that are out when too few others are left. Whoever is to be
// called then must not read that all is well.
func TestPodsAreCountedByState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool("m", firstTwo{}, podA, podB, podC, "10.0.0.4:8000", "10.0.0.5:8000")
		g := newGateway(t, Config{}, "", pool)
		want := func(in, ejected, probing, down, asleep float64) {
			t.Helper()
			for state, want := range map[string]float64{"in": in, "ejected": ejected, "probing": probing, "down": down, "asleep": asleep} {
				if got := g.count("pods", state); got != want {
					t.Errorf("%v pods are %s, want %v", got, state, want)
				}
			}
			if got := g.count("pods", "m"); got != in+ejected+probing+down+asleep {
				t.Errorf("%v pods in all", got)
			}
		}
		send := func(i int) *podstate.Reservation {
			t.Helper()
			r, err := pool.Table.PickAndReserve(&podstate.Ask{Now: time.Now(), Tokens: 1},
				func([]podstate.Candidate) (int, int) { return i, -1 })
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		want(5, 0, 0, 0, 0)
		families, err := g.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if n := len(f.GetMetric()); f.GetName() == "warmpath_extproc_pods" && n != 5 {
				t.Errorf("%d series; want all five, those of 0 too", n)
			}
		}
		for i := range 3 {
			for range 3 {
				r := send(i)
				r.Failed(time.Now())
				r.Release(time.Now())
			}
		}
		pods := pool.Table.Pods()
		for range 2 {
			pool.Table.ScrapeRefused(pods[3], time.Now())
		}
		pool.Table.SetStats(pods[4], &podstate.Stats{At: time.Now(), Known: podstate.FieldAsleep, Asleep: true}, 0)
		want(0, 3, 0, 1, 1)
		time.Sleep(2 * time.Second) // the trials are due
		want(0, 0, 3, 1, 1)
		r := send(0)
		want(0, 0, 3, 1, 1)
		r.Succeeded(time.Now())
		r.Release(time.Now())
		want(1, 0, 2, 1, 1)
		time.Sleep(time.Minute) // a pod that is not heard of any more may have woken up
		want(2, 0, 2, 1, 0)
	})
}

// compareREADME fails unless the README names exactly the metrics that exist.
func (g *gateway) compareREADME() {
	families, err := g.reg.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	var have []string
	for _, f := range families {
		have = append(have, f.GetName())
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		g.t.Fatal(err)
	}
	documented := regexp.MustCompile(`warmpath_extproc_[a-z_]+`).FindAllString(string(readme), -1)
	slices.Sort(documented)
	documented = slices.Compact(documented)
	if !slices.Equal(have, documented) {
		g.t.Errorf("metrics are %q, README.md has %q", have, documented)
	}
}

func TestPrefixHitsAreCounted(t *testing.T) {
	g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
	long := prompt(0, 4<<10)
	for range 2 {
		d := g.open(t)
		d.send(in(reqHeaders(false), buffered))
		d.expect("headers")
		d.send(reqBody(long, true))
		d.expect(pickBody)
	}
	all, hit := g.count("prompt_tokens_total", "m"), g.count("prefix_hit_tokens_total", "m")
	if hit < all*0.4 || hit > all*0.5 {
		t.Errorf("%v of %v tokens were hits; want nearly all of the second prompt", hit, all)
	}
}
