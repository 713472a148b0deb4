// Package openai reads what a gateway has to know from the bodies of LLM
// requests and responses, in the dialects of OpenAI, Anthropic and the engines
// themselves, without decoding them.
//
// A request is scanned in one pass over its raw bytes (Request.Scan); a response
// is read chunk by chunk as it passes (Response.Write). Neither copies the body,
// allocates in the steady state, or keeps a reference to it.
//
// openai imports the standard library only.
package openai

import (
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Span is a part of a body: body[Start:End].
type Span struct{ Start, End int }

// Request is what a request's body says at its top level. It is reused: Scan
// resets it, and its slices are valid until the next Scan.
//
// As with encoding/json and Python, the last of several equal keys counts. A
// field of the wrong type counts as absent: the model server decides about it.
type Request struct {
	HasModel     bool
	Model        string // may be empty although HasModel
	ModelSpan    Span   // with its quotes
	Stream       bool
	IncludeUsage bool   // stream_options.include_usage
	MaxTokens    int    // of max_completion_tokens, max_output_tokens, max_tokens the first that is above 0; 0 = absent
	N            int    // answers wanted per prompt; 0 = absent
	CacheSalt    string // names the part of the prefix cache that may be shared

	// Prompt holds the values that are rendered into the prompt, in the order in
	// which chat templates render them, whatever their order in the body: tools,
	// then documents and system text, then messages, input or prompt. Requests
	// that share the head of their prompt share the head of these bytes.
	Prompt []Span

	// Blobs holds the encoded images and files inside Prompt, with their quotes,
	// in the order of the body. They are long in bytes and short in tokens.
	Blobs []Span

	Prompts   int // prompts in the list of a batch; 1 for a single prompt, 0 without one
	Messages  int // messages in the prompt
	TextBytes int // text in the prompt: bytes of UTF-8 without escapes, JSON around it, and Blobs
	TokenIDs  int // tokens that the prompt gives as numbers
	Media     int // images, sounds, videos and files in the prompt, encoded or by URL

	s *scanner
	// The names of the request before: most requests share them, and then need
	// no string of their own.
	lastModel, lastSalt string
}

// Reset forgets the request and keeps the memory.
func (r *Request) Reset() {
	*r = Request{
		Prompt: r.Prompt[:0], Blobs: r.Blobs[:0],
		s: r.s, lastModel: r.lastModel, lastSalt: r.lastSalt,
	}
}

// Scan reads body, which it neither changes nor keeps. kind says which of the
// fields are the prompt.
//
// It reads the whole body and accepts what encoding/json.Valid accepts. The
// error is a *SyntaxError, or ErrNotObject; either way r holds what was found up
// to there, so that the caller may let the model server be the judge.
func (r *Request) Scan(kind Kind, body []byte) error {
	r.Reset()
	if r.s == nil {
		r.s = new(scanner)
	}
	s := r.s
	s.body, s.err, s.slack, s.blobs, s.opaque = body, nil, 0, r.Blobs, false

	i := s.space(0)
	object := i < len(body) && body[i] == '{'
	if object {
		i = r.object(kind, i+1)
	} else {
		i = s.skip(i, 0)
		s.blobs = s.blobs[:0]
	}
	if i >= 0 {
		if i = s.space(i); i < len(body) {
			s.fail(i, "nothing may follow the first value")
		}
	}
	r.Blobs, s.body = s.blobs, nil
	switch {
	case s.err != nil:
		return s.err
	case !object:
		return ErrNotObject
	}
	return nil
}

// found is what one prompt field holds, and where.
type found struct {
	span    Span
	prompts int
	tally
}

// object reads the fields of the body.
func (r *Request) object(kind Kind, i int) int {
	s := r.s
	var prompts [len(anyPrompt)]found // of promptFields with the same index
	var present uint32                // bits of those that hold something
	var limits [3]int                 // of output, by rank
	stale := false                    // some blobs are of a value that does not count

	fields := promptFields[min(kind, Tokenize)]
	for first := true; ; first = false {
		key, at, more := s.next(i, first)
		i = at
		if !more {
			break
		}
		if f := indexOf(fields, key); f >= 0 {
			stale = stale || present&(1<<f) != 0
			present &^= 1 << f
			s.tally = tally{}
			n := 0
			if i = s.prompt(fields[f].shape, at, &n); i < 0 {
				stale = true
				break
			}
			if s.body[at] != 'n' { // null counts as absent
				prompts[f] = found{Span{at, i}, n, s.tally}
				present |= 1 << f
			}
			continue
		}
		slack := s.slack
		if i = s.ignore(at, 1); i < 0 {
			break
		}
		r.scalar(key, Span{at, i}, s.slack != slack, &limits)
	}

	for _, n := range limits {
		if r.MaxTokens == 0 {
			r.MaxTokens = n
		}
	}
	var sum tally
	for m := present; m != 0; m &= m - 1 {
		p := &prompts[bits.TrailingZeros32(m)]
		r.Prompt = append(r.Prompt, p.span)
		r.Prompts = max(r.Prompts, p.prompts)
		sum.add(p.tally)
	}
	if stale {
		s.blobs = slices.DeleteFunc(s.blobs, func(b Span) bool {
			return !slices.ContainsFunc(r.Prompt, func(p Span) bool { return p.Start <= b.Start && b.End <= p.End })
		})
	}
	r.TextBytes, r.TokenIDs, r.Media, r.Messages = sum.text, sum.ids, sum.media, sum.messages
	return i
}

// scalar takes over a field that is no part of the prompt.
func (r *Request) scalar(key []byte, span Span, escaped bool, limits *[3]int) {
	raw := r.s.body[span.Start:span.End]
	switch string(key) {
	case "model":
		r.Model, r.HasModel = text(raw, escaped, &r.lastModel)
		r.ModelSpan = span
	case "cache_salt":
		r.CacheSalt, _ = text(raw, escaped, &r.lastSalt)
	case "stream":
		r.Stream = raw[0] == 't'
	case "stream_options":
		r.IncludeUsage = raw[0] == '{' && r.s.flag(span.Start, "include_usage")
	case "max_completion_tokens":
		limits[0], _ = whole(raw)
	case "max_output_tokens":
		limits[1], _ = whole(raw)
	case "max_tokens":
		limits[2], _ = whole(raw)
	case "n":
		r.N, _ = whole(raw)
	}
}

// prompt reads the value of a prompt field and says how many prompts it holds.
func (s *scanner) prompt(as shape, i int, prompts *int) int {
	switch as {
	case asJSON:
		return s.json(i, 1)
	case asPreface:
		return s.item(i, 1)
	}
	if i < len(s.body) && s.body[i] == '[' {
		i = s.list(i, 1, prompts)
	} else {
		i = s.item(i, 1)
	}
	*prompts = max(1, *prompts)
	return i
}

// flag reads whether the object at i, which has been checked, has a member that
// is true.
func (s *scanner) flag(i int, name string) (set bool) {
	i++
	for first := true; ; first = false {
		key, at, more := s.next(i, first)
		if !more {
			return set
		}
		i = s.ignore(at, 2)
		if string(key) == name {
			set = s.body[at] == 't'
		}
	}
}

// text gives the text of a value if it is a string. It returns last if that is
// equal, to save the allocation, and stores a new one there. The result is
// always valid UTF-8, as labels and protobuf want it.
func text(raw []byte, escaped bool, last *string) (string, bool) {
	if raw[0] != '"' {
		return "", false
	}
	inner := raw[1 : len(raw)-1]
	if escaped || !utf8.Valid(inner) {
		return unquote(raw), true
	}
	if string(inner) != *last {
		*last = string(inner)
	}
	return *last, true
}

// whole reads a whole number that is not negative. Anything else is 0, which
// counts as absent where the caller does not ask.
func whole(digits []byte) (n int, ok bool) {
	for _, c := range digits {
		d := int(c - '0')
		if c < '0' || '9' < c || n > (math.MaxInt-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, len(digits) > 0
}
