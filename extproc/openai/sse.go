package openai

import "bytes"

// lines is the state of reading an event stream:
// https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
type lines struct {
	in      lineField
	afterCR bool // a line feed that follows belongs to the same end of line
	name    word // of the field, or of the event
}

type lineField uint8

const (
	inName lineField = iota // before the colon
	inData
	inEvent
	inOther // comments, ids, and what else is of no interest
)

// readLines takes an event stream apart. The data of an event goes to the walker
// as it comes, so that a line may be of any length.
func (r *Response) readLines(p []byte) {
	l := &r.lines
	for len(p) > 0 {
		if l.afterCR {
			l.afterCR = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		if l.in == inName {
			p = r.readName(p)
			continue
		}
		n := lineEnd(p)
		switch l.in {
		case inData: // with its end, because lines of one event are one text
			r.feed(p[:min(n+1, len(p))])
		case inEvent:
			value := p[:n]
			if l.name.kept == 0 {
				value = bytes.TrimLeft(value, " ")
			}
			l.name.keep(value)
			if n < len(p) {
				r.event.failed = string(l.name.take(nil)) == "error" || r.event.failed
			}
		}
		if n == len(p) {
			return
		}
		l.in, l.afterCR = inName, p[n] == '\r'
		p = p[n+1:]
	}
}

// readName reads one byte of a field's name, or the whole of the usual one.
func (r *Response) readName(p []byte) []byte {
	l := &r.lines
	if l.name.kept == 0 && bytes.HasPrefix(p, []byte("data:")) {
		l.in = inData
		return p[len("data:"):]
	}
	switch c := p[0]; c {
	case ':':
		l.in = inOther
		switch string(l.name.take(nil)) {
		case "data":
			l.in = inData
		case "event":
			l.in = inEvent
		case "error": // llama.cpp before 2025
			r.event.failed = true
		}
	case '\n', '\r':
		if len(l.name.take(nil)) == 0 {
			r.endEvent()
		}
		l.afterCR = c == '\r'
	default:
		l.name.keep(p[:1])
	}
	return p[1:]
}

// lineEnd gives the index of the first end of line, or the length.
func lineEnd(p []byte) int {
	if n := bytes.IndexByte(p, '\n'); n >= 0 {
		p = p[:n]
	}
	if n := bytes.IndexByte(p, '\r'); n >= 0 {
		return n
	}
	return len(p)
}

// endEvent judges the event that a blank line ends.
func (r *Response) endEvent() {
	e := &r.event
	switch {
	case e.failed:
		r.Failed = true
	case !e.filled || e.progress: // no data, [DONE], or not yet output
	case e.choices:
		r.FirstToken = r.FirstToken || e.output || e.role && r.RoleIsToken
	case !e.quiet: // deltas and ends of Anthropic and of responses, and the engines' own events
		r.FirstToken = true
	}
	r.event, r.walker = event{}, walker{}
}

// quietType tells the types of events that come before any output.
func quietType(name []byte) bool {
	switch string(name) {
	case "ping", "message_start", "content_block_start": // Anthropic
		return true
	}
	if !bytes.HasPrefix(name, []byte("response.")) {
		return false
	}
	switch string(name[bytes.LastIndexByte(name, '.')+1:]) {
	case "created", "queued", "in_progress", "added":
		return true
	}
	return false
}
