package prefix

import (
	"slices"
	"sort"
	"sync"
	"time"
	"unsafe"
)

// Index remembers which pods hold which blocks. All methods may be called from
// any goroutine; calls of Match do not wait for each other.
//
// A pod's blocks are always closed towards the head: it holds a block only if
// it holds all blocks before it. So along a prompt the set of pods can only
// shrink, and equal numbers mean equal sets.
type Index struct {
	maxEntries int

	mu      sync.RWMutex // guards all below
	begin   time.Time    // tick 0: the first insert
	entries arena
	first   set // first entry of each block
	held    set // every entry, by block and pod
	live    int // entries in use
	pods    []podList
}

// podList is what one pod holds. A request's blocks are touched from its tail
// to its head, so a block is never newer than the blocks before it, and taking
// the oldest away keeps the list closed. Engines evict in the same order.
type podList struct {
	newest, oldest uint32
	stale          uint32 // tick of the last use of oldest
	entries        int
	bytes          int64
	capacity       int64 // 0: no limit
}

const (
	minBytes = 1 << 20
	// entryBytes is what an entry can cost at worst: itself, and a cell of each
	// of the two sets just after they have grown.
	entryBytes = entrySize + 2*cellSize*2*loadDen/loadNum + 1
	// fixedBytes covers the last chunk, the first cells of the sets, and a few
	// thousand pods.
	fixedBytes = 512 << 10
	// batch bounds how long readers wait for a removal.
	batch = 1024
)

// NewIndex returns an empty index that uses at most maxBytes of memory, 1 MiB at
// least. When it is full, the pod with the most blocks loses its oldest ones.
func NewIndex(maxBytes int64) *Index {
	maxBytes = max(maxBytes, minBytes)
	return &Index{
		maxEntries: int((maxBytes - fixedBytes) / entryBytes),
		held:       set{perPod: true},
	}
}

// Bytes returns how much memory the index uses.
func (ix *Index) Bytes() int64 {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return int64(unsafe.Sizeof(*ix)) + ix.entries.size() + ix.first.size() + ix.held.size() +
		int64(cap(ix.pods))*int64(unsafe.Sizeof(podList{}))
}

// Len returns how many blocks all pods together hold.
func (ix *Index) Len() int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.live
}

// Match is what an index knows of one prompt. Slots beyond its slices hold
// nothing.
type Match struct {
	Bytes     []int32   // by slot: bytes of the prompt that the pod holds, from its head without a gap
	Retention []float32 // by slot: seconds that the pod keeps what nobody uses; 0: not known
	Reuse     float64   // uses a second of the longest part that any pod holds, on the pod that uses it most; 0: not known
}

// Match fills m, whose memory it uses again, with what is so now.
func (ix *Index) Match(blocks []Block, now time.Time, m *Match) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()

	m.Bytes, m.Retention, m.Reuse = m.Bytes[:0], m.Retention[:0], 0
	if len(blocks) == 0 || ix.countLocked(blocks[0].Hash) == 0 {
		return
	}
	m.Bytes = slices.Grow(m.Bytes, len(ix.pods))[:len(ix.pods)]
	clear(m.Bytes)
	tick := ix.tick(now)
	for i := range ix.pods {
		m.Retention = append(m.Retention, ix.pods[i].retention(tick))
	}
	bytes := int32(0)
	for _, b := range blocks {
		bytes += int32(b.Bytes)
	}
	// From the deepest block that anyone holds towards the head, stopping only
	// where the set of pods becomes larger.
	depth, count := len(blocks), 0
	for {
		end := sort.Search(depth, func(i int) bool {
			return ix.countLocked(blocks[i].Hash) <= count
		})
		if end == 0 {
			return
		}
		for ; depth > end; depth-- {
			bytes -= int32(blocks[depth-1].Bytes)
		}
		id := ix.first.find(&ix.entries, blocks[end-1].Hash)
		deepest := count == 0
		count = int(ix.entries.at(id).count)
		for id != 0 {
			e := ix.entries.at(id)
			if m.Bytes[e.slot] == 0 {
				m.Bytes[e.slot] = bytes
			}
			if deepest {
				m.Reuse = max(m.Reuse, e.reuse(tick))
			}
			id = e.next
		}
	}
}

func (ix *Index) countLocked(hash uint64) int {
	id := ix.first.find(&ix.entries, hash)
	if id == 0 {
		return 0
	}
	return int(ix.entries.at(id).count)
}

