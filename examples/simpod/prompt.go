package simpod

import (
	"encoding/json"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/warmpath/warmpath/scorers/sim/engine"
)

// tokenBytes is how many bytes of text make a token. Real tokenizers average
// about four in English.
const tokenBytes = 4

// query is what simpod reads of a request body.
type query struct {
	Model         string          `json:"model"`
	Prompt        json.RawMessage `json:"prompt"`
	Messages      []message       `json:"messages"`
	Tools         json.RawMessage `json:"tools"`
	MaxTokens     *int            `json:"max_tokens"`
	MaxCompletion *int            `json:"max_completion_tokens"`
	Stream        bool            `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	CacheSalt string `json:"cache_salt"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// parse reads the body of a request into what the engine needs and the text of
// its output. chat tells the two APIs apart.
func (s *Server) parse(body []byte, chat bool) (*query, engine.Request, []byte, error) {
	q := &query{}
	if err := json.Unmarshal(body, q); err != nil {
		return nil, engine.Request{}, nil, err
	}
	var text []byte
	output := 16 // the default of completions
	if chat {
		text = render(q)
		output = 128 // vLLM has no limit here; some model would stop somewhere
	} else {
		text = flatten(nil, q.Prompt)
	}
	for _, n := range []*int{q.MaxTokens, q.MaxCompletion} {
		if n != nil {
			output = *n
		}
	}
	if len(text) == 0 {
		return nil, engine.Request{}, nil, fmt.Errorf("the prompt is empty")
	}
	if output < 1 {
		return nil, engine.Request{}, nil, fmt.Errorf("max_tokens must be at least 1, got %d", output)
	}
	r := engine.Request{Prompt: (len(text) + tokenBytes - 1) / tokenBytes, Output: output}
	if q.CacheSalt != "" {
		r.Salt = xxhash.Sum64String(q.CacheSalt)
	}
	if q.Model != s.cfg.Model {
		r.Adapter = q.Model
	}
	if r.Prompt+r.Output > s.cfg.Engine.MaxModelLen {
		return q, r, nil, engine.ErrTooLong
	}
	answer := generate(xxhash.Sum64(text), output)
	r.Blocks = blocks(append(text, answer...), s.cfg.Engine.BlockTokens*tokenBytes)
	return q, r, answer, nil
}

// render puts messages into one text, as a chat template does. The answer
// follows where the next turn has it, so that the next turn finds it cached.
func render(q *query) []byte {
	var b []byte
	if len(q.Tools) > 0 {
		b = append(append(b, "<|tools|>\n"...), q.Tools...)
	}
	for _, m := range q.Messages {
		b = append(append(append(b, "<|"...), m.Role...), "|>\n"...)
		b = flatten(b, m.Content)
		b = append(b, '\n')
	}
	if len(b) > 0 {
		b = append(b, "<|assistant|>\n"...)
	}
	return b
}

// flatten appends the text of a prompt or of a message's content in any of the
// shapes that the API takes. What is neither text nor text parts counts as it
// stands.
func flatten(b []byte, raw json.RawMessage) []byte {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return append(b, one...)
	}
	var many []json.RawMessage
	if json.Unmarshal(raw, &many) == nil {
		for _, part := range many {
			var p struct {
				Text string `json:"text"`
			}
			if json.Unmarshal(part, &p) == nil && p.Text != "" {
				b = append(b, p.Text...)
			} else {
				b = flatten(b, part)
			}
		}
		return b
	}
	return append(b, raw...)
}

// generate makes an answer of n tokens that depends on the prompt.
func generate(seed uint64, n int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	b := make([]byte, 0, n*tokenBytes)
	for range n {
		seed = seed*6364136223846793005 + 1442695040888963407
		b = append(b, ' ', letters[seed>>33%26], letters[seed>>41%26], letters[seed>>49%26])
	}
	return b
}

// blocks hashes each whole block of size bytes together with all before it.
func blocks(text []byte, size int) []uint64 {
	var out []uint64
	var chain [8]byte
	d := xxhash.New()
	for ; len(text) >= size; text = text[size:] {
		d.Reset()
		d.Write(chain[:])
		d.Write(text[:size])
		h := d.Sum64()
		for i := range chain {
			chain[i] = byte(h >> (8 * i))
		}
		out = append(out, h)
	}
	return out
}
