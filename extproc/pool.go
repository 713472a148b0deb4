package extproc

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/warmpath/warmpath/extproc/openai"
	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/podstate/prefix"
	"github.com/warmpath/warmpath/scorers"
)

// Pool is what a decision about one pool's pods needs. Its index in the slice
// given to New is the router's.
type Pool struct {
	Name   string
	Table  *podstate.Table
	Index  *prefix.Index
	Policy Policy

	Observe Observe
}

// Policy picks one of a pool's pods.
type Policy interface {
	// Choose returns the index of the pod to use and of the one to try next, or
	// -1 for none; then req.Refusal says why. It runs with the pool's table
	// locked, for one request at a time, so it must not block, nor keep its
	// arguments. The candidates are the table's and must not be changed.
	Choose(req *scorers.Request, cands []podstate.Candidate) (first, second int)
}

// keyBlocks is how much of a prompt's head is its key: four blocks of 128 bytes,
// enough to tell one system prompt from another.
const keyBlocks = 4

// scratch is the memory of one decision.
type scratch struct {
	body   openai.Request
	blocks []prefix.Block
	match  prefix.Match
	cached []int32 // tokens of the prompt that each pod is expected to have cached
	ask    podstate.Ask
	req    scorers.Request
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// decision is a pod that has been picked and charged.
type decision struct {
	destination
	pool        int
	reservation *podstate.Reservation
	asked       asked
}

// question is what a decision depends on.
type question struct {
	api    openai.Kind
	body   []byte   // what is known of it; may be empty
	whole  bool     // body is all there is
	subset []string // pods that the gateway allows; nil: all
}

// decide reads the body, finds the pool, and picks and charges a pod.
func (s *Server) decide(q *question) (decision, *refusal) {
	now := time.Now()
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)

	// What the scanner cannot read, the model server may: an error matters only
	// if it hides the model's name, and the name matters.
	sc.body.Reset()
	var syntax error
	if len(q.body) > 0 {
		syntax = sc.body.Scan(q.api, q.body)
	}
	if syntax != nil && sc.body.Model == "" && q.whole && s.router.NeedsModel() {
		return decision{pool: -1}, &refusal{reason: badJSON, message: "the body must be JSON with a model, which selects the pool: " + syntax.Error()}
	}
	target, err := s.router.Route(sc.body.Model)
	if err != nil {
		return decision{pool: -1}, unroutable(sc.body.Model, err)
	}
	pool := &s.pools[target.Pool]

	expect := s.observers[target.Pool].truth.now()
	tokens := sc.body.Tokens(expect.text)
	answers := max(1, min(sc.body.N, 128))
	output := 0
	if q.api < openai.Embeddings && len(q.body) > 0 {
		output = int(expect.output)
		// A smaller limit in the request is believed. A larger one is not: clients
		// send the model's maximum as a habit.
		if sc.body.MaxTokens > 0 {
			output = min(output, sc.body.MaxTokens)
		}
		output *= answers
	}
	seed := rand.Uint64()
	key := seed
	sc.blocks = prefix.Chain(sc.blocks[:0], prefix.Seed(target.Base, target.Adapter, sc.body.CacheSalt), q.body, sc.body.Prompt)
	if n := len(sc.blocks); n > 0 {
		key = sc.blocks[min(n, keyBlocks)-1].Hash
	}
	pool.Index.Match(sc.blocks, now, &sc.match)
	sc.cached = expect.cached(sc.cached, sc.match.Bytes, tokens, sc.body.Prompt)

	sc.ask = podstate.Ask{Now: now, Tokens: tokens, Output: output, Whole: !sc.body.Stream, Cached: sc.cached, Retention: sc.match.Retention, Adapter: target.Adapter}
	sc.req = scorers.Request{Tokens: tokens, Output: output, Adapter: target.Adapter, Key: key, Reuse: sc.match.Reuse, Subset: q.subset, Seed: seed}
	engine := ""
	r, err := pool.Table.PickAndReserve(&sc.ask, func(cands []podstate.Candidate) (int, int) {
		first, second := pool.Policy.Choose(&sc.req, cands)
		if first >= 0 {
			engine = cands[first].Stats.Engine
		}
		return first, second
	})
	if err != nil {
		if sc.req.Refusal == scorers.RefusalSubset {
			return decision{pool: target.Pool}, &refusal{reason: emptySubset, decision: seed, message: "none of the pods that the gateway allows for this request can take it; try again later"}
		}
		return decision{pool: target.Pool}, &refusal{reason: noPod, decision: seed, message: "no pod of pool " + pool.Name + " can take the request; try again later"}
	}
	pod := r.Pod()
	pool.Index.Insert(pod.Slot, sc.blocks, now)

	d := decision{pool: target.Pool, reservation: r, destination: destination{value: pod.Addr, pool: pool.Name, id: seed}}
	// Pickers of the EPP protocol name one pod: an ORIGINAL_DST cluster, which
	// many gateways use, answers a list with 503.
	if second := r.Second(); second != nil && !s.cfg.EPP {
		d.value += "," + second.Addr
	}
	s.metrics.tokens(target.Pool, tokens, r.Cached())
	s.metrics.rungs.note(target.Pool, sc.req.Rung)
	d.asked = asked{at: now, body: len(q.body) > 0, stream: sc.body.Stream, answers: answers * max(1, sc.body.Prompts), engine: engine, pod: pod}
	if q.whole {
		d.asked.measure(&sc.body, sc.match.Bytes, pod.Slot)
	}
	return d, nil
}

func unroutable(model string, err error) *refusal {
	if model == "" {
		return &refusal{reason: unknownModel, message: err.Error() + "; set \"model\" in the body, or defaultPool in warmpath's configuration"}
	}
	return &refusal{reason: unknownModel, message: "model " + quoted(model) + ": " + err.Error()}
}

// quoted shortens a name that a client sent, for an error message.
func quoted(s string) string {
	const limit = 200
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return "\"" + s + "\""
}
