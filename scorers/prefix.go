package scorers

import "github.com/warmpath/warmpath/podstate"

// prefix prefers pods that have more of the prompt in their cache: cached
// tokens / tokens.
type prefix struct{}

var _ Scorer = prefix{}

func (prefix) Score(req *Request, pods []podstate.Candidate, out []float64) {
	for i := range pods {
		out[i] = float64(pods[i].Cached) / float64(max(1, req.Tokens))
	}
}
