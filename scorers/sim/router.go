package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/podstate/prefix"
	"github.com/warmpath/warmpath/scorers"
	"github.com/warmpath/warmpath/scorers/sim/engine"
)

// Policy places requests. A scorers.Profile is one.
type Policy interface {
	Choose(req *scorers.Request, cands []podstate.Candidate) (first, second int)
}

const (
	indexBytes    = 256 << 20 // of each router's prefix index
	assumedOutput = 256       // tokens; what the server assumes of a request that sets no limit
	keyTokens     = 128       // of the prompt's head make its key
)

// epoch is the time of the simulation's start.
var epoch = time.Unix(1_000_000_000, 0)

func clock(t time.Duration) time.Time { return epoch.Add(t) }

// router is one replica of warmpath.
type router struct {
	table  *podstate.Table
	index  *prefix.Index
	policy Policy
	pods   []*podstate.Pod // by number
	rng    *rand.Rand

	blocks []prefix.Block
	match  prefix.Match
	cached []int32
	ask    podstate.Ask
	req    scorers.Request
}

func newRouter(sc *Scenario, policy Policy, rng *rand.Rand) *router {
	r := &router{table: podstate.NewTable(), index: prefix.NewIndex(indexBytes), policy: policy, rng: rng}
	var specs []podstate.Spec
	for i, p := range sc.pods() {
		s := podstate.Spec{
			Name: fmt.Sprintf("pod-%d", i),
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000),
		}
		if sc.Labels {
			s.Labels = map[string]string{"gpu": p.Preset}
		}
		specs = append(specs, s)
	}
	r.pods, _ = r.table.SetPods(specs)
	return r
}

// place picks a pod and charges it. guess is by how much the router's idea of
// the length of prompts is wrong.
func (r *router) place(now time.Duration, q *Request, guess float64, whole bool) *podstate.Reservation {
	tokens := q.Tokens()
	r.blocks = routerBlocks(r.blocks[:0], q.Prompt, prefix.Seed("", q.Adapter, ""))
	r.index.Match(r.blocks, clock(now), &r.match)
	r.cached = append(r.cached[:0], r.match.Bytes...)
	estimate := max(1, int(float64(tokens)*guess))
	for i, bytes := range r.cached {
		r.cached[i] = int32(int64(bytes) * int64(estimate) / int64(tokens*tokenBytes))
	}
	seed := r.rng.Uint64()
	key := seed
	if len(r.blocks) > 0 {
		key = r.blocks[min(len(r.blocks), keyTokens*tokenBytes/int(layout[0].Bytes))-1].Hash
	}
	r.ask = podstate.Ask{Now: clock(now), Tokens: estimate, Output: assumedOutput, Whole: whole, Cached: r.cached, Retention: r.match.Retention, Adapter: q.Adapter}
	r.req = scorers.Request{Tokens: estimate, Output: assumedOutput, Adapter: q.Adapter, Reuse: r.match.Reuse, Key: key, Seed: seed}
	res, err := r.table.PickAndReserve(&r.ask, func(c []podstate.Candidate) (int, int) { return r.policy.Choose(&r.req, c) })
	if err != nil {
		return nil
	}
	r.index.Insert(res.Pod().Slot, r.blocks, clock(now))
	return res
}

// mirror takes over what another router has placed.
func (r *router) mirror(at time.Duration, q *Request, pod int, tokens, cached int, whole bool) *podstate.Reservation {
	slot := r.pods[pod].Slot
	r.blocks = routerBlocks(r.blocks[:0], q.Prompt, prefix.Seed("", q.Adapter, ""))
	r.cached = append(r.cached[:0], make([]int32, slot+1)...)
	r.cached[slot] = int32(cached)
	r.ask = podstate.Ask{Now: clock(at), Tokens: tokens, Output: assumedOutput, Whole: whole, Cached: r.cached, Adapter: q.Adapter}
	res, err := r.table.PickAndReserve(&r.ask, func(c []podstate.Candidate) (int, int) {
		for i := range c {
			if c[i].Pod.Slot == slot {
				return i, -1
			}
		}
		return -1, -1
	})
	if err != nil {
		return nil
	}
	r.index.Insert(slot, r.blocks, clock(at))
	return res
}

// scraped gives the table what a pod said.
func (r *router) scraped(pod int, s *podstate.Stats, mark uint64) {
	p := r.pods[pod]
	r.table.SetStats(p, s, mark)
	if s.Has(podstate.FieldKVTokens) {
		r.index.SetCapacity(p.Slot, int64(s.KVTokens)*tokenBytes)
	}
}

// stats is what the scraper makes of a vLLM server's metrics.
func stats(at time.Duration, every time.Duration, generation int, cfg *engine.Config, rep engine.Report, adapters bool) *podstate.Stats {
	s := &podstate.Stats{
		At: clock(at), Every: every, Epoch: generation, Engine: "vllm",
		Known: podstate.FieldRunning | podstate.FieldWaiting | podstate.FieldDeferred | podstate.FieldKVUsage | podstate.FieldKVTokens |
			podstate.FieldBlockTokens | podstate.FieldMaxModelLen | podstate.FieldPrefixHits | podstate.FieldPromptTokens |
			podstate.FieldGenerationTokens | podstate.FieldPreemptions,
		Running: float64(rep.Running), Waiting: float64(rep.Waiting), Deferred: float64(rep.Deferred),
		KVUsage: rep.KVUsage, KVPeak: rep.KVUsage, KVTokens: cfg.KVTokens, BlockTokens: cfg.BlockTokens, MaxModelLen: cfg.MaxModelLen,
		PrefixQueries: float64(rep.PrefixQueries), PrefixHits: float64(rep.PrefixHits),
		PromptTokens: float64(rep.PromptTokens), GenerationTokens: float64(rep.GenerationTokens), Preemptions: float64(rep.Preemptions),
	}
	if adapters {
		s.Known |= podstate.FieldAdapters | podstate.FieldMaxAdapters
		s.Adapters, s.MaxAdapters = rep.Adapters, cfg.AdapterSlots
	}
	return s
}
