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
//	+ memory            until the KV cache has room
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
	latency = &cost{wait: 1, regret: 2, stall: 0.1, batch: 0.1}
	// Batch work has patience: only what costs tokens per second counts.
	throughput = &cost{wait: 0.2, regret: 8, stall: 0.1, batch: 1}
)

const (
	// patience, in tokens of work of the fastest pod, is where T²/patience is as
	// much as T, or relief times the shortest T where that is more. Below, the pool
	// may send a few long prompts where they stall the fewest answers, which makes
	// most requests faster; the longer the queues, the less, because that is at the
	// expense of those who wait longest anyway.
	patience, relief = 8000, 3
	// long is a prompt that counts twice for those who are there, because it shuts
	// the pod for as many who come while it is processed. Two of them belong on one
	// pod, one after the other, and not on two.
	long = 50_000
	// busiest bounds load/(1-load).
	busiest = 0.95
	// kvFree is from where on the KV cache may turn out too small. Those that it
	// freezes then wait as well, so the wait counts so many times.
	kvFree, kvWaits = 0.8, 3

	// An adapter that is not resident evicts another one, which must come back: a
	// fixed price, seconds, and its wait twice.
	adapterEvicts, adapterTwice = 0.1, 2

	// A copy of what another pod has cached costs its work once, and serves all who
	// use it afterwards. Its price is shared only if those are many, for they would
	// have been served by the other pod as well, if less evenly.
	copyUses = 3
	// copyKept is the share of the retention that counts: what a copy evicts may be
	// in use as well.
	copyKept = 0.2
)

var _ policy = (*cost)(nil)

// terms are those of one pod's cost, seconds, in the order of their weights.
type terms [7]float64

var costTerms = [len(terms{})]string{"first", "patience", "regret", "stall", "batch", "memory", "adapter"}

func (k *cost) weights() terms {
	return terms{k.wait, k.wait * k.wait, k.regret, k.stall, k.batch, 1, 1}
}

// pool is what the cost of each pod depends on of all of them.
type pool struct {
	cached   int     // tokens that the best pod has
	reuse    float64 // Request.Reuse
	patience float64 // seconds
	slope    float64 // of T + T²/patience: what one more second costs those who wait
}

// pool returns what is so, and sets each pod's T.
func (k *cost) pool(req *Request, pods []podstate.Candidate, ts []float64) pool {
	cached, fastest, soonest := 0, math.Inf(1), math.Inf(1)
	for i := range pods {
		c := &pods[i]
		cached = max(cached, c.Cached)
		fastest = min(fastest, c.Speed.Token)
		ts[i] = c.Wait + c.Speed.Base + c.Speed.Prefill(req.Tokens, c.Cached)
		soonest = min(soonest, k.wait*ts[i])
	}
	scale := max(1e-9, patience*fastest, relief*soonest)
	return pool{cached, req.Reuse, scale, 1 + 2*soonest/scale}
}

func (p *pool) terms(req *Request, c *podstate.Candidate, t float64, out *terms) {
	load := c.Util
	if load > busiest { // cheaper than min, which must mind NaN
		load = busiest
	}
	active := float64(c.Charge.Requests) + c.Foreign
	share := p.share(c)
	own := float64(req.Tokens-p.cached) + share*float64(p.cached-c.Cached)
	*out = terms{
		t,
		t * t / p.patience,
		share * load / (1 - load) * p.slope * c.Speed.Prefill(p.cached, c.Cached),
		active * c.Speed.Token * own * (1 + own/long),
		active * c.Speed.Base,
		memory(c, req),
		adapterCost(c),
	}
}

// share is how much of the price of a copy, which is work and makes others wait,
// one request bears: the copy serves those who use it while the pod keeps it,
// and evens out the load as long as the answers run that make it uneven.
func (p *pool) share(c *podstate.Candidate) float64 {
	serves := min(c.Stay, copyKept*c.Retention*(1-c.Fill)) * p.reuse
	return copyUses / max(copyUses, serves)
}

func (k *cost) cost(req *Request, pods []podstate.Candidate, out []float64) {
	pool, w := k.pool(req, pods, out), k.weights()
	var t terms
	for i := range pods {
		pool.terms(req, &pods[i], out[i], &t)
		out[i] = w[0]*t[0] + w[1]*t[1] + w[2]*t[2] + w[3]*t[3] + w[4]*t[4] + w[5]*t[5] + w[6]*t[6]
	}
}

// memory is how long the request will wait, or make others wait, until enough of
// the KV cache is free: it empties once in the time that a request stays. It is
// not known to a few percent how much will be needed, so the price begins before.
func memory(c *podstate.Candidate, req *Request) float64 {
	fill := c.Fill
	if c.Stats.Has(podstate.FieldKVTokens) && c.Stats.KVTokens > 0 {
		fill += float64(req.Tokens-c.Cached+req.Output) / float64(c.Stats.KVTokens)
	}
	over := fill - kvFree
	if over <= 0 {
		return 0
	}
	if over < 1-kvFree {
		return kvWaits * c.Stay * over * over / (2 * (1 - kvFree))
	}
	return kvWaits * c.Stay * (over - (1-kvFree)/2)
}

func adapterCost(c *podstate.Candidate) float64 {
	if c.Adapter <= podstate.AdapterResident {
		return 0
	}
	return adapterEvicts + adapterTwice*c.AdapterWait
}

// near is how much more than the best a pod may cost and still be as good: the
// prediction is not more exact, and requests that share a beginning should meet.
func (*cost) near(best float64) float64 { return max(0.005, 0.01*best) }
