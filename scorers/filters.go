package scorers

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/podstate"
)

// subset rules out the pods that the gateway does not allow. An entry of the
// subset is an address with its port, or an IP that stands for all its ports.
type subset struct {
	allowed []netip.AddrPort // sorted; port 0 is all ports
}

var _ Filter = (*subset)(nil)

func (f *subset) Filter(req *Request, pods []podstate.Candidate, out []bool) (n int) {
	if req.Subset == nil {
		clear(out)
		return 0
	}
	f.allowed = f.allowed[:0]
	for _, s := range req.Subset {
		if strings.HasPrefix(s, "[") || strings.Count(s, ":") == 1 {
			if a, err := netip.ParseAddrPort(s); err == nil {
				f.allowed = append(f.allowed, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
			}
		} else if a, err := netip.ParseAddr(s); err == nil {
			f.allowed = append(f.allowed, netip.AddrPortFrom(a.Unmap(), 0))
		}
	}
	slices.SortFunc(f.allowed, netip.AddrPort.Compare)
	for i := range pods {
		addr := pods[i].Pod.Spec.Addr
		ip := addr.Addr().Unmap()
		out[i] = !f.has(netip.AddrPortFrom(ip, addr.Port())) && !f.has(netip.AddrPortFrom(ip, 0))
		n += count(out[i])
	}
	return n
}

func (f *subset) has(a netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(f.allowed, a, netip.AddrPort.Compare)
	return found
}

// asleep rules out pods whose weights are unloaded: requests hang there without
// an error.
type asleep struct{}

var _ Filter = asleep{}

func (asleep) Filter(_ *Request, pods []podstate.Candidate, out []bool) (n int) {
	for i := range pods {
		out[i] = pods[i].Asleep()
		n += count(out[i])
	}
	return n
}

// unhealthy passes over pods that fail requests or whose port is closed.
type unhealthy struct{}

var _ Filter = unhealthy{}

func (unhealthy) Filter(_ *Request, pods []podstate.Candidate, out []bool) (n int) {
	for i := range pods {
		out[i] = pods[i].Health.Out != ""
		n += count(out[i])
	}
	return n
}

// full passes over pods whose adapter slots are all in use: there the request
// waits until every request of one of those adapters has ended, and for ever if
// more keep coming. It needs a pod with a free slot, or one that holds the
// adapter and is not crowded by it, or a popular adapter could never spread.
type full struct{}

var _ Filter = full{}

func (full) Filter(_ *Request, pods []podstate.Candidate, out []bool) (n int) {
	clear(out)
	if pods[0].Adapter == podstate.AdapterNone {
		return 0
	}
	requests := 0
	for i := range pods {
		requests += pods[i].Charge.Requests
	}
	crowd := 4 + 2*requests/len(pods)
	open := func(c podstate.Candidate) bool {
		return c.Adapter == podstate.AdapterFree || c.Adapter == podstate.AdapterResident && c.Charge.Requests < crowd
	}
	if !slices.ContainsFunc(pods, open) {
		return 0
	}
	for i := range pods {
		out[i] = pods[i].Adapter == podstate.AdapterFull
		n += count(out[i])
	}
	return n
}

// missing passes over pods that do not list the request's adapter, where others
// do: they would answer 404.
type missing struct{}

var _ Filter = missing{}

func (missing) Filter(_ *Request, pods []podstate.Candidate, out []bool) (n int) {
	if pods[0].Adapter == podstate.AdapterNone {
		clear(out)
		return 0
	}
	for i := range pods {
		out[i] = pods[i].Adapter == podstate.AdapterMissing
		n += count(out[i])
	}
	return n
}

// tooLong passes over pods for which the prompt is too long, where another can
// take it: the server would answer 400. Prompts are estimated, and a server
// counts better than we do, so it must be far too long.
type tooLong struct{}

var _ Filter = tooLong{}

func (tooLong) Filter(req *Request, pods []podstate.Candidate, out []bool) (n int) {
	const clearly = 1.5
	least := int(float64(req.Tokens) / clearly)
	for i := range pods {
		s := pods[i].Stats
		out[i] = s.Has(podstate.FieldMaxModelLen) && least > s.MaxModelLen ||
			s.Has(podstate.FieldKVTokens) && least > s.KVTokens
		n += count(out[i])
	}
	return n
}

// ramping passes over a pod that has come back and already has the growing share
// that it may have of what the other pods run. One request at a time it may have
// from the start.
type ramping struct{}

var _ Filter = ramping{}

func (ramping) Filter(_ *Request, pods []podstate.Candidate, out []bool) (n int) {
	clear(out)
	requests, whole := 0, 0
	for i := range pods {
		if r := pods[i].Health.Ramp; r <= 0 || r >= 1 {
			requests += pods[i].Charge.Requests
			whole++
		}
	}
	if whole == 0 || whole == len(pods) {
		return 0
	}
	mean := float64(requests) / float64(whole)
	for i := range pods {
		ramp := pods[i].Health.Ramp
		out[i] = ramp > 0 && ramp < 1 && float64(pods[i].Charge.Requests) >= max(1, ramp*mean)
		n += count(out[i])
	}
	return n
}

// stale passes over pods whose last scrape is old, if most have a fresh one. It
// is for weighted profiles, which live on what is scraped: their formulas would
// be drawn to a pod that was idle long ago.
type stale struct{}

var _ Filter = stale{}

func (stale) Filter(_ *Request, pods []podstate.Candidate, out []bool) (n int) {
	for i := range pods {
		// A pod that was never scraped may have no metrics to scrape.
		out[i] = pods[i].Silent() && pods[i].Stats.Known != 0
		n += count(out[i])
	}
	if 2*n > len(pods) {
		clear(out)
		return 0
	}
	return n
}

// count is how many pods this is.
func count(out bool) int {
	if out {
		return 1
	}
	return 0
}
