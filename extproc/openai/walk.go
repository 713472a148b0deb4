package openai

import "strings"

// walker follows JSON that comes in pieces. It remembers where it is and the
// few bytes of the name or number that it is in, never the text, so its memory
// does not depend on the response. It does not check: broken JSON makes it miss
// values, no more. Names with escapes are not recognized; no engine writes them.
type walker struct {
	state walkState
	isKey bool // the string that is read is a key
	keyed bool // the next string is a key

	depth   int
	objects uint64 // a bit per depth up to maxPath: that container is an object
	path    path   // of the innermost container, as far as maxPath
	key     path   // the last key read

	kept  int // bytes of the token read in earlier pieces, also those without room in token
	token [maxToken]byte
}

type walkState uint8

const (
	between walkState = iota
	inString
	inEscape
	inScalar
)

const (
	maxToken = 48 // bytes of a token that count; longer than every name that matters
	maxPath  = 8  // containers of which the path is known
)

// path holds the names of the keys that lead to a value, one byte each, the
// outermost first. The value of a wrapper at the top has the path of the top
// itself, so that usage is found in response.usage too.
type path uint64

func (p path) in(child path) path { return p<<8 | child }

// feed reads the next piece and calls value for each value whose path is known:
// kind is '"', '{', '[', or 0 for numbers and words. token is what a string or
// a word holds, cut to maxToken, and only valid during the call.
func (w *walker) feed(p []byte, value func(at path, kind byte, token []byte)) {
	for i := 0; i < len(p); {
		switch w.state {
		case inString:
			end := plain(p, i)
			if end == len(p) {
				w.keep(p[i:])
				return
			}
			switch p[end] {
			case '"':
				w.string(w.take(p[i:end]), value)
			case '\\':
				w.keep(p[i : end+1])
				w.state = inEscape
			default:
				w.keep(p[i : end+1])
			}
			i = end + 1
		case inEscape:
			w.keep(p[i : i+1])
			w.state = inString
			i++
		case inScalar:
			end := i
			for end < len(p) && scalar[p[end]] {
				end++
			}
			if end == len(p) {
				w.keep(p[i:])
				return
			}
			w.state = between
			if token := w.take(p[i:end]); w.known() {
				value(w.here(), 0, token)
			}
			i = end
		default:
			switch c := p[i]; c {
			case '"':
				w.state, w.isKey = inString, w.keyed
			case '{', '[':
				w.open(c, value)
			case '}', ']':
				w.close()
			case ',':
				w.keyed = w.depth <= maxPath && w.objects>>w.depth&1 == 1
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

func (w *walker) keep(b []byte) {
	if w.kept < maxToken {
		copy(w.token[w.kept:], b)
	}
	w.kept += len(b)
}

// take ends a token with its last bytes and returns it whole.
func (w *walker) take(last []byte) []byte {
	if w.kept > 0 {
		w.keep(last)
		last = w.token[:min(w.kept, maxToken)]
		w.kept = 0
	}
	return last[:min(len(last), maxToken)]
}

func (w *walker) string(token []byte, value func(path, byte, []byte)) {
	w.state = between
	switch {
	case w.isKey:
		w.key = nameOf(token)
		if w.key == nameWrap && w.depth > 1 {
			w.key = nameOther
		}
	case w.known():
		value(w.here(), '"', token)
	}
}

func (w *walker) open(c byte, value func(path, byte, []byte)) {
	at := w.here()
	if w.known() {
		value(at, c, nil)
	}
	w.depth++
	w.keyed = c == '{'
	if w.depth <= maxPath {
		w.path = at
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

// known reports whether the path of the value that begins or ends is known.
func (w *walker) known() bool { return 0 < w.depth && w.depth < maxPath }

// here is the path of the value that begins or ends.
func (w *walker) here() path {
	switch {
	case w.depth == 0:
		return 0
	case w.depth <= maxPath && w.objects>>w.depth&1 == 1:
		return w.path.in(w.key)
	}
	return w.path.in(nameElement)
}
