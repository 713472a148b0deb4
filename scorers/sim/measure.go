package sim

import (
	"slices"
	"time"
)

// Measures are what one run came to. Times are seconds.
type Measures struct {
	Requests   int
	TTFT       Spread
	Total      Spread
	TPOT       Spread  // time per output token after the first
	Hit        float64 // share of prompt tokens that were in a cache
	Failed     float64 // share of requests that did not end well
	Unfinished float64 // share of requests that had not ended when the window did, or the last one came
	Throughput float64 // generated tokens a second, of requests that had ended by then

	Preemptions  int
	AdapterLoads int
}

// Spread sums a distribution up.
type Spread struct{ P50, Mean, P95, P99 float64 }

// warmUp is the share of the load's time after which requests count: caches and
// learned speeds start empty.
const warmUp = 0.1

// Measure sums a run up.
func Measure(out *Outcome) Measures {
	end := out.Window
	if end == 0 {
		for _, r := range out.Records {
			end = max(end, r.At)
		}
	}
	begin := time.Duration(warmUp * float64(end))
	var m Measures
	var ttft, total, tpot []float64
	prompt, cached, tokens := 0, 0, 0
	failed, unfinished := 0, 0
	for _, r := range out.Records {
		if r.At < begin || r.At > end {
			continue
		}
		m.Requests++
		if r.TTFT > 0 {
			ttft = append(ttft, r.TTFT.Seconds())
			prompt += r.Prompt
			cached += r.Cached
		}
		if r.Total == 0 {
			failed++
			continue
		}
		total = append(total, r.Total.Seconds())
		if r.Output > 1 {
			tpot = append(tpot, (r.Total-r.TTFT).Seconds()/float64(r.Output-1))
		}
		if r.At+r.Total > end {
			unfinished++
		} else {
			tokens += r.Output
		}
	}
	m.TTFT, m.Total, m.TPOT = spread(ttft), spread(total), spread(tpot)
	if m.Requests > 0 {
		m.Failed = float64(failed) / float64(m.Requests)
		m.Unfinished = float64(unfinished) / float64(m.Requests)
	}
	if prompt > 0 {
		m.Hit = float64(cached) / float64(prompt)
	}
	if end > begin {
		m.Throughput = float64(tokens) / (end - begin).Seconds()
	}
	for _, r := range out.Reports {
		m.Preemptions += r.Preemptions
		m.AdapterLoads += r.AdapterLoads
	}
	return m
}

func spread(x []float64) (s Spread) {
	if len(x) == 0 {
		return s
	}
	slices.Sort(x)
	for _, v := range x {
		s.Mean += v / float64(len(x))
	}
	s.P50, s.P95, s.P99 = quantile(x, 0.50), quantile(x, 0.95), quantile(x, 0.99)
	return s
}

// quantile interpolates in sorted values.
func quantile(x []float64, q float64) float64 {
	at := q * float64(len(x)-1)
	i := int(at)
	if i+1 >= len(x) {
		return x[len(x)-1]
	}
	return x[i] + (at-float64(i))*(x[i+1]-x[i])
}
