package sim

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// awsRow is one row of the table that AWS published for HyperPod's Inference
// Gateway: what it changed against round robin over the same replicas. Nothing
// else is known of the benchmark, not the lengths, rates or numbers of replicas,
// so those are ours. Of M1, M2 and B1 the density is set so that round robin loses
// about the throughput that the published change implies.
type awsRow struct {
	scenario   Scenario
	p95, p99   float64 // percent; 0 is "comparable"
	throughput float64
	unfinished float64 // share that round robin did not finish in the window, by its throughput
}

var awsRows = []awsRow{
	{scenario: Scenario{Name: "M1", About: "mixed GPUs, Llama 8B", Fleet: []PodKind{{Preset: "h100-8b", Count: 3}, {Preset: "a10g-8b", Count: 2}},
		Load: func(g *gen) []Request {
			return g.chat(chat{arrivals: bursts{rate: 11.6, size: 1}, duration: 300 * time.Second, in: mixture{lognormal: lognormal{700, 0.35, 4000}}, out: lognormal{190, 0.3, 1000}})
		}}, p95: -97, p99: -97, throughput: 8, unfinished: 0.074},
	{scenario: Scenario{Name: "M2", About: "mixed GPUs, Qwen 32B", Fleet: []PodKind{{Preset: "h100-32b", Count: 2}, {Preset: "a10g-32b", Count: 3}},
		Load: func(g *gen) []Request {
			return g.chat(chat{arrivals: bursts{rate: 14.5, size: 1}, duration: 300 * time.Second, in: mixture{lognormal: lognormal{700, 0.35, 4000}}, out: lognormal{190, 0.3, 1000}})
		}}, p95: -98, p99: -97, throughput: 50, unfinished: 0.33},
	// What makes bursts bad for round robin is rare long prompts: it sends its
	// share of the burst behind them. Equal pods lose no work by it, so it takes
	// clients that wait for an answer before they ask again, as a benchmark's do,
	// for round robin to be behind in throughput.
	{scenario: Scenario{Name: "B1", About: "bursts of clients with rare long prompts, Llama 70B", Fleet: []PodKind{{Preset: "h100-70b", Count: 4}}, Window: 400 * time.Second,
		Load: func(g *gen) []Request {
			return g.onOff(onOff{rate: 8.5, peak: 51, on: 10 * time.Second, off: 30 * time.Second, duration: 400 * time.Second, row: 20,
				in: mixture{lognormal: lognormal{500, 0.8, 8000}, rare: lognormal{80_000, 0.2, 110_000}, share: 0.004}, out: lognormal{100, 0.7, 1000}})
		}}, p95: -94, p99: -98, throughput: 12, unfinished: 0.107},
	{scenario: Scenario{Name: "B2", About: "milder bursts with rarer long prompts, Qwen 235B", Fleet: []PodKind{{Preset: "h100-235b", Count: 2}},
		Load: func(g *gen) []Request {
			return g.onOff(onOff{rate: 4, peak: 10, on: 10 * time.Second, off: 50 * time.Second, duration: 600 * time.Second,
				in: mixture{lognormal: lognormal{500, 0.5, 8000}, rare: lognormal{60_000, 0.3, 100_000}, share: 0.003}, out: lognormal{200, 0.7, 1000}})
		}}, p95: 0, p99: -89, throughput: 0, unfinished: 0},
	{scenario: Scenario{Name: "P1", About: "shared prefixes, Llama 8B", Fleet: []PodKind{{Preset: "h100-8b", Count: 4}},
		Load: func(g *gen) []Request {
			return g.sessions(sessions{rate: 5, duration: 300 * time.Second, turns: 4, systems: 100, system: 5000,
				first: lognormal{200, 0.6, 2000}, next: lognormal{150, 0.6, 2000}, out: lognormal{150, 0.6, 800}, pause: 15 * time.Second})
		}}, p95: -26, p99: -43, throughput: 0, unfinished: 0},
	{scenario: Scenario{Name: "U1", About: "uniform and steady, Qwen 235B", Fleet: []PodKind{{Preset: "h100-235b", Count: 4}},
		Load: func(g *gen) []Request {
			return g.chat(chat{arrivals: bursts{rate: 8, size: 1}, duration: 300 * time.Second, in: mixture{lognormal: lognormal{800, 0.1, 2000}}, out: lognormal{200, 0.1, 1000}})
		}}, p95: 0, p99: 0, throughput: 0, unfinished: 0},
}

// awsTable prints the published changes beside ours. The first policy of each
// result is round robin. Without a result for one of the rows it prints nothing.
func awsTable(w io.Writer, results map[string]*result) error {
	if !slices.ContainsFunc(awsRows, func(row awsRow) bool { return results[row.scenario.Name] != nil }) {
		return nil
	}
	fmt.Fprint(w, "\nChanges against round robin, as published by AWS for its gateway and as simulated here, in per cent.\n"+
		"AWS did not publish its loads. Ours of M1, M2 and B1 are set so that round robin loses about the throughput that AWS's\n"+
		"table implies: in M1 and M2 it leaves that share of the requests unfinished, in B1 clients wait for their answers before\n"+
		"they ask again. The others only have the shape that AWS describes.\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tpolicy\tTTFT p95\tTTFT p99\tthroughput\tunfinished by round robin\t")
	for _, row := range awsRows {
		r, ok := results[row.scenario.Name]
		if !ok {
			continue
		}
		base := r.runs[0][0]
		fmt.Fprintf(t, "%s\tAWS\t%s\t%s\t%s\t%.1f%%\t\n", row.scenario.Name, published(row.p95), published(row.p99), published(row.throughput), 100*row.unfinished)
		for p := 1; p < len(r.policies); p++ {
			runs := r.runs[0][p]
			delta := func(of func(*Measures) float64) string {
				return percent(100 * (ratio(values(runs, of), values(base, of)).Value - 1))
			}
			fmt.Fprintf(t, "\t%s\t%s\t%s\t%s\t%.1f%%\t\n", r.policies[p],
				delta(func(m *Measures) float64 { return m.TTFT.P95 }), delta(func(m *Measures) float64 { return m.TTFT.P99 }),
				delta(func(m *Measures) float64 { return m.Throughput }), 100*median(values(base, func(m *Measures) float64 { return m.Unfinished })))
		}
	}
	return t.Flush()
}

// published is a change as AWS printed it.
func published(change float64) string {
	if change == 0 {
		return "comparable"
	}
	return percent(change)
}

// percent prints a change; "-" if there is none to tell.
func percent(change float64) string {
	switch change = math.Round(change); {
	case math.IsNaN(change):
		return "-"
	case change == 0: // or it would have a sign
		return "0"
	}
	return fmt.Sprintf("%+.0f", change)
}
