package scorers

import "github.com/warmpath/warmpath/podstate"

// queue prefers pods where fewer requests wait:
//
//	(max - waiting) / (max - min), and 1 for all if they are equal
//
// Requests sent since the scrape count as waiting; otherwise all that come
// between two scrapes would follow each other to one pod.
type queue struct{ gauge }

var _ Scorer = (*queue)(nil)

func (q *queue) Score(_ *Request, pods []podstate.Candidate, out []float64) {
	q.waiting(pods, out)
	spread(out)
}

func (g *gauge) waiting(pods []podstate.Candidate, out []float64) {
	g.read(pods, podstate.FieldWaiting, (*podstate.Candidate).Waits, out)
	for i := range pods {
		out[i] += float64(pods[i].Unseen)
	}
}
