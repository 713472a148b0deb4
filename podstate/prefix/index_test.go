package prefix

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

var t0 = time.Unix(1_800_000_000, 0)

func match(ix *Index, blocks []Block) []int32 {
	var m Match
	ix.Match(blocks, t0, &m)
	return m.Bytes
}

func TestMatchIsContiguousFromTheHead(t *testing.T) {
	ix := NewIndex(0)
	p := text(1, 8192)
	c := whole(7, p)
	ix.Insert(3, c[:10], t0)
	ix.Insert(1, c, t0)
	ix.Insert(0, whole(7, text(2, 4096)), t0)
	got := match(ix, c)
	if want := []int32{0, 8192, 0, 1280}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := match(ix, whole(9, p)); len(got) != 0 {
		t.Errorf("an unknown prompt matches %v", got)
	}
	if got := match(ix, nil); len(got) != 0 {
		t.Errorf("an empty prompt matches %v", got)
	}
}

func TestEvictionTakesOldTailsFirst(t *testing.T) {
	ix := NewIndex(0)
	ix.SetCapacity(0, 1280)
	a, b := whole(1, text(1, 640)), whole(1, text(2, 896))
	ix.Insert(0, a, t0)
	ix.Insert(0, b, t0)
	if got := match(ix, a)[0]; got != 384 {
		t.Errorf("%d bytes of the old prompt are left, want its first 384", got)
	}
	if got := match(ix, b)[0]; got != 896 {
		t.Errorf("%d bytes of the new prompt, want all 896", got)
	}
	ix.Insert(0, a[:1], t0) // use keeps a block
	ix.SetCapacity(0, 256)
	if got := match(ix, a)[0]; got != 128 {
		t.Errorf("%d bytes of the prompt used last, want 128", got)
	}
	ix.Insert(0, whole(1, text(3, 4096)), t0)
	if got := match(ix, whole(1, text(3, 4096)))[0]; got != 256 {
		t.Errorf("%d bytes of a prompt above the capacity, want its head of 256", got)
	}
}

func TestRemovedSlotStartsEmptyAndUnlimited(t *testing.T) {
	ix := NewIndex(0)
	c := whole(1, text(1, 300_000))
	ix.SetCapacity(2, 1024)
	ix.Insert(2, c, t0)
	ix.Remove(2)
	if ix.Len() != 0 {
		t.Errorf("%d blocks left", ix.Len())
	}
	ix.Insert(2, c, t0)
	if got, want := match(ix, c)[2], int32(300_000); got > want || got < want-want/blockGrowth {
		t.Errorf("a recycled slot holds %d bytes of %d", got, want)
	}
}

func TestIndexStaysWithinItsBytes(t *testing.T) {
	ix := NewIndex(2 << 20)
	for i := range uint64(600) {
		c := whole(1, text(i, 20_000))
		slot := int(i % 3)
		ix.Insert(slot, c, t0)
		if got := ix.Bytes(); got > 2<<20 {
			t.Fatalf("%d bytes after %d prompts", got, i)
		}
		if got := match(ix, c)[slot]; got < 19_000 {
			t.Fatalf("the newest prompt matches %d bytes only", got)
		}
	}
	if ix.Len() < ix.maxEntries*3/4 {
		t.Errorf("%d blocks, although %d fit", ix.Len(), ix.maxEntries)
	}
}

func TestIndexIgnoresSlotsOutOfRange(t *testing.T) {
	ix := NewIndex(0)
	c := whole(1, text(1, 1000))
	for _, slot := range []int{-1, maxSlots, 1 << 40} {
		ix.Insert(slot, c, t0)
		ix.SetCapacity(slot, 1)
		ix.Remove(slot)
	}
	if ix.Len() != 0 {
		t.Errorf("%d blocks", ix.Len())
	}
}

func TestIndexFromManyGoroutines(t *testing.T) {
	ix := NewIndex(1 << 20)
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 3))
			var m Match
			for range 300 {
				c := whole(1, text(r.Uint64N(20), 1+r.IntN(50_000)))
				slot := r.IntN(6)
				switch r.IntN(8) {
				case 0:
					ix.Remove(slot)
				case 1:
					ix.SetCapacity(slot, r.Int64N(100_000))
				case 2, 3, 4:
					ix.Insert(slot, c, t0)
				default:
					ix.Match(c, t0, &m)
				}
			}
		})
	}
	wg.Wait()
	ix.check(t)
}

// check verifies all that must always be true of an index.
func (ix *Index) check(t *testing.T) {
	t.Helper()
	live := 0
	counts := map[uint64]int{}
	for slot := range ix.pods {
		p := &ix.pods[slot]
		n, bytes, last := 0, int64(0), uint32(0)
		for id := p.newest; id != 0; id = ix.entries.at(id).older {
			e := ix.entries.at(id)
			if int(e.slot) != slot || e.newer != last {
				t.Fatalf("entry %d of pod %d is of pod %d, newer %d, want %d", id, slot, e.slot, e.newer, last)
			}
			if ix.held.find(&ix.entries, podKey(e.hash, e.slot)) != id {
				t.Fatalf("entry %d is not found by block and pod", id)
			}
			counts[e.hash]++
			n, bytes, last = n+1, bytes+int64(e.bytes), id
		}
		if n != p.entries || bytes != p.bytes || p.oldest != last {
			t.Fatalf("pod %d: %d entries, %d bytes, oldest %d; counted %d, %d, %d", slot, p.entries, p.bytes, p.oldest, n, bytes, last)
		}
		if p.capacity > 0 && p.bytes > p.capacity {
			t.Fatalf("pod %d: %d bytes above its capacity %d", slot, p.bytes, p.capacity)
		}
		if p.oldest != 0 && p.stale != ix.entries.at(p.oldest).used {
			t.Fatalf("pod %d: its oldest block was used at %d, not %d", slot, ix.entries.at(p.oldest).used, p.stale)
		}
		live += n
	}
	if live != ix.live || live > ix.maxEntries {
		t.Fatalf("%d live of %d, counted %d", ix.live, ix.maxEntries, live)
	}
	for hash, want := range counts {
		n, prev := 0, uint32(0)
		for id := ix.first.find(&ix.entries, hash); id != 0; id = ix.entries.at(id).next {
			if ix.entries.at(id).prev != prev {
				t.Fatalf("block %x: broken list", hash)
			}
			n, prev = n+1, id
		}
		if n != want || ix.countLocked(hash) != want {
			t.Fatalf("block %x: %d pods listed, %d counted, want %d", hash, n, ix.countLocked(hash), want)
		}
	}
	if used := usedCells(&ix.first); used != len(counts) {
		t.Fatalf("%d blocks in the set, want %d", used, len(counts))
	}
	if used := usedCells(&ix.held); used != live {
		t.Fatalf("%d entries in the set, want %d", used, live)
	}
}

func usedCells(s *set) int {
	n := 0
	for i := range s.shards {
		for _, id := range s.shards[i].cells {
			if id != 0 {
				n++
			}
		}
	}
	return n
}
