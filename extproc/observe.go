package extproc

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/warmpath/warmpath/extproc/openai"
	"github.com/warmpath/warmpath/podstate/scrape"
)

// Observe says how far the responses of a pool are looked into. Only they tell
// when the first token came, and what a request cost. What the gateway sends
// anyway is always read.
type Observe struct {
	// FirstToken is how the first token of a stream is seen.
	//
	//   auto    tap, or sample where the gateway has no tap filter; the default
	//   tap     the tap filter of warmpath's bootstrap shows how each stream begins
	//   sample  Envoy is asked (mode_override) to send a share of the streams
	//   off
	FirstToken string

	// Usage is how the usage that a response tells is seen.
	//
	//   auto      whole answers, by mode_override, and a share of the streams, by
	//             the way of FirstToken; the default
	//   trailers  in place of the share, trailers that Envoy 1.40 makes of it
	//   off
	Usage string

	// CPUBudget is how many cores whole answers and shares of streams may take;
	// 0 is 0.05.
	CPUBudget float64
}

const (
	auto     = "auto"
	bySample = "sample"
	off      = "off"
)

// maxWhole is the longest answer that Envoy is asked to send in one piece. All
// of its buffers hold that much; one that is too small costs the client the
// answer.
const maxWhole = 64 << 10

// observer looks into the responses of one pool.
type observer struct {
	Observe
	truth  truth
	budget *budget
	tapped sight // of the streams that a tap could have shown
	obeyed sight // of the responses whose body Envoy was asked for
}

func newObserver(o Observe, epp bool) *observer {
	o.FirstToken = cmp.Or(o.FirstToken, auto)
	o.Usage = cmp.Or(o.Usage, auto)
	if epp && o.FirstToken == auto {
		o.FirstToken = bySample // the gateway is not of our making
	}
	return &observer{Observe: o, budget: newBudget(cmp.Or(o.CPUBudget, defaultBudget))}
}

// taps reports whether streams are to be seen by a tap filter.
func (o *observer) taps() bool {
	switch o.FirstToken {
	case off, bySample:
		return false
	}
	return true
}

// samples reports whether a share of the streams is to be sent by Envoy.
func (o *observer) samples() bool {
	switch {
	case o.FirstToken == bySample:
		return true
	case !o.taps():
		return o.Usage == auto
	default:
		return o.tapped.none() && (o.FirstToken == auto || o.Usage == auto)
	}
}

// overrides reports whether Envoy can be asked for bodies. One that may not be
// asked (allow_mode_override) says nothing, so it is tried again now and then.
func (o *observer) overrides() bool {
	return !o.obeyed.none() || rand.IntN(64) == 0
}

// sight finds out whether the gateway does something at all.
type sight struct {
	mu    sync.Mutex
	n     int     // responses for which it should have
	share float64 // and has
}

func (s *sight) note(seen bool) {
	x := 0.0
	if seen {
		x = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.share += (x - s.share) * max(newest, 1/float64(s.n))
}

// none is true when some responses have gone by and nothing was seen. One may be
// seen of many, or a client may go away before anything can be.
func (s *sight) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n >= 16 && s.share < 0.1
}

// rolesAreTokens tells the engines that send the event with the role together
// with the first token.
func rolesAreTokens(engine string) bool {
	switch engine {
	case "vllm", "sglang", "llamacpp":
		return true
	}
	return false
}

// aim prepares to see the response of a request that has been decided, and puts
// what a tap filter needs into the destination.
func (st *stream) aim(d *destination) {
	o := st.observer()
	if !st.asked.stream || st.config.response != modeNone || !o.taps() {
		return
	}
	now := time.Now()
	if o.Usage == auto {
		st.advance = o.budget.takeStream(now)
	}
	if st.advance == 0 && st.headersTell() {
		return
	}
	st.tap = st.srv.taps.add(st, now)
	d.tap, d.replica = st.tap, st.replica()
}

func (st *stream) observer() *observer { return st.srv.observers[st.pool] }

// headersTell reports whether the pod sends its headers with the first token.
func (st *stream) headersTell() bool {
	return scrape.HeadersOf(st.asked.engine) == scrape.HeadersFirstToken
}

// tapComes reports whether a tap will show the response.
func (st *stream) tapComes() bool { return st.tap != 0 && !st.passes && !st.observer().tapped.none() }

// pass returns the mode in which Envoy should send the body of a good response.
func (st *stream) pass(h *headers) bodyMode {
	o := st.observer()
	if st.config.response != modeNone || st.config.request == modeDuplex {
		return st.config.response // it comes so or so, or Envoy does not obey
	}
	now := time.Now()
	switch {
	case !o.overrides():
	case h.eventStream && o.samples():
		if st.advance == 0 {
			st.advance = o.budget.takeStream(now)
		}
		if st.advance > 0 {
			return modeStreamed
		}
	case h.eventStream, o.Usage == off, !st.asked.body, !h.json || h.encoded, h.contentLength <= 0 || h.contentLength > maxWhole:
	case o.budget.take(now, wholeCost+byteCost*float64(h.contentLength)):
		return modeBuffered
	}
	return modeNone
}

// watch reads a piece of the response's body, end says the last one, and reports
// whether more of it is wanted.
func (st *stream) watch(body []byte, end bool) (more bool) {
	now := time.Now()
	if st.answer == nil {
		st.answer = &openai.Response{RoleIsToken: rolesAreTokens(st.asked.engine)}
		st.answer.Reset()
	}
	st.answer.Write(body, end)
	if st.answer.FirstToken {
		st.sawToken(now)
	}
	if st.answer.Failed && !st.failed {
		st.srv.metrics.pool(st.pool).broken.Inc()
		st.fail(now)
	}
	if end {
		st.conclude(now, &st.answer.Usage)
	}
	return !end && (!st.firstToken || st.advance > 0)
}

// sawToken takes note that the response has its first token.
func (st *stream) sawToken(now time.Time) {
	if st.firstToken {
		return
	}
	st.firstToken = true
	st.reserve.FirstToken(now)
	if st.asked.stream {
		st.srv.metrics.pool(st.pool).firstToken.Observe(now.Sub(st.asked.at).Seconds())
	}
	st.succeed(now)
}

func (st *stream) succeed(now time.Time) {
	if !st.failed && !st.succeeded {
		st.succeeded = true
		st.reserve.Succeeded(now)
	}
}

func (st *stream) fail(now time.Time) {
	st.failed = true
	st.reserve.Failed(now)
}

// conclude takes note that the response came to its proper end.
func (st *stream) conclude(now time.Time, u *openai.Usage) {
	if st.concluded {
		return
	}
	st.concluded = true
	st.succeed(now)
	if u.Prompt > 0 || u.Output > 0 {
		st.observer().truth.learn(&st.asked, u, st.reserve.Pod())
	}
	st.settle()
}

// settle gives back what is left of the budget that was taken for the response.
func (st *stream) settle() {
	if st.advance > 0 {
		st.observer().budget.settle(st.advance, st.spent)
		st.advance = 0
	}
}
