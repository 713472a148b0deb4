package extproc

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that all other messages go through
	"google.golang.org/grpc/mem"
)

// codec reads and writes the messages of this package without copying bodies:
// a body that came in one piece goes back to Envoy from the memory into which
// gRPC received it. Everything else (health, EDS) is left to the usual codec.
type codec struct {
	encoding.CodecV2
	buffers mem.BufferPool
}

func newCodec(buffers mem.BufferPool) codec {
	return codec{CodecV2: encoding.GetCodecV2("proto"), buffers: buffers}
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(c.buffers)
	defer buf.Free()
	err := m.unmarshal(buf)
	if err != nil {
		m.freeBody()
	}
	return err
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*reply)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	if r.body == nil {
		return mem.BufferSlice{mem.SliceBuffer(r.head)}, nil
	}
	return mem.BufferSlice{mem.SliceBuffer(r.head), r.body}, nil
}

// bufferPool keeps buffers by powers of two. Unlike grpc's own pools it does not
// clear a buffer before handing it out, which costs more than the copy for which
// the buffer is wanted. It may only serve those who overwrite all of it.
type bufferPool struct {
	tiers [maxTier - minTier + 1]sync.Pool
}

const (
	minTier = 10 // 1 KiB
	maxTier = 23 // 8 MiB; what is larger is rare, and left to the garbage collector
)

func (p *bufferPool) Get(length int) *[]byte {
	tier := max(bits.Len(uint(max(length, 1)-1)), minTier)
	if tier > maxTier {
		b := make([]byte, length)
		return &b
	}
	if b, ok := p.tiers[tier-minTier].Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, 1<<tier)
	return &b
}

func (p *bufferPool) Put(b *[]byte) {
	if tier := bits.Len(uint(cap(*b))) - 1; tier >= minTier && tier <= maxTier {
		p.tiers[tier-minTier].Put(b)
	}
}
