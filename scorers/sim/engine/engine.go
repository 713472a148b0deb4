package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Request is one sequence. The caller owns it, sets the first group of fields
// before Submit and leaves it alone until it has finished or was aborted.
type Request struct {
	Prompt int // tokens, at least 1
	Output int // tokens that it will generate, at least 1

	// Blocks are chained hashes of the whole blocks of the prompt followed by
	// the output: equal hashes at a place mean equal tokens up to its end. A
	// list that is shorter leaves the rest without reuse.
	Blocks  []uint64
	Adapter string // LoRA adapter, or empty
	Salt    uint64 // requests of different salts never share blocks

	Data any // for the caller

	// State of the engine.
	space    uint64  // keeps the blocks of other adapters and salts apart
	cached   int     // prompt tokens found in the cache when it was first scheduled
	seen     bool    // it was scheduled once: counters have counted it
	aborted  bool    // it leaves at the end of the step
	deferred bool    // it waits for an adapter slot
	redo     bool    // it was preempted and has not run again
	blocks   []int32 // its KV blocks, in order
	done     int     // tokens computed or being computed while it prefills
	kept     int     // tokens generated before the present prefill
	base     int     // tokens that the present prefill computes: prompt and kept
	from     int     // step count at which it began to decode
	phase    phase
	due      wheel // where it sits while it decodes
	dueAt    int
}

type phase uint8

const (
	absent     phase = iota // not here
	queued                  // in inbox or waiting
	prefilling              // in the batch, no token yet from the present prefill
	decoding                // one token a step
)

type wheel uint8

const (
	noWheel wheel = iota
	growWheel
	endWheel
)

// Cached is how many tokens of the prompt were found in the prefix cache.
func (r *Request) Cached() int { return r.cached }

// EventKind tells what happened to a request at the end of a step.
type EventKind uint8

// FirstToken comes once, before Finished; a request of one token gets both at once.
const (
	FirstToken EventKind = iota
	Finished
)

// Event is one thing that a step brought about.
type Event struct {
	Kind    EventKind
	Request *Request
}

// Report is what the server says about itself: the state at the end of the last
// step, and counters since it started.
type Report struct {
	Running  int
	Waiting  int      // Deferred included
	Deferred int      // waiting for an adapter slot
	KVUsage  float64  // share of blocks that running requests hold
	Adapters []string // of running requests that have produced a token; do not change

	PrefixQueries, PrefixHits      int // prompt tokens, counted when first scheduled
	PromptTokens, GenerationTokens int // prompt tokens are counted at the first token
	Preemptions                    int // counted when the victim runs again
	AdapterLoads                   int
}

// ErrTooLong says that a request can never fit.
var ErrTooLong = errors.New("request is longer than the model server can hold")

// Engine is one model server.
type Engine struct {
	cfg      Config
	kv       *blockPool
	adapters slots

	inbox   []*Request // came while a step ran: the scheduler does not know them yet
	waiting queue
	running []*Request // in the order in which they entered the batch
	prefill *Request   // the one prompt that is computed in chunks, always the last of running
	fresh   []*Request // prompts whose last chunk is in the present step

	// Decoding requests are not touched at every step. Each sits in the slot of
	// the step at which something happens to it, at most BlockTokens steps ahead:
	// it needs a block before that step, or ends with it.
	grow, end [][]*Request
	growing   []*Request // scratch of schedule
	decoders  int
	context   int // sum of the tokens that the decoders hold

	steps    int // steps that have ended
	busy     bool
	ends     time.Duration
	stalled  bool // nothing in waiting can enter until a request comes or goes
	counters Report
	report   Report
	events   []Event
}

// New returns an idle engine.
func New(cfg Config) (*Engine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Engine{
		cfg:      cfg,
		kv:       newBlockPool(cfg.KVTokens / cfg.BlockTokens),
		adapters: slots{max: cfg.AdapterSlots, host: map[string]bool{}},
		grow:     make([][]*Request, cfg.BlockTokens),
		end:      make([][]*Request, cfg.BlockTokens),
	}, nil
}

// Submit hands a request over at the given time, which must not lie before the
// end of the last step. If the engine was idle, a step begins.
func (e *Engine) Submit(now time.Duration, r *Request) error {
	if r.Prompt < 1 || r.Output < 1 {
		return fmt.Errorf("prompt of %d and output of %d tokens: both must be at least 1", r.Prompt, r.Output)
	}
	if n := r.Prompt + r.Output; n > e.cfg.MaxModelLen {
		return fmt.Errorf("%d tokens, at most %d: %w", n, e.cfg.MaxModelLen, ErrTooLong)
	}
	*r = Request{Prompt: r.Prompt, Output: r.Output, Blocks: r.Blocks, Adapter: r.Adapter, Salt: r.Salt,
		Data: r.Data, space: nameSpace(r.Adapter, r.Salt), blocks: r.blocks[:0], phase: queued}
	e.inbox = append(e.inbox, r)
	if !e.busy {
		e.begin(now)
	}
	return nil
}

