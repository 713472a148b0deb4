package replay

import (
	"fmt"
	"testing"
)

// What a line costs to write and to read, by the number of pods.
func BenchmarkLine(b *testing.B) {
	for _, n := range []int{16, 1000} {
		w := newWorld(1)
		for len(w.specs) < n {
			w.join()
		}
		for _, p := range w.table.Pods() {
			w.table.SetStats(p, w.stats(), 0)
		}
		d := w.decide(b, "latency", nil, newProfile(b, "latency", nil))
		line := d.Append(nil, nil)
		b.Run(fmt.Sprintf("write/pods=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				line = d.Append(line[:0], nil)
			}
			b.ReportMetric(float64(len(line)), "bytes")
		})
		b.Run(fmt.Sprintf("read/pods=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
