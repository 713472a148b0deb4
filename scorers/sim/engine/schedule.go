package engine

import (
	"slices"
	"time"
)

// begin forms the next step at the given time, or leaves the engine idle.
func (e *Engine) begin(now time.Duration) {
	for _, r := range e.inbox {
		e.waiting.pushBack(r)
	}
	if len(e.inbox) > 0 {
		e.stalled = false
		e.inbox = e.inbox[:0]
	}
	s := step{budget: e.cfg.TokenBudget}
	preempted := e.schedule(&s)
	if preempted && e.decoders == 0 && s.tokens == 0 {
		// Everything left the batch: only a new admission brings it forward.
		e.admit(&s)
	}
	e.busy = e.decoders > 0 || s.tokens > 0
	if e.busy {
		e.ends = now + e.cfg.stepTime(&s, e.decoders, e.context+e.decoders, e.adapters.running())
	}
}

// step is a batch that is being put together.
type step struct {
	budget    int           // tokens that may still be added
	tokens    int           // prompt tokens to compute
	attention float64       // sum over them of the tokens that each looks back at
	load      time.Duration // of adapters
}

// schedule serves decoders first, then the prompt that is half done, then those
// that wait. It reports whether it had to preempt; then nobody was let in.
func (e *Engine) schedule(s *step) (preempted bool) {
	slot := e.steps % e.cfg.BlockTokens
	e.growing = append(e.growing[:0], e.grow[slot]...) // most return to the same slot
	e.grow[slot] = e.grow[slot][:0]
	for _, r := range e.growing {
		for !e.kv.fits(1) && r.phase == decoding {
			e.preempt()
			preempted = true
		}
		if r.phase != decoding {
			continue
		}
		e.kv.cache(r, len(r.blocks))
		e.kv.allocate(r, 1)
		e.place(r, e.steps+e.cfg.BlockTokens)
	}
	s.budget -= e.decoders
	if e.prefill != nil {
		preempted = !e.chunk(s, e.prefill) || preempted
	}
	if !preempted {
		e.admit(s)
	}
	return preempted
}

// preempt sends the request that entered last back to the head of the queue. Its
// blocks stay in the cache until somebody needs them.
func (e *Engine) preempt() {
	r := e.running[len(e.running)-1]
	e.unbatch(r)
	r.phase = queued
	r.redo = true
	e.waiting.pushFront(r)
}

// chunk computes the next part of the half-done prompt, or preempts it when there
// is no room for it.
func (e *Engine) chunk(s *step, r *Request) bool {
	n := min(r.base-r.done, s.budget)
	need := blocksFor(r.done+n, e.cfg.BlockTokens) - len(r.blocks)
	if !e.kv.fits(need) {
		e.preempt()
		return false
	}
	e.compute(s, r, n, need)
	return true
}

// admit lets waiting requests into the batch, in order, while there is room.
func (e *Engine) admit(s *step) {
	if e.stalled || e.prefill != nil {
		return
	}
	for i := 0; i < e.waiting.len(); {
		if s.budget <= 0 || len(e.running) >= e.cfg.MaxSeqs {
			return
		}
		r := e.waiting.at(i)
		if !e.adapters.room(r.Adapter) {
			if !r.deferred {
				r.deferred = true
				e.waiting.deferred++
			}
			i++
			continue
		}
		if !e.enter(s, r) {
			return
		}
		e.waiting.removeAt(i)
		if e.prefill != nil {
			return
		}
	}
	e.stalled = true
}

// enter puts a request into the batch and schedules its first chunk, unless
// there are not enough free blocks.
func (e *Engine) enter(s *step, r *Request) bool {
	base := r.Prompt + r.kept
	hits, held := e.kv.match(r, (base-1)/e.cfg.BlockTokens)
	done := hits * e.cfg.BlockTokens
	n := min(base-done, s.budget)
	need := blocksFor(done+n, e.cfg.BlockTokens) - hits
	if !e.kv.fits(need + hits - held) { // hits that nobody holds come out of the free blocks too
		return false
	}
	if r.deferred {
		r.deferred = false
		e.waiting.deferred--
	}
	e.kv.share(r, hits)
	if load := e.adapters.acquire(r.Adapter, e.steps); load != resident {
		e.counters.AdapterLoads++
		s.load += e.cfg.AdapterLoad
		if load == fromDisk {
			s.load += e.cfg.AdapterFetch
		}
	}
	if r.kept > 0 {
		e.adapters.show(r.Adapter, 1)
	}
	if !r.seen {
		r.seen = true
		r.cached = done
		e.counters.PrefixQueries += r.Prompt
		e.counters.PrefixHits += done
	}
	if r.redo {
		r.redo = false
		e.counters.Preemptions++
	}
	r.phase, r.base, r.done = prefilling, base, done
	e.running = append(e.running, r)
	e.compute(s, r, n, need)
	return true
}

// compute schedules n tokens of a prompt, for which need blocks are allocated.
func (e *Engine) compute(s *step, r *Request, n, need int) {
	e.kv.allocate(r, need)
	s.attention += float64(n) * (float64(r.done) + float64(n)/2)
	s.tokens += n
	s.budget -= n
	r.done += n
	e.kv.cache(r, r.done/e.cfg.BlockTokens)
	if r.done == r.base {
		e.prefill = nil
		e.fresh = append(e.fresh, r)
	} else {
		e.prefill = r
	}
}

func blocksFor(tokens, size int) int { return (tokens + size - 1) / size }

// queue holds the requests that wait, first come first. Removal at its head is
// cheap, elsewhere rare.
type queue struct {
	list     []*Request
	head     int
	deferred int
}

func (q *queue) len() int            { return len(q.list) - q.head }
func (q *queue) at(i int) *Request   { return q.list[q.head+i] }
func (q *queue) pushBack(r *Request) { q.list = append(q.list, r) }
func (q *queue) pushFront(r *Request) {
	if q.head == 0 {
		q.list = slices.Insert(q.list, 0, r)
		return
	}
	q.head--
	q.list[q.head] = r
}

func (q *queue) removeAt(i int) {
	copy(q.list[q.head+1:q.head+i+1], q.list[q.head:q.head+i])
	q.list[q.head] = nil
	q.head++
	if q.head > 64 && q.head > len(q.list)/2 {
		q.list = slices.Delete(q.list, 0, q.head)
		q.head = 0
	}
}

func (q *queue) remove(r *Request) {
	if i := slices.Index(q.list[q.head:], r); i >= 0 {
		q.removeAt(i)
	}
}
