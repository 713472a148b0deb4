package scorers

import "github.com/warmpath/warmpath/podstate"

// running prefers pods that run fewer requests:
//
//	(max - running) / (max - min), and 1 for all if they are equal
//
// Requests sent since the scrape count as running.
type running struct{ gauge }

var _ Scorer = (*running)(nil)

func (r *running) Score(_ *Request, pods []podstate.Candidate, out []float64) {
	r.read(pods, podstate.FieldRunning, func(c *podstate.Candidate) float64 { return c.Stats.Running }, out)
	for i := range pods {
		out[i] += float64(pods[i].Unseen)
	}
	spread(out)
}