// Abort takes a request back. One that runs holds its place until the step ends.
// A request that is not here is ignored.
func (e *Engine) Abort(r *Request) {
	switch r.phase {
	case queued:
		if i := slices.Index(e.inbox, r); i >= 0 {
			e.inbox = slices.Delete(e.inbox, i, i+1)
		} else {
			e.waiting.remove(r)
		}
		e.forget(r)
	case prefilling, decoding:
		r.aborted = true
	}
}

// Next is when the present step ends; false when the engine is idle.
func (e *Engine) Next() (time.Duration, bool) { return e.ends, e.busy }

// ResetCache forgets what is cached and not in use.
func (e *Engine) ResetCache() {
	e.kv.forget()
	e.stalled = false
}

// InFlight is how many requests are here: the instant truth, which a Report
// learns only when a step ends.
func (e *Engine) InFlight() int {
	n := len(e.inbox) + e.waiting.len()
	for _, r := range e.running {
		if !r.aborted {
			n++
		}
	}
	return n
}

// Report is the state as of the end of the last step.
func (e *Engine) Report() Report { return e.report }

// Generated is how many tokens of r exist by the end of the last step.
func (e *Engine) Generated(r *Request) int {
	if r.phase == decoding {
		return r.kept + 1 + e.steps - r.from
	}
	return r.kept
}

// EndStep ends the step that is due at Next and begins another one at the same
// time if there is work. The events are valid until the next call.
func (e *Engine) EndStep() []Event {
	if !e.busy {
		return nil
	}
	n := e.steps
	e.steps++
	e.events = e.events[:0]
	e.context += e.decoders
	e.counters.GenerationTokens += e.decoders

	slot := n % e.cfg.BlockTokens
	for len(e.end[slot]) > 0 {
		r := e.end[slot][0]
		if !r.aborted {
			e.events = append(e.events, Event{Finished, r})
		}
		e.leave(r)
	}
	for _, r := range e.fresh {
		e.firstToken(r)
	}
	e.fresh = e.fresh[:0]
	for i := len(e.running) - 1; i >= 0; i-- {
		if e.running[i].aborted {
			e.leave(e.running[i])
		}
	}
	e.snapshot()
	e.begin(e.ends)
	return e.events
}

// firstToken ends a prefill. After a preemption it is not the first token of the
// request, and says nothing.
func (e *Engine) firstToken(r *Request) {
	if r.aborted {
		return
	}
	e.counters.GenerationTokens++
	if r.kept == 0 {
		e.counters.PromptTokens += r.Prompt
		e.events = append(e.events, Event{FirstToken, r})
		e.adapters.show(r.Adapter, 1)
	}
	if r.kept+1 == r.Output {
		r.kept++
		e.events = append(e.events, Event{Finished, r})
		e.leave(r)
		return
	}
	r.phase = decoding
	r.from = e.steps
	e.decoders++
	e.context += r.base
	e.place(r, e.steps+len(r.blocks)*e.cfg.BlockTokens-r.base)
}

// place puts a decoding request where it is needed next: at the given step for
// another block, or earlier at its end.
func (e *Engine) place(r *Request, growAt int) {
	r.due, r.dueAt = growWheel, growAt
	if last := r.from + r.Output - r.kept - 2; last < growAt {
		r.due, r.dueAt = endWheel, last
	}
	b := e.bucket(r)
	*b = append(*b, r)
}

func (e *Engine) bucket(r *Request) *[]*Request {
	if r.due == endWheel {
		return &e.end[r.dueAt%e.cfg.BlockTokens]
	}
	return &e.grow[r.dueAt%e.cfg.BlockTokens]
}

func (e *Engine) unplace(r *Request) {
	if r.due == noWheel {
		return
	}
	b := e.bucket(r)
	if i := slices.Index(*b, r); i >= 0 {
		*b = slices.Delete(*b, i, i+1)
	}
	r.due = noWheel
}

// leave takes a request out of the batch for good.
func (e *Engine) leave(r *Request) {
	e.unbatch(r)
	e.forget(r)
}

// unbatch takes a request out of the batch and frees what it holds.
func (e *Engine) unbatch(r *Request) {
	held := r.done
	if r.phase == decoding {
		r.kept = e.Generated(r)
		held = r.base + e.steps - r.from
		e.decoders--
		e.context -= held
		e.unplace(r)
	}
	if r.kept > 0 {
		e.adapters.show(r.Adapter, -1)
	}
	e.adapters.release(r.Adapter)
	e.kv.cache(r, held/e.cfg.BlockTokens)
	e.kv.free(r)
	if e.prefill == r {
		e.prefill = nil
	}
	e.running = slices.Delete(e.running, slices.Index(e.running, r), slices.Index(e.running, r)+1)
	e.stalled = false
}

func (e *Engine) forget(r *Request) {
	if r.deferred {
		e.waiting.deferred--
	}
	r.deferred = false
	r.phase = absent
	e.stalled = false
}

func (e *Engine) snapshot() {
	e.counters.Running = len(e.running)
	e.counters.Waiting = e.waiting.len()
	e.counters.Deferred = e.waiting.deferred
	e.counters.KVUsage = e.kv.usage()
	e.counters.Adapters = e.adapters.shown()
	e.report = e.counters
}
