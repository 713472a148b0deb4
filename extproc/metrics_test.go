package extproc

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
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
