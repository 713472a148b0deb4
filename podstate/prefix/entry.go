package prefix

import "math"

// entry says that one pod holds one block. It is in three structures at once:
// in the pod's list by last use, in the list of the pods that hold the block,
// and in the sets that find both. Links are numbers of entries, 0 is none: half
// the size of pointers, and nothing for the garbage collector to follow.
type entry struct {
	hash  uint64
	bytes uint32
	slot  uint16 // of the pod
	count uint16 // pods that hold the block; valid in the first entry of its list
	used  uint32 // tick of its last use
	gap   uint32 // ticks between two uses, moving average; 0: there was only one

	newer, older uint32 // same pod
	next, prev   uint32 // same block
}

const (
	maxSlots   = math.MaxUint16
	entrySize  = 40
	chunkShift = 12
	chunkLen   = 1 << chunkShift
)

// arena holds the entries, in chunks so that growth copies nothing.
type arena struct {
	chunks []*[chunkLen]entry
	used   uint32 // entries ever handed out; number 0 is not used
	free   uint32 // first of the returned ones, linked by next
}

func (a *arena) at(id uint32) *entry { return &a.chunks[id>>chunkShift][id%chunkLen] }

func (a *arena) alloc() uint32 {
	if id := a.free; id != 0 {
		a.free = a.at(id).next
		return id
	}
	a.used++
	if int(a.used>>chunkShift) >= len(a.chunks) {
		a.chunks = append(a.chunks, new([chunkLen]entry))
	}
	return a.used
}

func (a *arena) release(id uint32) {
	*a.at(id) = entry{next: a.free}
	a.free = id
}

func (a *arena) size() int64 {
	return int64(len(a.chunks))*chunkLen*entrySize + int64(cap(a.chunks))*8
}

// set finds entries by key: an open addressing hash table of their numbers. It
// is split by the top bits of the key, so that growth moves a small part only.
type set struct {
	perPod bool // the key is block and pod, else the block
	shards [256]shard
	cells  int64
}

type shard struct {
	cells []uint32 // its length is a power of two, or 0
	used  int
}

const (
	firstCells = 8
	cellSize   = 4
	// Above 5/8 of load, a search for what is not there becomes slow; and just
	// after doubling, at 5/16, a cell costs 12.8 bytes an entry.
	loadNum, loadDen = 5, 8
)

func (s *set) key(e *entry) uint64 {
	if s.perPod {
		return podKey(e.hash, e.slot)
	}
	return e.hash
}

// podKey makes a key of block and pod. The multiplier spreads slots over all
// bits; hash is random already.
func podKey(hash uint64, slot uint16) uint64 {
	return hash ^ (uint64(slot)+1)*0x9e3779b97f4a7c15
}

// find returns the entry with the key, or 0.
func (s *set) find(a *arena, key uint64) uint32 {
	sh := &s.shards[key>>56]
	if len(sh.cells) == 0 {
		return 0
	}
	mask := uint64(len(sh.cells) - 1)
	for i := key & mask; ; i = (i + 1) & mask {
		id := sh.cells[i]
		if id == 0 || s.key(a.at(id)) == key {
			return id
		}
	}
}

// put adds the entry, whose key must be new.
func (s *set) put(a *arena, id uint32) {
	key := s.key(a.at(id))
	sh := &s.shards[key>>56]
	if (sh.used+1)*loadDen > len(sh.cells)*loadNum {
		old := sh.cells
		sh.cells = make([]uint32, max(firstCells, 2*len(old)))
		s.cells += int64(len(sh.cells) - len(old))
		for _, id := range old {
			if id != 0 {
				sh.place(s.key(a.at(id)), id)
			}
		}
	}
	sh.place(key, id)
	sh.used++
}

func (sh *shard) place(key uint64, id uint32) {
	mask := uint64(len(sh.cells) - 1)
	i := key & mask
	for sh.cells[i] != 0 {
		i = (i + 1) & mask
	}
	sh.cells[i] = id
}

// replace puts new, an entry with the same key, where old is.
func (s *set) replace(a *arena, old, new uint32) {
	sh := &s.shards[s.key(a.at(old))>>56]
	sh.cells[s.index(a, sh, old)] = new
}

// remove takes the entry out, and closes the gap so that searches need no
// tombstones.
func (s *set) remove(a *arena, id uint32) {
	sh := &s.shards[s.key(a.at(id))>>56]
	mask := uint64(len(sh.cells) - 1)
	gap := s.index(a, sh, id)
	for i := (gap + 1) & mask; sh.cells[i] != 0; i = (i + 1) & mask {
		home := s.key(a.at(sh.cells[i])) & mask
		if (i-home)&mask >= (i-gap)&mask { // its home is not after the gap
			sh.cells[gap] = sh.cells[i]
			gap = i
		}
	}
	sh.cells[gap] = 0
	sh.used--
}

func (s *set) index(a *arena, sh *shard, id uint32) uint64 {
	mask := uint64(len(sh.cells) - 1)
	i := s.key(a.at(id)) & mask
	for sh.cells[i] != id {
		i = (i + 1) & mask
	}
	return i
}

func (s *set) size() int64 { return s.cells * cellSize }
