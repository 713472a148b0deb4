package scrape

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

func TestRhythm(t *testing.T) {
	const known = podstate.FieldRunning | podstate.FieldWaiting | podstate.FieldKVUsage
	idlePod := &podstate.Stats{Known: known}
	busy := &podstate.Stats{Known: known, Running: 3}
	queued := &podstate.Stats{Known: known, Running: 3, Waiting: 1}
	full := &podstate.Stats{Known: known, Running: 3, KVUsage: 0.5, KVPeak: 0.9}
	blind := &podstate.Stats{}
	second := time.Second
	tests := []struct {
		name     string
		interval time.Duration
		stats    *podstate.Stats
		sent     bool
		floor    time.Duration
		light    bool
		budget   float64
		want     time.Duration
	}{
		{"a busy pod", second, busy, false, 0, true, 100, second},
		{"a pod that rests", second, idlePod, false, 0, true, 100, 2 * second},
		{"a pod that was just sent to", second, idlePod, true, 0, true, 100, second / 10},
		{"a pod with a queue", second, queued, false, 0, true, 100, second / 10},
		{"a pod whose cache is nearly full", second, full, false, 0, true, 100, second / 10},
		{"a pod inside a long step", second, nil, false, 0, true, 100, second / 10},
		{"a pod that tells nothing does not rest", second, blind, false, 0, true, 100, second},
		{"its engine does not bear it", second, queued, false, second, true, 100, second},
		{"its engine bears half of it", second, queued, false, second / 2, true, 100, second / 2},
		{"its answers are heavy", second, queued, false, 0, false, 100, second},
		{"the budget is spent", second, queued, false, 0, true, 0.5, second},
		{"a long interval", 5 * second, queued, false, 0, true, 100, second / 2},
		{"a long interval is not stretched", 5 * second, idlePod, false, 0, true, 100, 5 * second},
		{"resting keeps the connection", 3 * second, idlePod, false, 0, true, 100, 3200 * time.Millisecond},
		{"a short interval is fast enough", 50 * time.Millisecond, queued, true, 0, true, 100, 50 * time.Millisecond},
		{"a short interval meets the engine's floor", 50 * time.Millisecond, queued, true, second, true, 100, second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := rhythm{interval: tt.interval, budget: NewBudget(tt.budget), sent: 7}
			mark := uint64(7)
			if tt.sent {
				mark++
			}
			if got := r.next(time.Now(), tt.stats, mark, tt.floor, tt.light); got != tt.want {
				t.Errorf("pause %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRhythmAfterFailures(t *testing.T) {
	tests := []struct {
		interval time.Duration
		want     string
	}{
		{time.Second, "[1s 2s 4s 5s 5s]"},
		{100 * time.Millisecond, "[100ms 200ms 400ms 800ms 1.6s]"},
		{10 * time.Second, "[10s 10s 10s 10s 10s]"},
	}
	for _, tt := range tests {
		r := rhythm{interval: tt.interval, budget: NewBudget(1)}
		var got []time.Duration
		for range 5 {
			got = append(got, r.failed())
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("at %v: %v, want %s", tt.interval, got, tt.want)
		}
		r.next(time.Now(), nil, 0, 0, false)
		if again := r.failed(); again != tt.interval {
			t.Errorf("at %v: %v after a success, want it to begin anew", tt.interval, again)
		}
	}
}

func TestWaitsEndAtSharedMoments(t *testing.T) {
	now := time.Unix(1796059400, 123456789)
	for pause, grid := range map[time.Duration]time.Duration{
		5 * time.Second: 50 * time.Millisecond, time.Second: 50 * time.Millisecond, 100 * time.Millisecond: 20 * time.Millisecond,
		10 * time.Millisecond: 2 * time.Millisecond, 0: 1,
	} {
		for range 1000 {
			d := wait(now, pause)
			if d < pause*9/10-grid/2 || d > pause*11/10+grid/2 {
				t.Fatalf("waits %v for a pause of %v", d, pause)
			}
			if now.Add(d).UnixNano()%int64(grid) != 0 {
				t.Fatalf("a pause of %v ends off its grid of %v", pause, grid)
			}
		}
	}
}

func TestBudgetFillsAtItsRate(t *testing.T) {
	b, now, taken := NewBudget(10), time.Now(), 0
	for range 100 { // ten seconds, ten tries each
		for range 10 {
			if b.take(now) {
				taken++
			}
		}
		now = now.Add(100 * time.Millisecond)
	}
	if taken < 100 || taken > 110 {
		t.Errorf("%d taken in 10 s of 10 a second and a burst of 10", taken)
	}
	if b.take(now.Add(-time.Hour)); b.left < 0 || b.left > 10 {
		t.Errorf("a clock that went back left %v", b.left)
	}
}

// A pod with a queue is scraped ten times as often, and a fleet of them no more
// often than the budget allows.
func TestScraperHurriesWithinItsBudget(t *testing.T) {
	for budget, want := range map[float64][2]int{1000: {80, 120}, 2: {22, 38}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, Config{Engine: "tgi", Budget: NewBudget(budget)}, podA)
			f.set(podA, text("tgi_batch_current_size 3\ntgi_queue_size 4\n"))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if asked, _ := f.take("/metrics"); len(asked) < want[0] || len(asked) > want[1] {
				t.Errorf("%d scrapes in 10 s with a budget of %v, want %v", len(asked), budget, want)
			}
			if every := f.stats(0).Every; every != time.Second {
				t.Errorf("every %v", every)
			}
			f.stop()
		})
	}
}
