package openai

import "bytes"

// skip reads one value of any kind and checks it. depth is how many containers
// are open around it.
func (s *scanner) skip(i, depth int) int {
	b, base := s.body, depth
	var start int

value:
	i = s.space(i)
	if i >= len(b) {
		return s.fail(i, "")
	}
	switch c := b[i]; {
	case c == '"':
		start = i
		if i = s.str(i + 1); i < 0 {
			return -1
		}
		if i-start > minBlob {
			s.blob(start, i)
		}
	case c == '{' || c == '[':
		if depth++; depth > maxDepth {
			return s.fail(i, "more than 10000 objects and lists inside each other")
		}
		if c == '[' {
			s.nest[depth>>6] &^= 1 << (depth & 63)
			if i = s.space(i + 1); i < len(b) && b[i] == ']' {
				break // the end of the list is read below
			}
			goto value
		}
		s.nest[depth>>6] |= 1 << (depth & 63)
		if i = s.space(i + 1); i < len(b) && b[i] == '}' {
			break
		}
		goto key
	case '0' <= c && c <= '9' || c == '-':
		if i = s.number(i); i < 0 {
			return -1
		}
	default:
		if i = s.literal(i); i < 0 {
			return -1
		}
	}

	for depth > base {
		i = s.space(i)
		object := s.nest[depth>>6]>>(depth&63)&1 == 1
		switch {
		case i >= len(b):
			return s.fail(i, "")
		case b[i] == ',' && object:
			i = s.space(i + 1)
			goto key
		case b[i] == ',':
			i++
			goto value
		case b[i] == '}' && object, b[i] == ']' && !object:
			i++
			depth--
		case object:
			return s.fail(i, "expected , or } after a value in an object")
		default:
			return s.fail(i, "expected , or ] after a value in a list")
		}
	}
	return i

key:
	if i >= len(b) || b[i] != '"' {
		return s.fail(i, "expected a key in quotes")
	}
	if i = s.str(i + 1); i < 0 {
		return -1
	}
	if i = s.space(i); i >= len(b) || b[i] != ':' {
		return s.fail(i, "expected : after a key")
	}
	i++
	goto value
}

// blob takes a long string out of the text if it is encoded media: any inside a
// media part, elsewhere a data URL.
func (s *scanner) blob(start, end int) {
	raw := s.body[start+1 : end-1]
	if !s.opaque {
		if !bytes.HasPrefix(raw, []byte("data:")) || !bytes.Contains(raw[:minBlob-1], []byte(";base64,")) {
			return
		}
		s.media++
	}
	s.blobs = append(s.blobs, Span{start, end})
	s.slack += len(raw)
}
