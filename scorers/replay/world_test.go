package replay

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

// world is a pool under an erratic load: pods that come, go, fail, sleep and say
// whatever a pod may say, with requests that end in every way.
type world struct {
	rng   *rand.Rand
	now   time.Time
	table *podstate.Table
	specs []podstate.Spec
	open  []*podstate.Reservation
	next  int // number of the next pod
}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_700_000_000, 0), table: podstate.NewTable()}
	for range 1 + w.rng.IntN(8) {
		w.join()
	}
	return w
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (w *world) join() {
	w.next++
	s := podstate.Spec{Name: fmt.Sprintf("pod-%d", w.next), UID: fmt.Sprint(w.rng.Uint32()),
		Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(w.next >> 8), byte(w.next)}), 8000)}
	if w.chance(0.5) {
		s.Labels = map[string]string{"gpu": []string{"H100", "A10G"}[w.rng.IntN(2)]}
	}
	w.specs = append(w.specs, s)
	w.table.SetPods(w.specs)
}

// turn lets something happen.
func (w *world) turn() {
	w.now = w.now.Add(time.Duration(w.rng.ExpFloat64() * 2e7))
	pods := w.table.Pods()
	p := pods[w.rng.IntN(len(pods))]
	switch w.rng.IntN(40) {
	case 0:
		w.join()
	case 1:
		if len(w.specs) > 1 {
			i := w.rng.IntN(len(w.specs))
			w.specs = slices.Delete(w.specs, i, i+1)
			w.table.SetPods(w.specs)
		}
	case 2:
		w.table.ScrapeRefused(p, w.now)
	case 3, 4, 5, 6, 7, 8, 9, 10:
		mark := w.table.BeginScrape(p)
		w.table.SetStats(p, w.stats(), mark)
	}
	for range w.rng.IntN(3) {
		if len(w.open) == 0 {
			break
		}
		i := w.rng.IntN(len(w.open))
		r := w.open[i]
		switch w.rng.IntN(8) {
		case 0:
			r.Failed(w.now)
		case 1:
			r.Refused()
		case 2, 3, 4:
			r.FirstToken(w.now)
			r.Succeeded(w.now)
			if w.chance(0.5) {
				continue
			}
		}
		r.Release(w.now)
		w.open = slices.Delete(w.open, i, i+1)
	}
}

// stats are what a pod may say, down to nothing.
func (w *world) stats() *podstate.Stats {
	f := w.rng.Float64
	n := w.rng.IntN
	s := &podstate.Stats{
		At: w.now.Add(-time.Duration(n(1e8))), Every: time.Duration(n(3)) * 500 * time.Millisecond, Epoch: n(3),
		Engine: []string{"vllm", "sglang", ""}[n(3)], Known: podstate.Field(w.rng.Uint32()) & allFields,
		Running: float64(n(50)), Waiting: float64(n(9)), Deferred: float64(n(3)), KVUsage: f(), KVPeak: f(),
		KVTokens: n(500_000), BlockTokens: 16, MaxRunning: n(256), MaxModelLen: n(131_072),
		Load: f() * 40, LoadAt: w.now, PrefillTokens: f() * 1e5,
		Models: []string{"m"}, Loadable: adapterNames, MaxAdapters: n(4),
		PrefixQueries: f() * 1e9, PrefixHits: f() * 1e8, PromptTokens: f() * 1e9, GenerationTokens: f() * 1e8, Preemptions: float64(n(9)),
		Asleep: w.chance(0.05),
	}
	for _, name := range adapterNames {
		if w.chance(0.3) {
			s.Adapters = append(s.Adapters, name)
		}
	}
	return s
}

var adapterNames = []string{"sql", "chat", "für \"alle\""}

var allFields = func() (all podstate.Field) {
	for _, c := range columns {
		all |= c.field
	}
	return all
}()

// decide makes a decision by p, as the server does, and returns it.
func (w *world) decide(tb testing.TB, profile string, weights map[string]float64, p Policy) *Decision {
	tb.Helper()
	d := &Decision{Time: w.now, Pool: "pool", Profile: profile, Weights: weights}
	req := scorers.Request{Tokens: 1 + int(w.rng.ExpFloat64()*2000), Output: w.rng.IntN(500), Reuse: w.rng.Float64() * 2, Seed: w.rng.Uint64(), Key: w.rng.Uint64N(4) * 0x9e3779b97f4a7c15}
	if w.chance(0.3) {
		req.Adapter = adapterNames[w.rng.IntN(len(adapterNames))]
	}
	if w.chance(0.1) {
		req.Subset = []string{}
		for _, s := range w.specs {
			if w.chance(0.5) {
				req.Subset = append(req.Subset, s.Addr.String())
			}
		}
	}
	ask := &podstate.Ask{Now: w.now, Tokens: req.Tokens, Output: req.Output, Adapter: req.Adapter, Whole: w.chance(0.2)}
	if w.chance(0.7) {
		for range w.next {
			ask.Cached = append(ask.Cached, int32(w.rng.IntN(2)*w.rng.IntN(req.Tokens+1)))
			ask.Retention = append(ask.Retention, float32(w.rng.IntN(2))*float32(w.rng.ExpFloat64()*300))
		}
	}
	r, err := w.table.PickAndReserve(ask, func(cands []podstate.Candidate) (int, int) {
		d.Candidates = slices.Clone(cands)
		i, j := p.Choose(&req, cands)
		if i >= 0 {
			d.First = cands[i].Pod
		}
		if j >= 0 {
			d.Second = cands[j].Pod
		}
		return i, j
	})
	d.Request = req
	if err == nil {
		w.open = append(w.open, r)
	}
	return d
}
