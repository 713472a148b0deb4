package podstate

import (
	"testing"
	"time"
)

func TestWhatOthersSend(t *testing.T) {
	table := NewTable()
	pods, _ := table.SetPods(specs(2))
	now := t0
	scrape := func(p *Pod, running, waiting float64) {
		mark := table.BeginScrape(p)
		table.SetStats(p, &Stats{At: now, Every: time.Second, Known: FieldRunning | FieldWaiting, Running: running, Waiting: waiting}, mark)
	}
	want := func(rule string, slot int, foreign float64, wait bool) {
		t.Helper()
		c := table.Snapshot(now)[slot]
		if c.Foreign != foreign || c.Wait > 0 != wait {
			t.Errorf("%s: got %v foreign requests and a wait of %v, want %v, %v", rule, c.Foreign, c.Wait, foreign, wait)
		}
	}

	want("nothing is known", 0, 0, false)
	scrape(pods[0], 8, 4)
	scrape(pods[1], 0, 0)
	want("a pod that was busy before we came", 0, 12, true)
	want("and an idle one", 1, 0, false)

	var ours []*Reservation
	for range 5 {
		ours = append(ours, reserve(t, table, Ask{Now: now, Tokens: 100}, 1))
	}
	now = now.Add(time.Second)
	scrape(pods[0], 8, 4)
	scrape(pods[1], 5, 0)
	want("what we have sent is not of others", 1, 0, false)
	for _, r := range ours {
		r.Release(now)
	}
	now = now.Add(time.Second)
	scrape(pods[0], 8, 0)
	scrape(pods[1], 5, 0)
	want("a gauge may trail what we had there", 1, 0, false)
	want("nobody waits", 0, 8, false)
	now = now.Add(time.Second)
	scrape(pods[1], 5, 0)
	want("but it does not trail for ever", 1, 5, false)

	now = now.Add(time.Minute)
	scrape(pods[0], 8, 0)
	want("of a pod that is silent, the mean of the others is assumed", 1, 8, false)
}
