package prefix

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Block is one piece of a prompt.
type Block struct {
	Hash  uint64 // of the seed and the whole prompt up to the end of the block
	Bytes uint32 // length of this block alone
}

// Span is a piece of a request body: body[Start:End].
type Span struct{ Start, End int }

const (
	// blockMin is about 32 tokens of English: engines cache blocks of 16 to 128.
	blockMin = 128
	// blockGrowth bounds both the error of a match, 1/64 of its depth, and the
	// number of blocks: 32 for 4 KB, 290 for 200 KB, 350 for 512 KB.
	blockGrowth = 64
)

// blockLen is the length of the block that begins at this offset of a prompt.
func blockLen(offset int) int { return max(blockMin, offset/blockGrowth&^63) }

// Seed returns the start of the chains of one name space. Engines never share
// cached blocks between models, adapters or cache salts.
func Seed(model, adapter, cacheSalt string) uint64 {
	var d xxhash.Digest
	d.Reset()
	for _, s := range [...]string{model, adapter, cacheSalt} {
		var n [8]byte // length first, so that ("a", "bc") is not ("ab", "c")
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		d.Write(n[:])
		d.WriteString(s)
	}
	return d.Sum64()
}

// Chain appends to dst the blocks of the prompt that is the concatenation of
// the spans of body. Prompts with the same seed have the same first blocks as
// far as they have the same bytes. The unfinished last block is left out,
// because engines cache whole blocks only. Spans outside of body end the prompt.
//
// S is any struct like Span, so that the scanner of bodies can have its own.
func Chain[S ~struct{ Start, End int }](dst []Block, seed uint64, body []byte, spans []S) []Block {
	// One running hash, read at the end of each block, is the chain: a block's
	// hash depends on all bytes before it.
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	offset := 0
	n := blockLen(0)
	left := n
	for _, s := range spans {
		span := Span(s)
		if span.Start < 0 || span.Start > span.End || span.End > len(body) {
			return dst
		}
		rest := body[span.Start:span.End]
		for len(rest) >= left {
			d.Write(rest[:left])
			rest = rest[left:]
			dst = append(dst, Block{Hash: d.Sum64(), Bytes: uint32(n)})
			offset += n
			n = blockLen(offset)
			left = n
		}
		d.Write(rest)
		left -= len(rest)
	}
	return dst
}
