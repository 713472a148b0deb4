package scorers

import (
	"math"

	"github.com/warmpath/warmpath/podstate"
)

// cost is the policy of seconds: what a request costs on a pod is its own wait
// for the first token, and the waits that it inflicts on others.
//
//	T + T²/patience     its own first token: the queue, and its prompt
//	+ regret            work that another pod has cached already
//	+ stall             answers that pause while its prompt is processed
//	+ batch             steps become longer, and the batch fuller
//	+ memory            risk that the KV cache overflows
//	+ adapter           to load it, or to wait for a slot
//
// README.md says where each term and each number comes from.
type cost struct {
	wait   float64 // weight of T
	regret float64 // a second of needless work delays so many of load/(1-load)
	stall  float64 // weight of a second by which a running answer pauses
	batch  float64 // weight of a step of each running request
}

var (
	latency = &cost{wait: 1, regret: 2, stall: 0.4, batch: 0.3}
	// Batch work has patience: only what costs tokens per second counts.
	throughput = &cost{wait: 0.2, regret: 8, stall: 0.1, batch: 1}
)

const (
	// patience, in tokens of work of the fastest pod, is where T²/patience is as
	// much as T. Below, the pool may send a few long prompts where they stall the
	// fewest answers, which makes most requests faster; the longer the queues, the
	// less, because that is at the expense of those who wait longest anyway.
	patience = 32_000
	// longest is what the stall of one prompt counts at most, in tokens: beyond,
	// the stall of others must not decide, or the longest prompts would starve.
	longest = 8192
	// busiest bounds load/(1-load).
	busiest = 0.95

	// The KV cache grows while answers do, so a pod that is nearly full will have
	// to freeze some of them for seconds.
	kvFree, kvFull, kvSeconds = 0.7, 1.05, 4.0
	kvGrowth                  = 300 // tokens that the request will add

	// An adapter that is not resident evicts another one, which must come back: a
	// fixed price, seconds, and its wait twice.
	adapterEvicts, adapterTwice = 0.1, 2
)

var _ policy = (*cost)(nil)

func (k *cost) cost(req *Request, pods []podstate.Candidate, out []float64) {
	cached, fastest := 0, math.Inf(1)
	for i := range pods {
		cached = max(cached, pods[i].Cached)
		fastest = min(fastest, pods[i].Speed.Token)
	}
	scale := max(1e-9, patience*fastest)
	for i := range pods {
		c := &pods[i]
		s := &c.Speed
		own := s.Prefill(req.Tokens, c.Cached)
		t := k.wait * (c.Wait + s.Base + own)
		load := min(busiest, c.Util)
		needless := own - s.Prefill(req.Tokens, cached)
		active := float64(c.Charge.Requests)
		uncached := float64(req.Tokens - c.Cached)

		out[i] = t + t*t/scale +
			k.regret*load/(1-load)*needless +
			k.stall*active*s.Token*min(uncached, longest) +
			k.batch*active*s.Base +
			memory(c, uncached) +
			adapterCost(c)
	}
}

// memory is the price of filling the KV cache.
func memory(c *podstate.Candidate, uncached float64) float64 {
	if !c.Stats.Has(podstate.FieldKVUsage) {
		return 0
	}
	used := c.Trust * c.Stats.KVUsage // without it, what we sent is left
	if c.Stats.Has(podstate.FieldKVTokens) && c.Stats.KVTokens > 0 {
		used += (c.Charge.Held*unseenShare(c) + uncached + kvGrowth) / float64(c.Stats.KVTokens)
	}
	return kvSeconds * max(0, used-kvFree) / (kvFull - min(used, 1))
}

func adapterCost(c *podstate.Candidate) float64 {
	if c.Adapter <= podstate.AdapterResident {
		return 0
	}
	return adapterEvicts + adapterTwice*c.AdapterWait
}

// near is how much more than the best a pod may cost and still be as good: the
// prediction is not more exact, and requests that share a beginning should meet.
func (*cost) near(best float64) float64 { return max(0.005, 0.03*best) }
