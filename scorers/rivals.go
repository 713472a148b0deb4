package scorers

import (
	"math"

	"github.com/warmpath/warmpath/podstate"
)

// The policies of other pickers, for comparison on a user's own traffic. They
// see what warmpath's own policies see: charges are exact, which flatters them.

// perPod is a policy whose cost of a pod does not depend on the other pods.
type perPod func(req *Request, c *podstate.Candidate) float64

var _ policy = perPod(nil)

func (f perPod) cost(req *Request, pods []podstate.Candidate, out []float64) {
	for i := range pods {
		out[i] = f(req, &pods[i])
	}
}

func uncached(req *Request, c *podstate.Candidate) float64 {
	return c.Charge.Ahead + float64(req.Tokens-c.Cached)
}

// lmetric is uncached tokens times the size of the batch.
func lmetric(req *Request, c *podstate.Candidate) float64 {
	return uncached(req, c) * float64(c.Charge.Requests+1)
}

// dynamo adds prefill and decode tokens.
func dynamo(req *Request, c *podstate.Candidate) float64 {
	return uncached(req, c) + c.Charge.Held
}

func leastRequest(_ *Request, c *podstate.Candidate) float64 { return float64(c.Charge.Requests) }

func roundRobin(_ *Request, c *podstate.Candidate) float64 { return float64(c.Last) }

func random(*Request, *podstate.Candidate) float64 { return 0 }

// sticky stays with the pods that hold most of the prompt until their queues are
// far longer than the shortest one; among them, or else among all, the fewest
// uncached tokens win.
type sticky struct{}

var _ policy = sticky{}

func (sticky) cost(req *Request, pods []podstate.Candidate, out []float64) {
	const (
		share = 0.8     // of the prompt
		gap   = 18      // seconds
		rate  = 15_928. // tokens a second, taken for every pod
	)
	holds := func(c *podstate.Candidate) bool { return float64(c.Cached) >= share*float64(req.Tokens) }
	shortest, warm := math.Inf(1), math.Inf(1)
	for i := range pods {
		shortest = min(shortest, pods[i].Charge.Ahead)
		if holds(&pods[i]) {
			warm = min(warm, pods[i].Charge.Ahead)
		}
	}
	stay := (warm-shortest)/rate <= gap
	for i := range pods {
		out[i] = uncached(req, &pods[i])
		if stay && !holds(&pods[i]) {
			out[i] += 1e12
		}
	}
}

// chwbl is consistent hashing with bounded loads: the first pod in the order of
// the key's hash that has at most a quarter more than its share of requests.
type chwbl struct{}

var _ policy = chwbl{}

func (chwbl) cost(req *Request, pods []podstate.Candidate, out []float64) {
	const factor = 1.25
	total := 0
	for i := range pods {
		total += pods[i].Charge.Requests
	}
	bound := factor * float64(total+1) / float64(len(pods))
	for i := range pods {
		out[i] = 1 - float64(order(req.Key, pods[i].Pod))/math.MaxUint64
		if n := float64(pods[i].Charge.Requests); n+1 > bound && n > 0 {
			out[i] = 1 + n
		}
	}
}

// p2c takes the one with fewer requests of two random pods.
type p2c struct{}

var _ policy = p2c{}

func (p2c) cost(req *Request, pods []podstate.Candidate, out []float64) {
	n := uint64(len(pods))
	a := mix(req.Seed, -2) % n
	b := (a + 1 + mix(req.Seed, -3)%max(1, n-1)) % n
	for i := range pods {
		out[i] = float64(pods[i].Charge.Requests)
		if j := uint64(i); j != a && j != b {
			out[i] += 1e12
		}
	}
}
