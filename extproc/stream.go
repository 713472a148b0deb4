package extproc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/warmpath/warmpath/extproc/openai"
	"github.com/warmpath/warmpath/podstate"
)

// phase is how far the request's direction has come.
type phase uint8

const (
	deciding phase = iota // Envoy holds the request until we answer
	decided               // it has a pod
	refused               // it got an error from us
	gone                  // Envoy has answered the client itself
)

// stream is one HTTP request.
//
// Two goroutines serve it. run reads: it sits in RecvMsg, so that an abort is
// seen at once, and deals with what comes. Process waits for run's end, the
// deadline and the server's shutdown; a blocked RecvMsg can only be ended by
// returning from Process.
type stream struct {
	srv      *Server
	grpc     grpc.ServerStream
	deadline *time.Timer   // ends the wait for the decision
	done     chan struct{} // closed when run has ended

	// mu is held by whoever acts for the stream, which is nearly always run. It
	// guards all below.
	mu   sync.Mutex
	over bool  // nothing may be sent any more; Process returns err
	err  error // nil ends the stream with OK
	out  reply // the message that is being sent

	config  *protocol // nil before the first message
	phase   phase
	subset  []string // pods that the gateway allows; nil: all
	pool    int      // -1: not known
	reserve *podstate.Reservation

	// The request's direction.
	api           openai.Kind
	contentLength int64
	upgrade       bool
	seen          bool            // some message of this direction has come
	sawHeaders    bool            // so have its headers
	headersHeld   bool            // they are not answered
	bodyless      bool            // they were all
	held          mem.BufferSlice // body that came before the decision
	heldBytes     int
	owed          int  // STREAMED: pieces of the body that are not answered
	requestDone   bool // its end has come; whatever looks like a second one is none
	trailers      bool

	// The response's direction.
	responseBegun, responseDone bool
	good                        bool // a pod has answered as it should
	events                      bool // with a stream of events
	passes                      bool // its body comes to us
	firstToken                  bool // has been seen
	succeeded, failed           bool // the pod is told to be well, or not
	concluded                   bool // the end has been seen

	// What the response is to teach; see observe.go.
	asked      asked
	answer     *openai.Response // what the body has told so far; nil: none of it was seen
	advance    float64          // seconds of the budget, to read the body to its end; 0: do not
	spent      float64          // of it
	tap        uint64           // number under which a tap finds the stream; 0: none
	shownBytes int              // by it

	// Of a tap; see tap.go.
	isTap bool
	shown *stream // the one whose response it shows
}

// Process implements the ext_proc service.
func (s *Server) Process(g pb.ExternalProcessor_ProcessServer) error {
	st := &stream{
		srv: s, grpc: g, pool: -1,
		deadline: time.NewTimer(s.cfg.DecisionTimeout),
		done:     make(chan struct{}),
	}
	s.metrics.streams.Inc()
	defer st.end()
	go st.run()

	drain := s.drain
	for {
		var act func()
		select {
		case <-st.done:
			return st.err
		case <-st.deadline.C:
			act = st.expire
		case <-drain:
			act, drain = st.leave, nil
		case <-s.cut:
			act = st.cut
		}
		if st.act(act) {
			return st.err
		}
	}
}

// run reads the stream to its end.
func (st *stream) run() {
	defer close(st.done)
	var m message
	receive := func() { st.receive(&m) }
	for {
		// Envoy ends a stream by a reset or by closing its side, as it happens;
		// both only say that the HTTP request has ended.
		if err := st.grpc.RecvMsg(&m); err != nil || st.act(receive) {
			return
		}
	}
}

// act runs f for the stream and reports whether the stream is over. A panic
// costs this stream only.
func (st *stream) act(f func()) (over bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over {
		return true
	}
	defer func() {
		if p := recover(); p != nil {
			st.crash(p)
			over = true
		}
	}()
	f()
	return st.over
}

