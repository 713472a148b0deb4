package sim

import (
	"time"

	"github.com/warmpath/warmpath/podstate/prefix"
)

// Segment is a piece of text. Equal IDs are equal texts, as far as both go.
type Segment struct {
	ID     uint64
	Tokens int
}

// Request is one request of a load.
type Request struct {
	At      time.Duration // when it comes
	After   int           // index plus 1 of an earlier request; it comes At after the end of that one
	Prompt  []Segment
	Output  int    // tokens
	Reply   uint64 // ID of the text that is generated
	Adapter string // LoRA adapter, or empty
}

// Tokens is the length of the prompt.
func (r *Request) Tokens() (n int) {
	for _, s := range r.Prompt {
		n += s.Tokens
	}
	return n
}

// cursor hashes the prefixes of a text at growing positions. Two texts have the
// same hash at a position if they are made of the same segments up to there.
type cursor struct {
	segments []Segment
	start    int    // tokens before the present segment
	chain    uint64 // of the segments before it
}

// at returns the hash of the first n tokens; false if the text is shorter.
func (c *cursor) at(n int) (uint64, bool) {
	for len(c.segments) > 0 && n > c.start+c.segments[0].Tokens {
		s := c.segments[0]
		c.chain = mix(c.chain ^ mix(s.ID) + uint64(s.Tokens))
		c.start += s.Tokens
		c.segments = c.segments[1:]
	}
	if len(c.segments) == 0 {
		return 0, false
	}
	return mix(c.chain ^ mix(c.segments[0].ID+mix(uint64(n-c.start)))), true
}

// engineBlocks appends the hashes of whole blocks of size tokens.
func engineBlocks(dst []uint64, text []Segment, size int) []uint64 {
	c := cursor{segments: text}
	for n := size; ; n += size {
		h, ok := c.at(n)
		if !ok {
			return dst
		}
		dst = append(dst, h)
	}
}

const (
	tokenBytes = 4       // in English; how wrong that is in other texts is Scenario.TokenError
	maxPrompt  = 1 << 21 // bytes; longer prompts have no blocks beyond
)

// layout is where the router's blocks end in a prompt, in bytes. The router
// alone knows, so it is asked.
var layout = func() []prefix.Block {
	return prefix.Chain(nil, 0, make([]byte, maxPrompt), []prefix.Span{{Start: 0, End: maxPrompt}})
}()

// routerBlocks appends the blocks that the router makes of the prompt.
func routerBlocks(dst []prefix.Block, prompt []Segment, seed uint64) []prefix.Block {
	c := cursor{segments: prompt}
	bytes := 0
	for _, b := range layout {
		bytes += int(b.Bytes)
		h, ok := c.at(bytes / tokenBytes)
		if !ok {
			break
		}
		dst = append(dst, prefix.Block{Hash: mix(h ^ seed), Bytes: b.Bytes})
	}
	return dst
}

// mix spreads every bit of x over the result.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
