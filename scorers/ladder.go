package scorers

import (
	"encoding/binary"
	"slices"

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
func order(key uint64, pod *podstate.Pod) uint64 { return newPlace(pod).order(key) }

// place is what the orders of pods depend on. Profiles keep it side by side,
// because ties may be between all pods, and those are scattered in memory.
type place struct {
	pod  *podstate.Pod
	ip   uint64 // a hash
	port int
	slot int
}

func newPlace(pod *podstate.Pod) place {
	ip := pod.Spec.Addr.Addr().As16()
	return place{
		pod:  pod,
		ip:   binary.BigEndian.Uint64(ip[:8])*0x9e3779b97f4a7c15 + binary.BigEndian.Uint64(ip[8:])*0xbf58476d1ce4e5b9,
		port: int(pod.Spec.Addr.Port()),
		slot: pod.Slot,
	}
}

func (p place) order(key uint64) uint64 { return mix(key+p.ip, p.port) }

// placesOf returns the places of the pods, which are mostly those of last time.
func (p *Profile) placesOf(pods []podstate.Candidate) []place {
	p.places = slices.Grow(p.places[:0], len(pods))[:len(pods)]
	for i := range pods {
		if pod := pods[i].Pod; p.places[i].pod != pod {
			p.places[i] = newPlace(pod)
		}
	}
	return p.places
}
