package extproc

import "time"

func (st *stream) onResponseHeaders(m *message) {
	if st.phase == deciding {
		// Envoy answers the client itself: a timeout, a limit, another filter.
		st.abandon()
	}
	st.responseBegun, st.responseDone = true, m.endOfStream
	st.srv.metrics.responded(st.pool, m.headers.status)
	if st.reserve != nil {
		st.learn(m)
	}
	st.send(plainReply(responseHeaders))
	if st.responseDone {
		st.release()
	}
}

// learn takes from the response's headers which pod answered, and how.
func (st *stream) learn(m *message) {
	now := time.Now()
	if m.attempts > 1 { // Envoy tries our pods in their order, then its own choice
		st.reserve.Failed(now)
		if second := st.reserve.Second(); m.attempts > 2 && second != nil && st.reserve.Served(second.Addr) {
			st.reserve.Failed(now)
		}
	}
	if m.served == "" {
		return // no pod had a part in it
	}
	st.reserve.Served(m.served)
	switch status := m.headers.status; {
	case status >= 500 && status != 501 && status != 505:
		st.reserve.Failed(now)
	case status != 429: // which says nothing: it is busy, or the client asks too often
		st.reserve.Succeeded(now)
	}
	if !m.headers.eventStream && m.headers.status >= 200 {
		// The headers of a response in one piece come with its first byte.
		st.sawToken(now)
	}
}

func (st *stream) onResponseBody(m *message) {
	body := m.takeBody()
	if body != nil && st.reserve != nil && body.ReadOnlyData()[0] != ':' { // a comment keeps the connection alive, no more
		st.sawToken(time.Now())
	}
	ended := st.responseDone
	st.responseDone = ended || m.endOfStream
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

func (st *stream) onResponseTrailers() {
	st.responseDone = true
	st.send(plainReply(responseTrailers))
	st.release()
}

func (st *stream) sawToken(now time.Time) {
	if !st.firstToken {
		st.firstToken = true
		st.reserve.FirstToken(now)
	}
}
