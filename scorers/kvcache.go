package scorers

import "github.com/warmpath/warmpath/podstate"

// kvCache prefers pods with more of their KV cache free: 1 - usage. Requests
// sent since the scrape count with the tokens that they are expected to hold.
type kvCache struct{ gauge }

var _ Scorer = (*kvCache)(nil)

func (k *kvCache) Score(_ *Request, pods []podstate.Candidate, out []float64) {
	k.read(pods, podstate.FieldKVUsage, func(c *podstate.Candidate) float64 { return c.Stats.KVUsage }, out)
	for i := range pods {
		c := &pods[i]
		if c.Stats.Has(podstate.FieldKVTokens) && c.Stats.KVTokens > 0 {
			out[i] += c.Charge.Held * unseenShare(c) / float64(c.Stats.KVTokens)
		}
		out[i] = 1 - min(1, out[i])
	}
}
