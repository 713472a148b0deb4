package engine

// blockPool is the KV cache: blocks that are held by requests, and free ones in
// the order in which they will be reused. A free block keeps its content, and
// its place in index, until it is reused.
type blockPool struct {
	index map[uint64]int32 // content to block
	block []block
	nfree int
}

// block is one block. Block 0 is the head of the ring of free blocks and holds
// nothing; a real server spends one block likewise.
type block struct {
	key        uint64 // content, or 0
	refs       int32
	prev, next int32 // in the ring of free blocks while refs is 0
}

func newBlockPool(n int) *blockPool {
	p := &blockPool{index: make(map[uint64]int32), block: make([]block, n)}
	for i := 1; i < n; i++ {
		p.pushFree(int32(i))
	}
	return p
}

func (p *blockPool) usage() float64 {
	return 1 - float64(p.nfree)/float64(len(p.block)-1)
}

func (p *blockPool) fits(n int) bool { return n <= p.nfree }

// match counts how many blocks from the start of r are cached, at most limit, and
// how many of them running requests hold.
func (p *blockPool) match(r *Request, limit int) (hits, held int) {
	limit = min(limit, len(r.Blocks))
	for hits < limit {
		b, ok := p.index[r.key(hits)]
		if !ok {
			break
		}
		if p.block[b].refs > 0 {
			held++
		}
		hits++
	}
	return hits, held
}

// share gives r the first n blocks from the cache.
func (p *blockPool) share(r *Request, n int) {
	r.blocks = r.blocks[:0]
	for i := range n {
		b := p.index[r.key(i)]
		if p.block[b].refs == 0 {
			p.unlink(b)
		}
		p.block[b].refs++
		r.blocks = append(r.blocks, b)
	}
}

// allocate gives r n more blocks: those that were free for longest.
func (p *blockPool) allocate(r *Request, n int) {
	for range n {
		b := p.block[0].next
		p.unlink(b)
		if key := p.block[b].key; key != 0 {
			delete(p.index, key)
			p.block[b].key = 0
		}
		p.block[b].refs = 1
		r.blocks = append(r.blocks, b)
	}
}

// cache makes the first n blocks of r findable. Content that another block
// already has stays where it is.
func (p *blockPool) cache(r *Request, n int) {
	n = min(n, len(r.Blocks), len(r.blocks))
	for i := n - 1; i >= 0; i-- {
		b := &p.block[r.blocks[i]]
		if b.key != 0 {
			return // and so are all before it
		}
		key := r.key(i)
		if _, ok := p.index[key]; !ok {
			b.key = key
			p.index[key] = r.blocks[i]
		}
	}
}

// free returns the blocks of r, the last one first, so that the tail of a prompt
// is reused before its head.
func (p *blockPool) free(r *Request) {
	for i := len(r.blocks) - 1; i >= 0; i-- {
		b := r.blocks[i]
		p.block[b].refs--
		if p.block[b].refs == 0 {
			p.pushFree(b)
		}
	}
	r.blocks = r.blocks[:0]
}

// forget empties the free blocks.
func (p *blockPool) forget() {
	for key, b := range p.index {
		if p.block[b].refs == 0 {
			p.block[b].key = 0
			delete(p.index, key)
		}
	}
}

func (p *blockPool) pushFree(b int32) {
	last := p.block[0].prev
	p.block[b].prev, p.block[b].next = last, 0
	p.block[last].next, p.block[0].prev = b, b
	p.nfree++
}

func (p *blockPool) unlink(b int32) {
	prev, next := p.block[b].prev, p.block[b].next
	p.block[prev].next, p.block[next].prev = next, prev
	p.nfree--
}

// key is the content of the i-th block in the name space of its adapter and salt.
func (r *Request) key(i int) uint64 {
	k := r.Blocks[i]
	if r.Adapter != "" || r.Salt != 0 {
		k = mix(k ^ r.space)
	}
	return max(k, 1) // 0 means no content
}

// nameSpace hashes what keeps equal tokens apart.
func nameSpace(adapter string, salt uint64) uint64 {
	h := mix(salt + 1)
	for i := range len(adapter) {
		h = (h ^ uint64(adapter[i])) * 0x100000001b3
	}
	return mix(h)
}

// mix spreads every bit of x over the result.
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}
