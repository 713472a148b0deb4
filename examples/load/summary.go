package load

import (
	"slices"
	"time"
)

// Summary is what a run came to.
type Summary struct {
	Requests int
	Failed   int
	TTFT     Quantiles     // of those that did not fail
	Total    Quantiles     // likewise
	Cached   float64       // share of prompt tokens that were in a cache
	Late     time.Duration // by how much this machine was late at worst to send a request
}

// Quantiles of durations.
type Quantiles struct{ P50, P95, P99 time.Duration }

// Summarize sums a run up.
func Summarize(plan []Request, results []Result) Summary {
	s := Summary{Requests: len(results)}
	var ttft, total []time.Duration
	prompt, cached := 0, 0
	for i, r := range results {
		if r.Err != nil {
			s.Failed++
			continue
		}
		s.Late = max(s.Late, r.Sent-plan[i].At)
		ttft = append(ttft, r.TTFT)
		total = append(total, r.Total)
		prompt += r.Prompt
		cached += r.Cached
	}
	s.TTFT, s.Total = quantiles(ttft), quantiles(total)
	if prompt > 0 {
		s.Cached = float64(cached) / float64(prompt)
	}
	return s
}

func quantiles(d []time.Duration) (q Quantiles) {
	if len(d) == 0 {
		return q
	}
	slices.Sort(d)
	at := func(share float64) time.Duration { return d[min(len(d)-1, int(share*float64(len(d))))] }
	return Quantiles{at(0.50), at(0.95), at(0.99)}
}
