package openai

import "strings"

// walker follows JSON that comes in pieces. It remembers where it is and the
// few bytes of the name or number that it is in, never the text, so its memory
// does not depend on the response. It does not check: broken JSON makes it miss
// values, no more. Names with escapes are not recognized; no engine writes them.
type walker struct {
	state walkState
	keyed bool // the string that is read, or comes next, is a key

	depth   int
	objects uint64 // a bit per depth up to maxPath: that container is an object
	path    uint64 // a byte per depth up to maxPath, the innermost lowest: the place of that container
	key     place  // to which the last key leads

	token word
}

type walkState uint8

const (
	between walkState = iota
	inString
	inEscape
	inScalar
)

const (
	maxWord = 48 // bytes of a word that count; longer than every name that matters
	maxPath = 8  // containers of which the path is known
)

// feed reads the next piece and calls value for each value at the top or at the
// place of a sign: kind is '"', '{', '[', or 0 for numbers and words. token is
// what a string or a word holds, cut to maxWord, and only valid during the call.
func (r *Response) feed(p []byte) {
	w := &r.walker
	for i := 0; i < len(p); {
		switch w.state {
		case inString:
			end := plain(p, i)
			if end == len(p) {
				w.token.keep(p[i:])
				return
			}
			switch p[end] {
			case '"':
				r.string(w.token.take(p[i:end]))
			case '\\':
				w.token.keep(p[i : end+1])
				w.state = inEscape
			default:
				w.token.keep(p[i : end+1])
			}
			i = end + 1
		case inEscape:
			w.token.keep(p[i : i+1])
			w.state = inString
			i++
		case inScalar:
			end := i
			for end < len(p) && scalar[p[end]] {
				end++
			}
			if end == len(p) {
				w.token.keep(p[i:])
				return
			}
			w.state = between
			if at, token := w.here(), w.token.take(p[i:end]); w.counts(at) {
				r.value(at, 0, token)
			}
			i = end
		default:
			switch c := p[i]; c {
			case '"':
				w.state = inString
			case '{', '[':
				r.open(c)
			case '}', ']':
				w.close()
			case ',':
				w.keyed = w.inObject()
			case ':':
				w.keyed = false
			default:
				if scalar[c] {
					w.state = inScalar
					continue // with its first byte
				}
			}
			i++
		}
	}
}

// scalar marks the bytes of numbers and words.
var scalar = func() (is [256]bool) {
	for c := ' ' + 1; c < 256; c++ {
		is[c] = !strings.ContainsRune(`,:"{}[]`, c)
	}
	return is
}()

// word is a name, a string or a number that may come in pieces.
type word struct {
	kept  int // bytes of earlier pieces, also those without room
	bytes [maxWord]byte
}

func (w *word) keep(b []byte) {
	if w.kept < maxWord {
		copy(w.bytes[w.kept:], b)
	}
	w.kept += len(b)
}

// take ends a word with its last bytes and returns it whole, or cut to maxWord,
// valid until the next keep.
func (w *word) take(last []byte) []byte {
	if w.kept > 0 {
		w.keep(last)
		last = w.bytes[:min(w.kept, maxWord)]
		w.kept = 0
	}
	return last[:min(len(last), maxWord)]
}

func (r *Response) string(token []byte) {
	w := &r.walker
	w.state = between
	if w.keyed {
		w.key = elsewhere
		if w.depth <= maxPath {
			w.key = places.in(place(w.path), token)
		}
	} else if at := w.here(); w.counts(at) {
		r.value(at, '"', token)
	}
}

func (r *Response) open(c byte) {
	w := &r.walker
	at := w.here()
	if w.counts(at) {
		r.value(at, c, nil)
	}
	w.depth++
	w.keyed = c == '{'
	if w.depth <= maxPath {
		w.path = w.path<<8 | uint64(at)
		w.objects &^= 1 << w.depth
		if w.keyed {
			w.objects |= 1 << w.depth
		}
	}
}

func (w *walker) close() {
	w.keyed = false
	switch {
	case w.depth == 0:
		return
	case w.depth <= maxPath:
		w.path >>= 8
	}
	w.depth--
}

// inObject reports whether the innermost container is known to be an object.
func (w *walker) inObject() bool { return w.depth <= maxPath && w.objects>>w.depth&1 == 1 }

// counts reports whether a value there may tell something.
func (w *walker) counts(at place) bool { return at != elsewhere || w.depth == 1 }

// here is the place of the value that begins or ends.
func (w *walker) here() place {
	switch {
	case w.depth == 0:
		return top
	case w.inObject():
		return w.key
	case w.depth > maxPath:
		return elsewhere
	}
	return place(w.path)
}
