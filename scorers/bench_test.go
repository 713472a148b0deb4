package scorers

import (
	"fmt"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// A pick through the table with what happens between two, as the server does it:
// each pod gets a request a second, its first token comes after a quarter of a
// second and its end after 50, and each pod is scraped once a second. A tenth of
// the pods hold a part of the prompt.
func BenchmarkPick(b *testing.B) {
	for _, name := range Profiles() {
		for _, n := range []int{16, 100, 1000} {
			b.Run(fmt.Sprintf("%s/pods=%d", name, n), func(b *testing.B) {
				p, err := NewProfile(name, nil)
				if err != nil {
					b.Fatal(err)
				}
				now := time.Now() // with the monotonic clock, which is faster to subtract
				stats := podstate.Stats{
					Known:    podstate.FieldWaiting | podstate.FieldRunning | podstate.FieldKVUsage | podstate.FieldKVTokens,
					KVTokens: 400_000,
				}
				t := table(n, stats, now)
				pods := t.Pods()
				cached := make([]int32, n)
				for i := 0; i < n; i += 10 {
					cached[i] = int32(100 + i)
				}
				req := &Request{Tokens: 2000, Output: 200}
				ask := &podstate.Ask{Tokens: 2000, Output: 200, Cached: cached}
				choose := func(c []podstate.Candidate) (int, int) { return p.Choose(req, c) }
				open := make([]*podstate.Reservation, 50*n)
				scraped := make([]podstate.Stats, 2*n) // a table keeps the last one
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					now = now.Add(time.Second / time.Duration(n))
					req.Seed += 0x9e3779b97f4a7c15
					req.Key = req.Seed >> 60
					ask.Now = now
					r, err := t.PickAndReserve(ask, choose)
					if err != nil {
						b.Fatal(err)
					}
					if old := open[i%len(open)]; old != nil {
						old.Release(now)
					}
					open[i%len(open)] = r
					if i >= n/4 {
						open[(i-n/4)%len(open)].FirstToken(now)
					}
					s := &scraped[i%(2*n)]
					*s = stats
					s.At, s.Every, s.Running = now, time.Second, float64(min(i/n, 50))
					t.SetStats(pods[i%n], s, t.BeginScrape(pods[i%n]))
				}
			})
		}
	}
}
