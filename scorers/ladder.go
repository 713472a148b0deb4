package scorers

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/podstate"
)

// ladder notes on which rung the choice among these pods stands, and returns the
// policy for it. As long as anything is known, policies go on with what they
// have: of gauges without trust the pool's median is left, and what was sent
// always counts. Where nothing is known, they would scatter the requests that
// share a beginning.
func (p *Profile) ladder(req *Request, pods []podstate.Candidate) policy {
	req.Rung = podstate.RungOf(pods)
	if req.Rung < podstate.RungHash {
		return p.policy
	}
	for i := range pods {
		if pods[i].Cached > 0 { // the prefix is known, at least
			req.Rung = podstate.RungInFlight
			return p.policy
		}
	}
	if req.Key == req.Seed {
		req.Rung = podstate.RungRandom
	}
	switch p.policy.(type) {
	case *cost, *weighted:
		return chwbl{}
	default: // it has its own way to begin
		return p.policy
	}
}

// order is the order of pods for a key. It is the same in all replicas, unlike
// Pod.Slot.
func order(key uint64, pod *podstate.Pod) uint64 {
	ip := pod.Spec.Addr.Addr().As16()
	key += binary.BigEndian.Uint64(ip[:8])*0x9e3779b97f4a7c15 + binary.BigEndian.Uint64(ip[8:])*0xbf58476d1ce4e5b9
	return mix(key, int(pod.Spec.Addr.Port()))
}
