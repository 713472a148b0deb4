package extproc

import (
	"fmt"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/warmpath/warmpath/extproc/openai"
)

const (
	// echoPiece is the largest piece in which a body goes back to Envoy. Envoy
	// takes any; smaller ones let it send while we write.
	echoPiece = 1 << 20
	// In STREAMED mode without waiting, Envoy sends at most two buffers full of
	// body before it wants answers, and neither trailers nor sometimes the end. So
	// a decision is made on the first streamedEnough bytes, or when nothing has
	// come for streamedPause.
	streamedEnough = 1 << 20
	streamedPause  = 250 * time.Millisecond
)

func (st *stream) onRequestHeaders(m *message) {
	if st.sawHeaders || st.phase != deciding {
		if st.config.request != modeDuplex {
			st.send(plainReply(requestHeaders))
		}
		return
	}
	st.sawHeaders, st.headersHeld = true, true
	st.requestDone, st.bodyless = m.endOfStream, m.endOfStream
	st.upgrade = m.headers.upgrade
	st.contentLength = m.headers.contentLength
	st.api = openai.ParsePath(m.headers.path)
	if m.headers.hasSubset && st.subset == nil && st.srv.cfg.TrustSubsetHeader {
		st.subset = splitSubset(m.headers.subset)
	}

	mode := st.config.request
	switch {
	case st.requestDone || st.upgrade:
		st.decide(requestHeaders)
	case mode == modeBuffered || mode == modePartial:
		st.headersHeld = false
		st.send(plainReply(requestHeaders))
	case mode == modeDuplex:
		if st.contentLength > int64(st.srv.cfg.MaxBody) {
			st.refuseBody()
		}
	case mode == modeStreamed && st.config.unwaited:
		st.deadline.Reset(streamedPause)
	default: // the body does not come before the answer, or not at all
		st.decide(requestHeaders)
	}
}

func (st *stream) onRequestBody(m *message) {
	mode := st.config.request
	ended := st.requestDone // before this message
	if m.endOfStream {
		st.requestDone = true
	}
	switch {
	case mode == modeDuplex && (ended || st.phase != deciding && st.phase != decided):
		m.freeBody() // an end that has been seen is not answered again
	case mode == modeDuplex && st.phase == decided:
		st.send(echoReply(requestBody, m.takeBody(), m.endOfStream))
	case st.phase != deciding:
		m.freeBody()
		st.send(plainReply(requestBody))
	case !st.hold(m):
		st.refuseBody()
	case mode == modeDuplex:
		if st.requestDone {
			st.decide(requestHeaders)
		}
	case st.headersHeld: // STREAMED, sent without waiting for the headers' answer
		st.owed++
		if st.requestDone || st.heldBytes >= streamedEnough || int64(st.heldBytes) == st.contentLength {
			st.decide(requestHeaders)
		} else {
			st.deadline.Reset(streamedPause)
		}
	default: // BUFFERED: this is all, also if trailers are still to come
		st.decide(requestBody)
	}
}

// onRequestTrailers takes trailers as what they are, the end of the body.
func (st *stream) onRequestTrailers() {
	st.requestDone, st.trailers = true, true
	if st.phase == deciding {
		if st.config.request == modeDuplex || st.headersHeld {
			st.decide(requestHeaders)
		} else { // no body message has come, and the headers are answered
			st.decide(requestTrailers)
			return
		}
	}
	st.send(plainReply(requestTrailers))
}

// hold keeps a piece of the body and reports whether there is room for it.
func (st *stream) hold(m *message) bool {
	body := m.takeBody()
	if body == nil {
		return true
	}
	st.held = append(st.held, body)
	st.heldBytes += body.Len()
	return st.heldBytes <= st.srv.cfg.MaxBody
}

// takeBody hands the body over to the caller.
func (m *message) takeBody() mem.Buffer {
	b := m.body
	m.body = nil
	return b
}

func (st *stream) refuseBody() {
	st.refuse(&refusal{reason: tooLarge, message: fmt.Sprintf("the body is larger than %d bytes, the limit of this gateway", st.srv.cfg.MaxBody)})
}

// decide decides the request and answers what is owed. k is the message that
// the decision goes with, outside of duplex mode.
func (st *stream) decide(k kind) {
	begun := time.Now()
	body := st.held.MaterializeToBuffer(st.srv.buffers)
	defer body.Free()
	st.dropBody()

	whole := st.requestDone || st.config.request == modeBuffered
	d, r := st.srv.decide(&question{api: st.api, body: body.ReadOnlyData(), whole: whole, subset: st.subset})
	st.pool = d.pool
	if r != nil {
		st.refuse(r)
		return
	}
	st.reserve, st.phase, st.asked = d.reservation, decided, d.asked
	st.aim(&d.destination)
	d.trailers = st.trailers
	d.upgrade = st.upgrade && st.config.request != modeDuplex && st.config.request != modeNone

	switch {
	case st.config.request == modeDuplex:
		st.answerDuplex(&d.destination, body)
	case k == requestHeaders:
		st.send(st.srv.decisionReply(k, &d.destination, st.config.response))
		for ; st.owed > 0; st.owed-- {
			st.send(plainReply(requestBody))
		}
	default:
		st.send(st.srv.decisionReply(k, &d.destination, st.config.response))
	}
	st.headersHeld = false
	st.outcome(picked, d.id)
	st.srv.metrics.decision.Observe(time.Since(begun).Seconds())
}

// answerDuplex sends the decision and the body that was held. The end of the
// body is told with its last piece, unless trailers tell it.
func (st *stream) answerDuplex(d *destination, body mem.Buffer) {
	if st.headersHeld { // else Envoy sends none, and has passed them on
		st.send(st.srv.decisionReply(requestHeaders, d, st.config.response))
	}
	end := st.requestDone && !st.trailers && !st.bodyless
	for at := 0; at < body.Len(); at += echoPiece {
		to := min(at+echoPiece, body.Len())
		st.send(echoReply(requestBody, body.Slice(at, to), end && to == body.Len()))
	}
	if body.Len() == 0 && end {
		st.send(echoReply(requestBody, nil, true))
	}
}
