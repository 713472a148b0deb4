package sim

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/scorers/sim/engine"
)

func TestMeasures(t *testing.T) {
	s := time.Second
	m := Measure(&Outcome{
		Records: []Record{
			{At: 1 * s, TTFT: 9 * s, Total: 10 * s, Prompt: 10, Output: 5},              // warm-up
			{At: 20 * s, TTFT: 1 * s, Total: 3 * s, Prompt: 100, Cached: 60, Output: 5}, // done in time
			{At: 50 * s, TTFT: 3 * s, Total: 60 * s, Prompt: 100, Output: 1},            // not done in time
			{At: 60 * s, TTFT: 2 * s, Prompt: 200, Cached: 40, Output: 50},              // died
			{At: 100 * s}, // never came to a pod
		},
		Reports: []engine.Report{{Preemptions: 2}, {Preemptions: 3, AdapterLoads: 1}},
	})
	want := Measures{Requests: 4, TTFT: Spread{2, 2, 2.9, 2.98}, Total: Spread{31.5, 31.5, 57.15, 59.43}, TPOT: Spread{0.5, 0.5, 0.5, 0.5},
		Hit: 0.25, Failed: 0.5, Unfinished: 0.25, Throughput: 5.0 / 90, Preemptions: 5, AdapterLoads: 1}
	near := func(a, b Spread) bool {
		return math.Abs(a.P50-b.P50)+math.Abs(a.Mean-b.Mean)+math.Abs(a.P95-b.P95)+math.Abs(a.P99-b.P99) < 1e-9
	}
	if !near(m.TTFT, want.TTFT) || !near(m.Total, want.Total) || !near(m.TPOT, want.TPOT) {
		t.Errorf("got %+v, want %+v", m, want)
	}
	m.TTFT, m.Total, m.TPOT = want.TTFT, want.Total, want.TPOT
	if m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
	late := Measure(&Outcome{Window: 30 * s, Records: []Record{
		{At: 2 * s, TTFT: 9 * s, Total: 10 * s, Output: 5}, // warm-up
		{At: 10 * s, TTFT: 1 * s, Total: 3 * s, Output: 7},
		{At: 29 * s, TTFT: 1 * s, Total: 3 * s, Output: 7}, // not done in time
		{At: 31 * s, TTFT: 9 * s, Total: 10 * s, Output: 5},
	}})
	if late.Requests != 2 || late.Unfinished != 0.5 || late.Throughput != 7.0/27 || late.TTFT.Mean != 1 {
		t.Errorf("in a window of 30 s: %+v", late)
	}
	if m := Measure(&Outcome{}); m != (Measures{}) {
		t.Errorf("nothing measures %+v", m)
	}
}

func TestRatio(t *testing.T) {
	base := []float64{1, 2, 3, 4, 5, 6, 7, 8}
	double := make([]float64, len(base))
	noise := make([]float64, len(base))
	for i, v := range base {
		double[i] = 2 * v
		noise[i] = v * []float64{1.5, 0.6}[i%2]
	}
	if r := ratio(double, base); math.Abs(r.Value-2) > 1e-9 || math.Abs(r.Low-2) > 1e-9 || math.Abs(r.High-2) > 1e-9 || r.Tie() {
		t.Errorf("twice as large each time: %+v", r)
	}
	if r := ratio(noise, base); !r.Tie() || r.Low > 0.8 || r.High < 1.1 || r.Low > r.Value || r.Value > r.High {
		t.Errorf("up and down: %+v, want a tie", r)
	}
	if r := ratio([]float64{0}, []float64{1}); !math.IsNaN(r.Value) {
		t.Errorf("no pairs: %+v", r)
	}
}

func TestCollapsedSeeds(t *testing.T) {
	of := func(means ...float64) (list []Measures) {
		for _, m := range means {
			list = append(list, Measures{TTFT: Spread{Mean: m}})
		}
		return list
	}
	if got := collapsed([][]Measures{of(1, 1, 3), of(2, 80, 1), of(6, 6, 6)}); !slices.Equal(got, []int{0, 1, 3}) {
		t.Errorf("got %v, want 0, 1 and 3", got)
	}
}

func main(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Main(t.Context(), args, &out)
	return out.String(), err
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "t.csv")
	var rows strings.Builder
	rows.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 200 {
		rows.WriteString(start.Add(time.Duration(i)*300*time.Millisecond).Format("2006-01-02 15:04:05.0000000") + ",700,30\n")
	}
	if err := os.WriteFile(trace, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	table, svg := filepath.Join(dir, "r.csv"), filepath.Join(dir, "r.svg")
	text, err := main(t, "--scenario", "H", "--trace", "H="+trace, "--policy", "round-robin,hyperpod", "--policy", "queue=1,prefix=2",
		"--seeds", "2", "--load", "0.5,1", "--fleet", "h100-8b=1,a10g-8b=1", "--csv", table, "--svg", svg)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1×h100-8b + 1×a10g-8b", "recorded load", "load ×0.5, 1", "queue=1,prefix=2", "as multiples of those of round-robin"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	f, err := os.Open(table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil || len(records) != 1+2*3*2 || !slices.Equal(records[0], csvHead) {
		t.Errorf("%d rows, error %v; want a head and 12", len(records), err)
	}
	plot, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(plot)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot is not well-formed: %v", err)
		}
	}
	if n := bytes.Count(plot, []byte("<polyline")); n != 6 || bytes.Contains(plot, []byte("NaN")) {
		t.Errorf("%d lines, want two for each policy, and no NaN", n)
	}
	text, err = main(t, "--scenario", "H", "--trace", "H="+trace, "--policy", "hyperpod,round-robin", "--seeds", "1",
		"--scrape", "50ms,5s", "--routers", "1,4", "--whole", "0.3", "--blind", "0.5")
	if sweep := "policy 50ms, 1 router(s) 50ms, 4 router(s) 5s, 1 router(s) 5s, 4 router(s)"; err != nil || !strings.Contains(strings.Join(strings.Fields(text), " "), sweep) {
		t.Errorf("a sweep gives %v and lacks %q:\n%s", err, sweep, text)
	}
	if text, err := main(t, "--list"); err != nil || !strings.Contains(text, "D1 ") || !strings.Contains(text, "U1 ") {
		t.Errorf("list: %v\n%s", err, text)
	}
}

func TestStudyEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Main(ctx, []string{"--scenario", "A"}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestAWSTableNamesBothSides(t *testing.T) {
	of := func(p95, p99, rate float64) []Measures {
		return []Measures{{TTFT: Spread{P95: p95, P99: p99}, Throughput: rate, Unfinished: 0.07}}
	}
	r := &result{study: &study{policies: []string{"round-robin", "ours"}, seeds: 1}, runs: [][][]Measures{{of(10, 20, 100), of(1, 1, 110)}}}
	var out bytes.Buffer
	if err := awsTable(&out, map[string]*result{"A": r}); err != nil || out.Len() > 0 {
		t.Errorf("without one of the six scenarios: error %v, %q", err, out.String())
	}
	if err := awsTable(&out, map[string]*result{"M1": r}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"AWS -97 -97 +8 7.4%", "ours -90 -95 +10 7.0%"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