func (st *stream) crash(cause any) {
	st.srv.log.Error("panic in a stream; its request gets an error", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
	st.over = st.closable()
	if !st.over {
		st.refuse(&refusal{reason: crashed, message: "internal error of the gateway; the request was not processed"})
	}
	st.over = true
}

// end gives everything back. It runs once, when nobody waits for the stream.
func (st *stream) end() {
	st.deadline.Stop()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.over = true
	if st.phase == deciding {
		st.abandon()
	}
	st.dropBody()
	st.release()
	st.endWatch()
	if st.shown != nil {
		st.shown.endTap()
	}
	if !st.isTap {
		st.srv.metrics.streams.Dec()
	}
}

// closable reports whether Envoy comes to no harm if the stream ends with OK: it
// then goes on without us. Before a decision that would lose the pick, and while
// a duplex body is with us it would lose the body.
func (st *stream) closable() bool {
	switch {
	case st.phase == deciding:
		return false
	case st.phase == decided && st.config.request == modeDuplex && !st.requestDone:
		return false
	case st.config.response == modeDuplex && st.responseBegun && !st.responseDone:
		return false
	}
	return true
}

// expire is called when the deadline has passed.
func (st *stream) expire() {
	switch {
	case st.phase != deciding || !st.owing():
	case st.config.request == modeStreamed:
		st.decide(requestHeaders)
	default:
		st.refuse(&refusal{reason: timedOut, message: fmt.Sprintf("no pod was found for the request within %v; its body may not have come to an end", st.srv.cfg.DecisionTimeout)})
	}
}

// leave ends a stream that is not needed any more when the server shuts down.
func (st *stream) leave() { st.over = st.closable() }

// cut ends a stream in any case.
func (st *stream) cut() {
	switch {
	case st.phase == deciding && st.owing():
		st.refuse(&refusal{reason: draining, message: "this gateway is shutting down; try again"})
	case st.phase == decided && !st.closable():
		// A response with a hole must not look complete.
		st.err = status.Error(codes.Unavailable, "shutting down")
	}
	st.over = true
}

// owing reports whether Envoy waits for the decision. If it does not, it is
// collecting the body, under its own timers.
func (st *stream) owing() bool {
	return st.headersHeld || st.config != nil && st.config.request == modeDuplex
}

// receive deals with one message.
func (st *stream) receive(m *message) {
	if st.config == nil {
		st.config = m.config
		if st.config == nil && m.kind != unset { // not said by Envoy before 1.34
			st.config = &st.srv.fallback
		}
	}
	if m.hasSub && st.subset == nil {
		st.subset = m.subset
	}
	if m.observe {
		st.onTap(m)
	} else {
		st.handle(m)
	}
	if st.srv.draining() {
		st.over = st.over || st.closable()
	}
}

// handle deals with one message that wants an answer.
func (st *stream) handle(m *message) {
	switch m.kind {
	case requestHeaders, requestBody, requestTrailers:
		st.seen = true
	}
	switch m.kind {
	case requestHeaders:
		st.onRequestHeaders(m)
	case requestBody:
		st.onRequestBody(m)
	case requestTrailers:
		st.onRequestTrailers()
	case responseHeaders:
		st.onResponseHeaders(m)
	case responseBody:
		st.onResponseBody(m)
	case responseTrailers:
		st.onResponseTrailers(m)
	}
}

// send sends one answer. A stream that cannot be written to has ended.
func (st *stream) send(r reply) {
	if st.over {
		if r.body != nil {
			r.body.Free()
		}
		return
	}
	st.out = r
	if err := st.grpc.SendMsg(&st.out); err != nil {
		st.over = true
	}
	st.out = reply{}
}

// refuse answers the client instead of sending the request to a pod.
func (st *stream) refuse(r *refusal) {
	st.outcome(r.reason, r.decision)
	st.send(refusalReply(r))
	st.phase, st.over = refused, true
	st.dropBody()
}

// abandon takes note that the decision is not wanted any more.
func (st *stream) abandon() {
	st.phase, st.headersHeld = gone, false
	st.dropBody()
	if st.seen {
		st.outcome(abandoned, 0)
	}
}

// outcome counts what became of the request. At debug level it says so, too, with
// the id of the decision if it came to one, but never what stands in the request.
func (st *stream) outcome(r reason, decision uint64) {
	st.srv.metrics.decided(st.pool, r)
	if !st.srv.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := []any{"outcome", string(r)}
	if st.pool >= 0 {
		attrs = append(attrs, "pool", st.srv.pools[st.pool].Name)
	}
	if st.reserve != nil {
		attrs = append(attrs, "pod", st.reserve.Pod().Addr)
	}
	if decision != 0 {
		attrs = append(attrs, "decision", decisionID(decision))
	}
	st.srv.log.Debug("request", attrs...)
}

func (st *stream) dropBody() {
	st.held.Free()
	st.held, st.heldBytes = nil, 0
}

func (st *stream) release() {
	if st.reserve != nil {
		st.reserve.Release(time.Now())
	}
}
