package admin

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

// A pick through the table by the default profile: alone, with its decision
// kept, and with it logged, as far as the request waits for that. The log itself
// is written by another goroutine; what a line costs is in BenchmarkLine of
// scorers/replay.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{16, 1000} {
		plain := 0.0
		for _, way := range []string{"plain", "kept", "logged"} {
			b.Run(fmt.Sprintf("%s/pods=%d", way, n), func(b *testing.B) {
				p, err := scorers.NewProfile("latency", nil)
				if err != nil {
					b.Fatal(err)
				}
				var policy Policy = p
				if way != "plain" {
					cfg := LogConfig{}
					if way == "logged" {
						cfg = LogConfig{File: filepath.Join(b.TempDir(), "decisions.jsonl"), Sample: 1, MaxBytes: 1 << 20}
					}
					policy = newRecorder(b, cfg, 1).Watch("a", "latency", nil, p)
				}
				table := podstate.NewTable()
				var specs []podstate.Spec
				for _, c := range candidates(n) {
					specs = append(specs, c.Pod.Spec)
				}
				now := time.Now()
				pods, _ := table.SetPods(specs)
				for _, p := range pods {
					table.SetStats(p, &podstate.Stats{At: now, Known: podstate.FieldWaiting | podstate.FieldKVUsage}, 0)
				}
				req := scorers.Request{Tokens: 1000, Output: 100}
				choose := func(c []podstate.Candidate) (int, int) { return policy.Choose(&req, c) }
				b.ReportAllocs()
				for b.Loop() {
					req.Seed += 0x9e3779b97f4a7c15
					r, err := table.PickAndReserve(&podstate.Ask{Now: now, Tokens: 1000, Output: 100}, choose)
					if err != nil {
						b.Fatal(err)
					}
					r.Release(now)
				}
				each := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
				if way == "plain" {
					plain = each
				} else {
					b.ReportMetric(each/plain, "of_plain")
				}
			})
		}
	}
}
