package scorers

import "github.com/warmpath/warmpath/podstate"

// loraAffinity prefers pods that hold the request's adapter (1), then those with
// a free slot for it (0.8), to those where it must wait for a slot or is not
// known (0). All are
// equal for a request without an adapter.
type loraAffinity struct{}

var _ Scorer = loraAffinity{}

func (loraAffinity) Score(_ *Request, pods []podstate.Candidate, out []float64) {
	for i := range pods {
		switch pods[i].Adapter {
		case podstate.AdapterFree:
			out[i] = 0.8
		case podstate.AdapterFull, podstate.AdapterMissing:
			out[i] = 0
		default:
			out[i] = 1
		}
	}
}
