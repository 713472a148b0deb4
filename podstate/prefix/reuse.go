package prefix

import (
	"math"
	"time"
)

// Whether another copy of a prefix is worth its work depends on how often it
// would be used before it is evicted. So each entry knows how often it is used,
// and each pod how long ago the block was used that it would give up next.

// Ticks are milliseconds since the first insert, and start again after 49 days:
// what was not used for so long looks younger than it is.
func (ix *Index) tick(now time.Time) uint32 {
	return uint32(now.Sub(ix.begin) / time.Millisecond)
}

// since is how many ticks ago that was. Calls that wait for each other come in
// any order, so it may seem to lie a little ahead.
func since(tick, then uint32) uint32 {
	if d := tick - then; d < math.MaxUint32-60_000 {
		return d
	}
	return 0
}

// gapWeight of the last gap in the average: a few gaps, because a prefix is hot
// for a while only.
const gapWeight = 0.3

// use says that the block is used once more.
func (e *entry) use(tick uint32) {
	if e.gap == 0 {
		e.gap = max(1, since(tick, e.used))
	} else {
		e.gap = max(1, uint32(e.average(tick)))
	}
	e.used = tick
}

// average is of the gap between two uses, if the next one were now.
func (e *entry) average(tick uint32) float64 {
	return (1-gapWeight)*float64(e.gap) + gapWeight*float64(since(tick, e.used))
}

// reuse is how many uses a second there are. Of a block that was used once it is
// not known: the next turn of a conversation finds its last one like that.
func (e *entry) reuse(tick uint32) float64 {
	if e.gap == 0 {
		return 0
	}
	return 1000 / e.average(tick)
}

// retention is how long the pod keeps what nobody uses, seconds: the time since
// its oldest block was used, and if there is room, as much more as it will take
// to fill it at this pace.
func (p *podList) retention(tick uint32) float32 {
	if p.capacity == 0 || p.bytes == 0 {
		return 0
	}
	return float32(since(tick, p.stale)) / 1000 * float32(p.capacity) / float32(p.bytes)
}
