package scorers

import (
	"fmt"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// A pick through the table, as the server does it: 50 requests a pod in flight,
// a tenth of the pods hold a part of the prompt.
func BenchmarkPick(b *testing.B) {
	now := time.Now() // with the monotonic clock, which is faster to subtract
	for _, name := range Profiles() {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/pods=%d", name, n), func(b *testing.B) {
				p, err := NewProfile(name, nil)
				if err != nil {
					b.Fatal(err)
				}
				t := table(n, podstate.Stats{
					Known:    podstate.FieldWaiting | podstate.FieldRunning | podstate.FieldKVUsage | podstate.FieldKVTokens,
					KVTokens: 400_000,
				}, now)
				cached := make([]int32, n)
				for i := 0; i < n; i += 10 {
					cached[i] = int32(100 + i)
				}
				req := &Request{Tokens: 2000, Output: 200}
				ask := &podstate.Ask{Now: now, Tokens: 2000, Output: 200, Cached: cached}
				choose := func(c []podstate.Candidate) (int, int) { return p.Choose(req, c) }
				open := make([]*podstate.Reservation, 50*n)
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					now = now.Add(time.Millisecond)
					req.Seed += 0x9e3779b97f4a7c15
					req.Key = req.Seed >> 60
					ask.Now = now
					r, err := t.PickAndReserve(ask, choose)
					if err != nil {
						b.Fatal(err)
					}
					if old := open[i%len(open)]; old != nil {
						old.FirstToken(now)
						old.Release(now)
					}
					open[i%len(open)] = r
					i++
				}
			})
		}
	}
}
