package openai

// tally is what one prompt field holds.
type tally struct {
	text     int // bytes of text
	ids      int // token ids
	media    int // images, sounds, videos, files
	messages int // objects with a role
}

// maxShape is how deep messages inside messages (tool results, for example) are
// told apart from any other JSON. It also bounds the recursion of item.
const maxShape = 24

// item reads and counts one prompt in any of the shapes that the APIs know: a
// string, a token id, a message, a content part, or a list of any of these.
// What it does not know counts as JSON text, which is how chat templates render
// calls of tools.
func (s *scanner) item(i, depth int) int {
	if i >= len(s.body) || depth > maxShape {
		return s.json(i, depth)
	}
	switch c := s.body[i]; {
	case c == '"':
		start, slack := i, s.slack
		i = s.str(i + 1)
		s.text += i - start - len(`""`) - (s.slack - slack)
		return i
	case c == '[':
		return s.list(i, depth, nil)
	case c == '{':
		return s.message(i, depth)
	case '0' <= c && c <= '9' || c == '-':
		s.ids++
		return s.number(i)
	}
	return s.literal(i)
}

// list reads a list of items. If prompts is given it counts the elements that
// are prompts of their own: strings and lists, not token ids and messages.
func (s *scanner) list(i, depth int, prompts *int) int {
	b := s.body
	i = s.space(i + 1)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		i = s.tokenIDs(i)
		if prompts != nil && i < len(b) && (b[i] == '"' || b[i] == '[') {
			*prompts++
		}
		if i = s.item(i, depth+1); i < 0 {
			return -1
		}
		i = s.space(i)
		switch {
		case i < len(b) && b[i] == ',':
			i = s.space(i + 1)
		case i < len(b) && b[i] == ']':
			return i + 1
		default:
			return s.fail(i, "expected , or ] after a value in a list")
		}
	}
}

// tokenIDs moves over as many token ids as it can: plain numbers that a comma
// follows. What is left, item reads with more care.
func (s *scanner) tokenIDs(i int) int {
	b := s.body
	for i < len(b) && '1' <= b[i] && b[i] <= '9' {
		end := digits(b, i+1)
		if end >= len(b) || b[end] != ',' {
			break
		}
		s.ids++
		i = s.space(end + 1)
	}
	return i
}

// message reads a message or one part of its content.
func (s *scanner) message(i, depth int) int {
	i++
	for first := true; ; first = false {
		key, at, more := s.next(i, first)
		if !more {
			return at
		}
		switch string(key) {
		case "content", "text", "output", "thinking", "reasoning", "reasoning_content", "refusal", "summary":
			i = s.item(at, depth+1)
		case "image_url", "input_audio", "audio_url", "video_url", "image", "audio", "video", "file", "file_data",
			"image_embeds", "audio_embeds":
			i = s.medium(at, depth+1)
		case "source":
			i = s.source(at, depth+1)
		case "role":
			s.messages++
			i = s.ignore(at, depth+1)
		case "type", "id", "call_id", "tool_call_id", "tool_use_id", "status", "detail", "cache_control",
			"encrypted_content", "signature", "annotations", "logprobs":
			i = s.ignore(at, depth+1)
		default:
			i = s.json(at, depth+1)
		}
		if i < 0 {
			return -1
		}
	}
}

// source reads where a part of an Anthropic message comes from: encoded data, a
// URL, plain text, or parts of its own.
func (s *scanner) source(i, depth int) int {
	if i >= len(s.body) || s.body[i] != '{' {
		return s.item(i, depth)
	}
	var text, other tally
	var kind []byte
	before, blobs := s.tally, len(s.blobs)
	i++
	for first := true; ; first = false {
		key, at, more := s.next(i, first)
		i = at
		if !more {
			break
		}
		s.tally = tally{}
		switch string(key) {
		case "type":
			if i = s.ignore(at, depth+1); i >= 0 {
				kind = s.body[at:i]
			}
		case "data":
			i = s.item(at, depth+1)
			text = s.tally
			if i-at > minBlob {
				s.blobs = append(s.blobs, Span{at, i})
			}
		case "content":
			i = s.item(at, depth+1)
			other = s.tally
		default:
			i = s.ignore(at, depth+1)
		}
		if i < 0 {
			break
		}
	}
	s.tally = before
	switch string(kind) {
	case `"text"`:
		s.blobs = s.blobs[:blobs]
		s.add(text)
	case `"content"`:
		s.add(other)
	default:
		s.media++
	}
	return i
}

// medium reads a value that holds an image, a sound, a video or a file, or says
// where it lies.
func (s *scanner) medium(i, depth int) int {
	if i < len(s.body) && s.body[i] == 'n' { // null: there is none
		return s.literal(i)
	}
	before := s.tally
	s.opaque = true
	i = s.skip(i, depth)
	s.opaque = false
	s.tally = before
	s.media++
	return i
}

// json counts a value as the JSON text that it is.
func (s *scanner) json(i, depth int) int {
	start, slack := i, s.slack
	i = s.skip(i, depth)
	s.text += max(0, i-start-(s.slack-slack))
	return i
}

// ignore reads a value that is no part of the prompt.
func (s *scanner) ignore(i, depth int) int {
	before, blobs := s.tally, len(s.blobs)
	i = s.skip(i, depth)
	s.tally, s.blobs = before, s.blobs[:blobs]
	return i
}

func (t *tally) add(u tally) {
	t.text += u.text
	t.ids += u.ids
	t.media += u.media
	t.messages += u.messages
}
