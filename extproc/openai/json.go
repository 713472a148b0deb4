package openai

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
)

// ErrNotObject says that a body is valid JSON and not an object, so that it has
// no fields to read.
var ErrNotObject = errors.New("the body is JSON but not an object: no model and no prompt in it")

// A SyntaxError says where a body stops being JSON.
type SyntaxError struct {
	Offset int    // bytes before the one that is wrong; the length of the body if it ends too early
	Reason string // never holds bytes of the body
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Reason)
}

// maxDepth is how many objects and lists may be open at once. It is the limit
// of encoding/json, with which scanner agrees about what is valid.
const maxDepth = 10000

// minBlob is the length from which an encoded image or file is worth a span.
const minBlob = 64

// scanner checks JSON and counts prompts while it moves over a body. Its methods
// take the index at which to begin and return the index after what they read,
// or -1 when err is set.
type scanner struct {
	body []byte
	err  error

	// slack counts bytes that a tokenizer never sees as they are: escapes (less
	// what they stand for), space between tokens, and blobs. The text of a value
	// is its length less the growth of slack while it was read.
	slack int

	tally
	blobs  []Span // encoded media in the value that is read
	opaque bool   // inside a media part: any long string is a blob

	// nest has one bit per open container below the value that skip reads: 1 for
	// an object. A bit array bounds the depth without recursion.
	nest [maxDepth/64 + 1]uint64
}

func (s *scanner) fail(i int, reason string) int {
	if i >= len(s.body) {
		i, reason = len(s.body), "it ends too early"
	}
	s.err = &SyntaxError{Offset: i, Reason: reason}
	return -1
}

// space moves to the next byte that is not white space.
func (s *scanner) space(i int) int {
	if i < len(s.body) && s.body[i] > ' ' {
		return i
	}
	return s.spaces(i)
}

func (s *scanner) spaces(i int) int {
	b, start := s.body, i
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	s.slack += i - start
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks the bytes of x that may not stand for themselves in a JSON
// string (the quote, the backslash and control characters) by their high bits.
// Bits above the lowest one may be wrong: a borrow can pass through them.
func special(x uint64) uint64 {
	// Flipping bit 1 puts the quote (0x22) next to the control characters, so
	// that one comparison finds both.
	return ((x ^ 2*ones - 0x21*ones) | (x ^ '\\'*ones - ones)) &^ x & highs
}

// str reads a string whose opening quote stands before i.
func (s *scanner) str(i int) int {
	b := s.body
	for {
		i = plain(b, i)
		if i >= len(b) {
			return s.fail(i, "")
		}
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			if i++; i < len(b) && simpleEscape[b[i]] { // nearly all are line breaks and quotes
				s.slack++
				i++
			} else if i = s.escape(i); i < 0 {
				return -1
			}
		default:
			return s.fail(i, "a control character in a string must be escaped")
		}
	}
}

// plain moves to the next byte that is special, or to the end.
func plain(b []byte, i int) int {
	if len(b)-i >= 8 { // most strings of dense JSON end here
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
		i += 8
	}
	for len(b)-i >= 32 { // long text: four words a turn
		p := b[i : i+32 : i+32]
		m0 := special(binary.LittleEndian.Uint64(p))
		m1 := special(binary.LittleEndian.Uint64(p[8:]))
		m2 := special(binary.LittleEndian.Uint64(p[16:]))
		m3 := special(binary.LittleEndian.Uint64(p[24:]))
		if m0|m1|m2|m3 == 0 {
			i += 32
			continue
		}
		switch {
		case m0 != 0:
			return i + bits.TrailingZeros64(m0)/8
		case m1 != 0:
			return i + 8 + bits.TrailingZeros64(m1)/8
		case m2 != 0:
			return i + 16 + bits.TrailingZeros64(m2)/8
		}
		return i + 24 + bits.TrailingZeros64(m3)/8
	}
	for ; len(b)-i >= 8; i += 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// simpleEscape marks the bytes that may follow a backslash and are all of it.
var simpleEscape = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// escape reads the rest of an escape that is not a simple one.
func (s *scanner) escape(i int) int {
	b := s.body
	if i >= len(b) || b[i] != 'u' {
		return s.fail(i, "unknown escape in a string")
	}
	r := 0
	for k := i + 1; k < i+5; k++ {
		if k >= len(b) {
			return s.fail(k, "")
		}
		switch c := b[k]; {
		case '0' <= c && c <= '9':
			r = r<<4 | int(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | int(c|0x20-'a'+10)
		default:
			return s.fail(k, `\u needs four hexadecimal digits`)
		}
	}
	switch { // six bytes stand for what UTF-8 writes in fewer
	case r < 0x80:
		s.slack += 5
	case r < 0x800, 0xd800 <= r && r < 0xe000: // half of a pair that takes four
		s.slack += 4
	default:
		s.slack += 3
	}
	return i + 5
}

// number reads a number.
func (s *scanner) number(i int) int {
	b := s.body
	if b[i] == '-' {
		i++
	}
	start := i
	if i = s.digits(i); i < 0 {
		return -1
	}
	if b[start] == '0' && i > start+1 {
		return s.fail(start+1, "a number must not begin with 0")
	}
	if i < len(b) && b[i] == '.' {
		if i = s.digits(i + 1); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		i = s.digits(i)
	}
	return i
}

// digits reads at least one digit.
func (s *scanner) digits(i int) int {
	end := digits(s.body, i)
	if end == i {
		return s.fail(i, "a number needs a digit here")
	}
	return end
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

// literal reads true, false or null, or says that no value begins at i.
func (s *scanner) literal(i int) int {
	for _, word := range [...]string{"true", "false", "null"} {
		if i < len(s.body) && s.body[i] == word[0] {
			for k := range len(word) {
				if i+k >= len(s.body) || s.body[i+k] != word[k] {
					return s.fail(i+k, "expected "+word)
				}
			}
			return i + len(word)
		}
	}
	return s.fail(i, "a value must begin here")
}

// next reads the next member of an object up to its value: i stands after the
// opening brace (first) or after the value before. It returns the key and where
// its value begins; without more, the index after the object.
func (s *scanner) next(i int, first bool) (key []byte, at int, more bool) {
	b := s.body
	i = s.space(i)
	switch {
	case i < len(b) && b[i] == '}':
		return nil, i + 1, false
	case first:
	case i < len(b) && b[i] == ',':
		i = s.space(i + 1)
	default:
		return nil, s.fail(i, "expected , or } after a value in an object"), false
	}
	if i >= len(b) || b[i] != '"' {
		return nil, s.fail(i, "expected a key in quotes"), false
	}
	start, slack := i, s.slack
	if i = s.str(i + 1); i < 0 {
		return nil, -1, false
	}
	key = b[start+1 : i-1]
	if s.slack != slack {
		key = []byte(unquote(b[start:i]))
	}
	if i = s.space(i); i >= len(b) || b[i] != ':' {
		return nil, s.fail(i, "expected : after a key"), false
	}
	return key, s.space(i + 1), true
}

// unquote gives the text of a valid JSON string. Only names with escapes come
// here, so it leaves the rare rules (surrogates, invalid UTF-8) to encoding/json.
func unquote(raw []byte) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}
