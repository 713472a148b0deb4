package scorers

import "github.com/warmpath/warmpath/podstate"

// The scorers of this file rate what was sent and has not ended, or what waits,
// without scaling between the best and the worst pod.

// activeRequests prefers pods with fewer requests of ours in flight:
// (max - n) / max.
type activeRequests struct{}

var _ Scorer = activeRequests{}

func (activeRequests) Score(_ *Request, pods []podstate.Candidate, out []float64) {
	most := 0
	for i := range pods {
		most = max(most, pods[i].Charge.Requests)
	}
	for i := range pods {
		out[i] = 1
		if most > 0 {
			out[i] = float64(most-pods[i].Charge.Requests) / float64(most)
		}
	}
}

// tokenLoad prefers pods with fewer prompt tokens of ours that wait for their
// first token: 1 - tokens / 4,194,304, this request's included.
type tokenLoad struct{}

var _ Scorer = tokenLoad{}

func (tokenLoad) Score(req *Request, pods []podstate.Candidate, out []float64) {
	const full = 4 << 20
	for i := range pods {
		ahead := pods[i].Charge.Ahead + float64(req.Tokens-pods[i].Cached)
		out[i] = 1 - min(1, max(0, ahead/full))
	}
}

// loadAware rates the waiting requests: 0.5 for none, down to 0 for 128.
type loadAware struct{ gauge }

var _ Scorer = (*loadAware)(nil)

func (l *loadAware) Score(_ *Request, pods []podstate.Candidate, out []float64) {
	const full = 128
	l.waiting(pods, out)
	for i := range out {
		out[i] = 0.5 * (1 - min(out[i], full)/full)
	}
}
