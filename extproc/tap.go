package extproc

import (
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

// The tap filter of warmpath's bootstrap shows responses while they pass: it
// sends each piece of a body on a stream of its own, in observability mode, in
// which Envoy does not wait for answers. It only does so for responses whose
// request was given a number, in metadata, and it ends when we end its stream.

// taps are the streams that wait for a tap. Each is there until one comes, or
// will not come any more.
type taps struct {
	mu      sync.Mutex
	waiting map[uint64]*stream
	ended   []ended // of which some still wait; the oldest first
}

// ended is a request that has ended before a tap came for it, as happens when
// all of its response comes at once.
type ended struct {
	number uint64
	at     time.Time
}

const (
	// tapDelay is how long after the end of a request a tap may come.
	tapDelay = time.Second
	maxEnded = 4096
)

// maxShown is how many bytes a response may be shown in search of its first
// token. Without a token in them, it is nothing that we can read.
const maxShown = 32 << 10

// add gives the stream a number under which a tap finds it. It is random: with
// several replicas, a tap may come to one that did not give it.
func (t *taps) add(st *stream, now time.Time) (number uint64) {
	t.expire(now, tapDelay)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = map[uint64]*stream{}
	}
	for number == 0 || t.waiting[number] != nil {
		number = rand.Uint64()
	}
	t.waiting[number] = st
	return number
}

// take returns the stream with the number, once, or nil.
func (t *taps) take(number uint64) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.waiting[number]
	delete(t.waiting, number)
	return st
}

// linger says that the request with the number has ended.
func (t *taps) linger(number uint64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[number] != nil {
		t.ended = append(t.ended, ended{number, now})
	}
}

// expire lets go of the streams that ended too long ago. No timer runs for it:
// the next request will do.
func (t *taps) expire(now time.Time, delay time.Duration) {
	var late []*stream
	t.mu.Lock()
	for len(t.ended) > 0 && (now.Sub(t.ended[0].at) > delay || len(t.ended) > maxEnded) {
		number := t.ended[0].number
		t.ended = t.ended[1:]
		if st := t.waiting[number]; st != nil {
			delete(t.waiting, number)
			late = append(late, st)
		}
	}
	t.mu.Unlock()
	for _, st := range late {
		st.giveUpTap()
	}
}

// replica is the address at which Envoy reaches this process, as far as nothing
// between them rewrites it.
func (st *stream) replica() string {
	if p, ok := peer.FromContext(st.grpc.Context()); ok && p.LocalAddr != nil {
		return p.LocalAddr.String()
	}
	return ""
}

// onTap takes a message that Envoy does not want answered. It may be of any
// filter in observability mode; a tap's has the number of a stream.
func (st *stream) onTap(m *message) {
	defer m.freeBody()
	if m.kind != responseBody || m.tap == 0 {
		return
	}
	if st.shown == nil {
		st.becomeTap(m.tap)
	}
	var body []byte
	if m.body != nil {
		body = m.body.ReadOnlyData()
	}
	if st.shown == nil || !st.shown.show(body, m.endOfStream) {
		st.over = true // OK: Envoy stops, and the response goes on
	}
}

// endWatch is called when the request has ended. A tap may still have the last
// piece of the response to show, or all of it.
func (st *stream) endWatch() {
	if st.passes && st.config.response == modeNone {
		st.observer().obeyed.note(st.answer != nil)
	}
	switch {
	case st.tap == 0:
		st.settle()
	case st.events && !st.passes:
		st.srv.taps.linger(st.tap, time.Now())
	case st.srv.taps.take(st.tap) != nil:
		st.settle()
	}
}

// giveUpTap is called when the request ended so long ago that no tap will come.
// Nobody else has a hand on st any more.
func (st *stream) giveUpTap() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.observer().tapped.note(false)
	st.settle()
}

// endTap is called when the tap that showed the response has ended.
func (st *stream) endTap() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.answer != nil && st.responseDone { // by trailers, which a tap does not show
		st.watch(nil, true)
	}
	st.settle()
}

// becomeTap makes st, of which nothing else is known, a tap.
func (st *stream) becomeTap(number uint64) {
	st.phase = gone // there is nothing to decide
	if st.shown = st.srv.taps.take(number); st.shown != nil {
		st.shown.observer().tapped.note(true)
	}
	if !st.isTap {
		st.isTap = true
		st.srv.metrics.streams.Dec() // it is no request
	}
}

// show is watch for a tap. The request may have ended: the last piece of its
// response and its end come on different streams.
//
// The caller holds the tap's lock; the request's is always taken after it.
func (st *stream) show(body []byte, end bool) (more bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.good || st.passes {
		return false
	}
	if st.advance > 0 {
		st.spent += eventCost + byteCost*float64(len(body))
	}
	st.shownBytes += len(body)
	return st.watch(body, end) && (st.advance > 0 || st.shownBytes < maxShown)
}
