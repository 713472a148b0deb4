package prefix

import (
	"fmt"
	"testing"
)

var sizes = []int{4 << 10, 200 << 10, 512 << 10}

func BenchmarkChain(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			p := text(1, size)
			spans := []Span{{0, size / 3}, {size / 3, size}}
			var dst []Block
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				dst = Chain(dst[:0], 7, p, spans)
			}
		})
	}
}

// All prompts share the first tenth, which all pods hold; half of them are the
// next turn of a prompt that one pod holds.
func BenchmarkMatchAndInsert(b *testing.B) {
	for _, pods := range []int{16, 1000} {
		for _, size := range sizes {
			b.Run(fmt.Sprintf("pods=%d/%dKB", pods, size>>10), func(b *testing.B) {
				ix := NewIndex(256 << 20)
				p := text(1, size)
				var chains [64][]Block
				for i := range chains {
					copy(p[size/10:], text(uint64(i/2), size-size/10))
					chains[i] = whole(7, p)
					if i%2 == 1 {
						chains[i] = chains[i][:len(chains[i])*4/5]
					}
				}
				for slot := range pods {
					ix.Insert(slot, chains[0][:len(chains[0])/10], t0)
				}
				var m Match
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					c := chains[i%len(chains)]
					ix.Match(c, t0, &m)
					ix.Insert(i*7%pods, c, t0)
					if i++; i%(50*len(chains)) == 0 {
						b.StopTimer()
						for slot := range pods {
							ix.Remove(slot)
							ix.Insert(slot, chains[0][:len(chains[0])/10], t0)
						}
						b.StartTimer()
					}
				}
			})
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, pods := range []int{16, 1000} {
		b.Run(fmt.Sprintf("pods=%d/200KB", pods), func(b *testing.B) {
			ix := NewIndex(256 << 20)
			c := whole(7, text(1, 200<<10))
			for slot := range pods {
				ix.Insert(slot, c[:len(c)/10], t0)
			}
			ix.Insert(pods/2, c, t0)
			b.RunParallel(func(pb *testing.PB) {
				var m Match
				for pb.Next() {
					ix.Match(c, t0, &m)
				}
			})
		})
	}
}

func BenchmarkBytesPerEntry(b *testing.B) {
	for _, sharing := range []uint64{1, 16} {
		b.Run(fmt.Sprintf("pods=%d", sharing), func(b *testing.B) {
			var per float64
			for b.Loop() {
				ix := NewIndex(1 << 30)
				for i := range uint64(1600 / sharing) {
					c := whole(7, text(i, 100<<10))
					for slot := range sharing {
						ix.Insert(int(slot), c, t0)
					}
				}
				per = float64(ix.Bytes()) / float64(ix.Len())
			}
			b.ReportMetric(per, "B/entry")
		})
	}
}
