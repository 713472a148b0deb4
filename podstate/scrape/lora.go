package scrape

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"time"
)

// lora finds the adapters that hold a slot in vLLM's lora_requests_info.
//
// The gauge has one series for each combination of adapters that ever ran; none
// is removed. Its value is the unix time of the combination, so that the newest
// is the present one, and of several newest (some servers write whole seconds)
// the union. With several API servers the times of equal combinations are added
// up, and each server knows its own adapters only: then the present ones are
// those in the series that have changed since the last reading. The label of
// waiting adapters is not read: vLLM writes the running ones there too.
type lora struct {
	now, last []loraSeries
	sorted    bool     // last is in the order of keys
	names     []byte   // what loraSeries.from and to point into
	seen      [][]byte // scratch of current
	adapters  []string // the result of the last reading
}

type loraSeries struct {
	key      uint64 // of the names
	value    float64
	from, to int
}

func (l *lora) begin() {
	l.now, l.last, l.sorted = l.last[:0], l.now, false
	l.names = l.names[:0]
}

func (l *lora) add(value float64, names []byte) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	from := len(l.names)
	l.names = append(l.names, names...)
	l.now = append(l.now, loraSeries{maphash.Bytes(hashSeed, names), value, from, len(l.names)})
}

// current returns the adapters. The slice is shared with later results and must
// not be changed.
func (l *lora) current(now time.Time) []string {
	unix := float64(now.Unix())
	limit := unix + 24*3600
	newest, sums := 0.0, false
	for _, s := range l.now {
		sums = sums || s.value > limit
		newest = max(newest, l.time(s.value, unix))
	}
	l.seen = l.seen[:0]
	changed := false
	for i, s := range l.now {
		present := l.time(s.value, unix) == newest
		if sums && len(l.last) > 0 {
			present = l.lastValue(i, s.key) != s.value
		}
		if present {
			changed = true
			l.collect(l.names[s.from:s.to])
		}
	}
	if !changed {
		return l.adapters // nothing has run since the last reading
	}
	slices.SortFunc(l.seen, bytes.Compare)
	l.seen = slices.CompactFunc(l.seen, bytes.Equal)
	if !slices.EqualFunc(l.adapters, l.seen, func(a string, b []byte) bool { return a == string(b) }) {
		l.adapters = make([]string, len(l.seen))
		for i, name := range l.seen {
			l.adapters[i] = string(name)
		}
	}
	return l.adapters
}

// time takes a sum of times apart: it is their mean.
func (l *lora) time(value, now float64) float64 {
	if n := math.Round(value / max(now, 1)); n > 1 {
		return value / n
	}
	return value
}

// lastValue is what the series with this key said at the last reading.
func (l *lora) lastValue(i int, key uint64) float64 {
	if i < len(l.last) && l.last[i].key == key { // the order of the text is stable
		return l.last[i].value
	}
	if !l.sorted {
		slices.SortFunc(l.last, func(a, b loraSeries) int { return cmp.Compare(a.key, b.key) })
		l.sorted = true
	}
	if at, ok := slices.BinarySearchFunc(l.last, key, func(s loraSeries, key uint64) int { return cmp.Compare(s.key, key) }); ok {
		return l.last[at].value
	}
	return math.NaN()
}

// maxNames bounds how many names of adapters are looked at; slots are few.
const maxNames = 1024

// collect adds names that are separated by commas to seen.
func (l *lora) collect(names []byte) {
	for len(names) > 0 && len(l.seen) < maxNames {
		name, rest, _ := bytes.Cut(names, []byte{','})
		names = rest
		if name = bytes.TrimSpace(name); len(name) > 0 {
			l.seen = append(l.seen, name)
		}
	}
}