// Insert says that a prompt was sent to the pod. It belongs to the moment of
// dispatch: engines count blocks as cached from when they are scheduled, so a
// burst that shares a prefix should meet on one pod.
func (ix *Index) Insert(slot int, blocks []Block, now time.Time) {
	if slot < 0 || slot >= maxSlots {
		return
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()

	if ix.begin.IsZero() {
		ix.begin = now
	}
	tick := ix.tick(now)
	p := ix.podLocked(slot)
	blocks = blocks[:min(len(blocks), ix.maxEntries/2)]
	if p.capacity > 0 {
		room := p.capacity
		fits := slices.IndexFunc(blocks, func(b Block) bool {
			room -= int64(b.Bytes)
			return room < 0
		})
		if fits >= 0 {
			blocks = blocks[:fits]
		}
	}
	ix.makeRoomLocked(len(blocks))
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		if id := ix.held.find(&ix.entries, podKey(b.Hash, uint16(slot))); id != 0 {
			ix.entries.at(id).use(tick)
			ix.unlinkUseLocked(p, id)
			ix.linkUseLocked(p, id)
		} else {
			ix.addLocked(p, slot, b, tick)
		}
	}
	for p.capacity > 0 && p.bytes > p.capacity {
		ix.dropLocked(p)
	}
}

// SetCapacity says how many bytes of prompts the pod's cache holds; 0 is no
// limit.
func (ix *Index) SetCapacity(slot int, bytes int64) {
	if slot < 0 || slot >= maxSlots {
		return
	}
	ix.mu.Lock()
	ix.podLocked(slot).capacity = max(0, bytes)
	ix.mu.Unlock()
	if bytes > 0 {
		ix.shrink(slot, bytes)
	}
}

// Remove forgets all about a pod. It is called when a pod has gone, and also
// when a new one gets its slot: a request may have been on its way between.
func (ix *Index) Remove(slot int) {
	if slot < 0 || slot >= maxSlots {
		return
	}
	ix.SetCapacity(slot, 0)
	ix.shrink(slot, 0)
}

// shrink drops the pod's oldest blocks until it holds at most so many bytes,
// and lets others in between.
func (ix *Index) shrink(slot int, bytes int64) {
	for more := true; more; {
		ix.mu.Lock()
		p := ix.podLocked(slot)
		for n := 0; n < batch && p.oldest != 0 && p.bytes > bytes; n++ {
			ix.dropLocked(p)
		}
		more = p.oldest != 0 && p.bytes > bytes
		ix.mu.Unlock()
	}
}

func (ix *Index) podLocked(slot int) *podList {
	if slot >= len(ix.pods) {
		ix.pods = append(ix.pods, make([]podList, slot+1-len(ix.pods))...)
	}
	return &ix.pods[slot]
}

// makeRoomLocked drops blocks of the pods that have the most until n fit.
func (ix *Index) makeRoomLocked(n int) {
	for ix.live+n > ix.maxEntries {
		most := &ix.pods[0]
		for i := range ix.pods {
			if ix.pods[i].entries > most.entries {
				most = &ix.pods[i]
			}
		}
		// An eighth at a time, because the search above is not free.
		for range max(1, min(most.entries/8, batch)) {
			ix.dropLocked(most)
		}
	}
}

func (ix *Index) addLocked(p *podList, slot int, b Block, tick uint32) {
	id := ix.entries.alloc()
	e := ix.entries.at(id)
	*e = entry{hash: b.Hash, bytes: b.Bytes, slot: uint16(slot), count: 1, used: tick}
	if head := ix.first.find(&ix.entries, b.Hash); head == 0 {
		ix.first.put(&ix.entries, id)
	} else {
		// Behind the head, so that the set and the count stay where they are.
		h := ix.entries.at(head)
		h.count++
		e.prev, e.next = head, h.next
		if h.next != 0 {
			ix.entries.at(h.next).prev = id
		}
		h.next = id
	}
	ix.held.put(&ix.entries, id)
	ix.linkUseLocked(p, id)
	p.entries++
	p.bytes += int64(b.Bytes)
	ix.live++
}

// dropLocked forgets the pod's oldest block.
func (ix *Index) dropLocked(p *podList) {
	id := p.oldest
	e := ix.entries.at(id)
	ix.unlinkUseLocked(p, id)
	ix.held.remove(&ix.entries, id)
	p.entries--
	p.bytes -= int64(e.bytes)
	ix.live--

	switch {
	case e.prev != 0:
		ix.entries.at(e.prev).next = e.next
		if e.next != 0 {
			ix.entries.at(e.next).prev = e.prev
		}
		ix.entries.at(ix.first.find(&ix.entries, e.hash)).count--
	case e.next != 0:
		n := ix.entries.at(e.next)
		n.prev, n.count = 0, e.count-1
		ix.first.replace(&ix.entries, id, e.next)
	default:
		ix.first.remove(&ix.entries, id)
	}
	ix.entries.release(id)
}

func (ix *Index) linkUseLocked(p *podList, id uint32) {
	e := ix.entries.at(id)
	e.newer, e.older = 0, p.newest
	if p.newest != 0 {
		ix.entries.at(p.newest).newer = id
	} else {
		p.oldest, p.stale = id, e.used
	}
	p.newest = id
}

func (ix *Index) unlinkUseLocked(p *podList, id uint32) {
	e := ix.entries.at(id)
	if e.newer != 0 {
		ix.entries.at(e.newer).older = e.older
	} else {
		p.newest = e.older
	}
	if e.older != 0 {
		ix.entries.at(e.older).newer = e.newer
	} else if p.oldest = e.newer; p.oldest != 0 {
		p.stale = ix.entries.at(p.oldest).used
	}
}
