package openai

// Response reads one response while it passes, chunk by chunk, however it is
// cut. It knows event streams (SSE) and JSON apart by their first byte; anything
// else, a compressed body for one, is opaque: nothing is found in it. Call Reset
// before each response.
type Response struct {
	// RoleIsToken says that this engine sends the event with the role together
	// with the first token (vLLM, SGLang, llama.cpp), so that it is one. Others
	// may send it before the prompt is read. It is the caller's, Reset keeps it.
	RoleIsToken bool

	// FirstToken tells that an event with output has come. Comments, empty
	// events and those that only announce a response are none. A JSON body says
	// nothing about its first token.
	FirstToken bool
	Usage      Usage
	Failed     bool // an error under status 200

	format format
	counts counts
	walker walker // of the event, or of the JSON body
	event  event
	lines  lines
}

type format uint8

const (
	unseen format = iota
	eventStream
	jsonBody
	opaque
)

// Reset makes r ready for the next response.
func (r *Response) Reset() {
	*r = Response{RoleIsToken: r.RoleIsToken, Usage: Usage{Cached: -1}, counts: noCounts}
}

// Write reads the next chunk of the body, which it does not keep; eos says that
// it is the last. It may be empty.
func (r *Response) Write(chunk []byte, eos bool) {
	if r.format == unseen {
		chunk = r.sniff(chunk)
	}
	switch r.format {
	case eventStream:
		r.readLines(chunk)
		if eos { // some servers leave out the blank line after the last event
			r.endEvent()
		}
	case jsonBody:
		r.feed(chunk)
		r.Failed = r.Failed || r.event.failed
	}
	r.Usage = r.counts.sum()
}

// sniff finds the format by the first byte that says something, and returns the
// chunk from there.
func (r *Response) sniff(chunk []byte) []byte {
	for i, c := range chunk {
		switch c {
		case ' ', '\t', '\r', '\n', 0xef, 0xbb, 0xbf: // space, and the byte order mark
			continue
		case '{', '[':
			r.format = jsonBody
		case 'd', 'e', 'i', 'r', ':': // data, event or error, id, retry, a comment
			r.format = eventStream
		default:
			r.format = opaque
		}
		return chunk[i:]
	}
	return nil
}

// event is what is known of one event, or of the JSON body.
type event struct {
	failed   bool
	filled   bool // it is an object with a member
	progress bool // llama.cpp: about the prompt, before the first token
	choices  bool // OpenAI chat and completions
	role     bool // a choice with a role
	output   bool // a choice with text, calls, or an end
	quiet    bool // of a type that announces and carries nothing
}

// value judges one value of the event.
func (r *Response) value(at place, kind byte, token []byte) {
	e := &r.event
	atTop, text := r.walker.depth == 1, kind == '"'
	e.filled = e.filled || atTop && r.walker.inObject()
	switch is := places[at].is; is {
	case noSign:
	case eventType:
		if atTop && text {
			e.quiet = quietType(token)
			e.failed = e.failed || string(token) == "error" || string(token) == "response.failed"
		}
	case objectName:
		e.failed = e.failed || atTop && text && string(token) == "error"
	case failure:
		e.failed = e.failed || kind == '{' || text && len(token) > 0
	case promptProgress:
		e.progress = true
	case choices:
		e.choices = true
	case choiceRole:
		e.role = e.role || text
	case choiceText:
		e.output = e.output || text
	case choiceEnd:
		e.output = e.output || text
		e.failed = e.failed || string(token) == "error"
	case deltaOutput:
		e.output = e.output || text && len(token) > 0 || kind == '{'
	default:
		if kind == 0 {
			r.counts.add(is, token)
		}
	}
}
