package extproc

import (
	"time"

	"github.com/warmpath/warmpath/extproc/openai"
)

func (st *stream) onResponseHeaders(m *message) {
	if st.phase == deciding {
		// Envoy answers the client itself: a timeout, a limit, another filter.
		st.abandon()
	}
	st.responseBegun, st.responseDone = true, m.endOfStream
	st.srv.metrics.responded(st.pool, m.headers.status)
	answer := plainReply(responseHeaders)
	if st.reserve != nil {
		if mode := st.learn(m); mode != st.config.response {
			answer = overrideReply(st.config.request, mode)
		}
	}
	st.send(answer)
	if st.responseDone {
		st.release()
	}
}

// learn takes from the response's headers which pod answered, and how. It
// returns the mode in which the body is wanted.
func (st *stream) learn(m *message) bodyMode {
	now := time.Now()
	if m.attempts > 1 { // Envoy tries our pods in their order, then its own choice
		st.reserve.Failed(now)
		if second := st.reserve.Second(); m.attempts > 2 && second != nil && st.reserve.Served(second.Addr) {
			st.reserve.Failed(now)
		}
	}
	if m.served != "" {
		st.reserve.Served(m.served)
	}
	switch status := m.headers.status; {
	case status >= 500 && status != 501 && status != 505 && m.served != "":
		// Also Envoy's own answer when a pod cannot be reached, or breaks off.
		st.fail(now)
		return st.config.response
	case status >= 300:
		// The request is wrong, or there is too much load (429), or no pod had a
		// part in it. No engine has worked: neither health nor speed can be told.
		st.reserve.Refused()
		return st.config.response
	}

	st.good, st.events = true, m.headers.eventStream
	mode := st.pass(&m.headers)
	st.passes = mode != modeNone
	switch {
	case m.endOfStream:
		st.conclude(now, &openai.Usage{})
	case !st.events && !st.asked.stream || st.events && st.headersTell():
		st.sawToken(now)
	case !st.events:
		// Where events were wanted, this is late for a first token.
		st.succeed(now)
	case !st.passes && !st.tapComes():
		// The engine may not have begun. But there will be no better news.
		st.succeed(now)
	}
	return mode
}

func (st *stream) onResponseBody(m *message) {
	body := m.takeBody()
	ended := st.responseDone
	st.responseDone = ended || m.endOfStream
	if st.good && !ended {
		var text []byte
		if body != nil {
			text = body.ReadOnlyData()
		}
		if st.advance > 0 {
			st.spent += eventCost + byteCost*float64(len(text))
		}
		st.watch(text, m.endOfStream)
	}
	switch {
	case st.config.response != modeDuplex:
		if body != nil {
			body.Free()
		}
		st.send(plainReply(responseBody))
	case ended:
		if body != nil {
			body.Free()
		}
	default:
		st.send(echoReply(responseBody, body, m.endOfStream))
	}
	if st.responseDone {
		st.release()
	}
}

func (st *stream) onResponseTrailers(m *message) {
	ended := st.responseDone
	st.responseDone = true
	if st.good && !ended {
		switch {
		case m.hasUsage:
			st.conclude(time.Now(), &m.usage)
		case st.tapComes(): // with the end, too
		case st.answer != nil:
			st.watch(nil, true)
		default:
			st.conclude(time.Now(), &openai.Usage{})
		}
	}
	st.send(plainReply(responseTrailers))
	st.release()
}
