package scrape

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

// names is a set of series names that a scanner looks for.
type names struct {
	list  []string
	byLen [][]int // indexes in list, by the length of the name

	// Two words of the name sort out most lines before its end is known. Off
	// when a name is shorter than a word.
	second int        // where the second word begins; negative: off
	heads  [1024]bool // by the hash of both words
}

func newNames(list []string) *names {
	n := &names{list: list, second: 16}
	for i, name := range list {
		for len(n.byLen) <= len(name) {
			n.byLen = append(n.byLen, nil)
		}
		n.byLen[len(name)] = append(n.byLen[len(name)], i)
		n.second = min(n.second, len(name)-8)
	}
	if n.second >= 0 {
		for _, name := range list {
			n.heads[n.head([]byte(name))] = true
		}
	}
	return n
}

// head hashes the two words of a text that has them.
func (n *names) head(text []byte) uint64 {
	a, b := binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[n.second:])
	return (a*0x9e3779b97f4a7c15 ^ b*0xd6e8feb86659fd93) >> 54
}

// cut returns the index of the name that a line begins with, or -1, and what
// follows it.
func (n *names) cut(line []byte) (index int, rest []byte) {
	if n.second >= 0 && (len(line) < n.second+8 || !n.heads[n.head(line)]) {
		return -1, nil
	}
	name, rest := cutName(line)
	if len(name) >= len(n.byLen) {
		return -1, nil
	}
	for _, i := range n.byLen[len(name)] {
		if n.list[i] == string(name) {
			return i, rest
		}
	}
	return -1, nil
}

// cutName splits a line after the name of its series.
func cutName(line []byte) (name, rest []byte) {
	end := 0
	for end < len(line) && nameByte[line[end]] {
		end++
	}
	return line[:end], line[end:]
}

// label is one label of a sample. Both slices are valid until the next sample.
type label struct{ name, value []byte }

// maxLabels bounds the labels of a sample: ten times what any engine has.
const maxLabels = 256

// scanner walks the samples of a Prometheus text exposition whose names are
// wanted, and looks at nothing else: model servers send 500 lines of which a
// picker needs ten. A line that cannot be read costs only itself. It reads the
// text format 0.0.4 and OpenMetrics, with \n or \r\n, with or without a newline
// at the end; comments, timestamps and exemplars are ignored. Names in quotes
// are not read: no engine has one.
//
// A scanner is reused by reset and then allocates nothing.
type scanner struct {
	names *names
	rest  []byte

	// The sample that next has found.
	series int     // index of its name
	labels []label // in the order of the text
	value  float64 // NaN and the infinities included

	bad       int // wanted lines that could not be read, since reset
	unescaped []byte
}

func (s *scanner) reset(n *names, text []byte) {
	s.names, s.rest, s.bad = n, text, 0
}

// next finds the next wanted sample, and reports false at the end of the text.
func (s *scanner) next() bool {
	for len(s.rest) > 0 {
		var line []byte
		if i := bytes.IndexByte(s.rest, '\n'); i >= 0 {
			line, s.rest = s.rest[:i], s.rest[i+1:]
		} else {
			line, s.rest = s.rest, nil
		}
		if s.series, line = s.names.cut(skipBlanks(line)); s.series < 0 {
			continue
		}
		if s.sample(line) {
			return true
		}
		s.bad++
	}
	return false
}

// sample reads what follows the name.
func (s *scanner) sample(text []byte) (ok bool) {
	s.labels, s.unescaped = s.labels[:0], s.unescaped[:0]
	text = skipBlanks(text)
	if len(text) > 0 && text[0] == '{' {
		if text, ok = s.labelSet(text[1:]); !ok {
			return false
		}
		text = skipBlanks(text)
	}
	end := 0
	for end < len(text) && text[end] != ' ' && text[end] != '\t' && text[end] != '\r' {
		end++
	}
	// The conversion does not allocate: the string does not escape, and is short.
	v, err := strconv.ParseFloat(string(text[:end]), 64)
	s.value = v
	return err == nil
}

// label returns the value of a label of the present sample, or nil.
func (s *scanner) label(name string) []byte {
	for _, l := range s.labels {
		if string(l.name) == name {
			return l.value
		}
	}
	return nil
}

// labelSet reads labels up to the closing brace and returns what follows it.
func (s *scanner) labelSet(text []byte) (rest []byte, ok bool) {
	for {
		text = skipBlanks(text)
		if len(text) > 0 && text[0] == '}' {
			return text[1:], true
		}
		end := 0
		for end < len(text) && nameByte[text[end]] && text[end] != ':' {
			end++
		}
		name := text[:end]
		text = skipBlanks(text[end:])
		if end == 0 || len(text) == 0 || text[0] != '=' {
			return nil, false
		}
		text = skipBlanks(text[1:])
		if len(text) == 0 || text[0] != '"' {
			return nil, false
		}
		value, after, ok := s.quoted(text[1:])
		if !ok || len(s.labels) == maxLabels {
			return nil, false
		}
		s.labels = append(s.labels, label{name, value})
		text = skipBlanks(after)
		switch {
		case len(text) > 0 && text[0] == ',':
			text = text[1:]
		case len(text) == 0 || text[0] != '}':
			return nil, false
		}
	}
}

// quoted reads a label value after its opening quote.
func (s *scanner) quoted(text []byte) (value, rest []byte, ok bool) {
	end := bytes.IndexByte(text, '"')
	if end < 0 {
		return nil, nil, false
	}
	if bytes.IndexByte(text[:end], '\\') < 0 {
		return text[:end], text[end+1:], true
	}
	start := len(s.unescaped)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			return s.unescaped[start:], text[i+1:], true
		case c == '\\' && i+1 < len(text):
			i++
			c = text[i]
			if c == 'n' {
				c = '\n'
			} else if c != '\\' && c != '"' {
				return nil, nil, false
			}
		}
		s.unescaped = append(s.unescaped, c)
	}
	return nil, nil, false
}

func skipBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

// nameByte says which bytes belong to a series name.
var nameByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c == '_' || c == ':' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	return t
}()
