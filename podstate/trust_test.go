package podstate

import (
	"math"
	"testing"
	"time"
)

const load = FieldRunning | FieldWaiting

// watched is a table of one pod with a clock.
type watched struct {
	t     *testing.T
	table *Table
	pod   *Pod
	now   time.Time
}

func watch1(t *testing.T) *watched {
	w := &watched{t: t, table: NewTable(), now: t0}
	pods, _ := w.table.SetPods(specs(1))
	w.pod = pods[0]
	return w
}

func (w *watched) report(s Stats) {
	s.At, s.Every = w.now, time.Second
	w.table.SetStats(w.pod, &s, w.table.BeginScrape(w.pod))
}

func (w *watched) send(n int, ask Ask) (open []*Reservation) {
	ask.Now = w.now
	for range n {
		open = append(open, reserve(w.t, w.table, ask, 0))
	}
	return open
}

func (w *watched) see() Candidate { return w.table.Snapshot(w.now)[0] }

func TestTrustFallsWithAge(t *testing.T) {
	w := watch1(t)
	if c := w.see(); c.Trust != 0 || !c.Silent() {
		t.Errorf("never scraped: trust %v, silent %v", c.Trust, c.Silent())
	}
	w.report(Stats{Known: FieldKVTokens | FieldMaxModelLen})
	if c := w.see(); c.Trust != 0 || c.Silent() {
		t.Errorf("scraped without gauges: trust %v, silent %v", c.Trust, c.Silent())
	}
	w.report(Stats{Known: load})
	for _, tt := range []struct{ seconds, trust float64 }{{0, 1}, {3, 1}, {6.5, 0.5}, {10, 0}, {1000, 0}} {
		w.now = t0.Add(time.Duration(1e9 * tt.seconds))
		if c := w.see(); math.Abs(c.Trust-tt.trust) > 1e-9 || c.Silent() != (tt.trust == 0) {
			t.Errorf("after %v periods: trust %v, silent %v; want %v", tt.seconds, c.Trust, c.Silent(), tt.trust)
		}
	}
}

func TestUnseen(t *testing.T) {
	tests := []struct {
		name          string
		before, after int // requests sent before and after the scrape began
		stats         Stats
		want          int
	}{
		{"those sent since the scrape", 3, 2, Stats{Known: load, Running: 2, Waiting: 1}, 2},
		{"those for which the gauges have no room", 3, 0, Stats{Known: load, Running: 1}, 2},
		{"not twice", 3, 2, Stats{Known: load, Running: 1}, 4},
		{"none if others' fill the gauges", 3, 0, Stats{Known: load, Running: 50}, 0},
		{"none if the load endpoint has seen them", 3, 0, Stats{Known: load | FieldLoad, Load: 3}, 0},
		{"by the load endpoint alone", 3, 0, Stats{Known: FieldLoad, Load: 1}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := watch1(t)
			w.send(tt.before, Ask{})
			mark := w.table.BeginScrape(w.pod)
			w.send(tt.after, Ask{})
			tt.stats.At = w.now
			w.table.SetStats(w.pod, &tt.stats, mark)
			if got := w.see().Unseen; got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	w := watch1(t)
	w.send(3, Ask{})
	w.report(Stats{Known: load, Running: 3})
	w.now = w.now.Add(time.Minute)
	if got := w.see().Unseen; got != 3 {
		t.Errorf("after a minute without a scrape %d of 3 are unseen, want all", got)
	}
}

func TestHiddenAndFrozen(t *testing.T) {
	const counters = load | FieldPromptTokens
	second := func(w *watched) { w.now = w.now.Add(time.Second) }
	finish := func(w *watched, n int) {
		for _, r := range w.send(n, Ask{Output: 10}) {
			r.FirstToken(w.now)
			r.Succeeded(w.now)
			r.Release(w.now)
		}
	}
	tests := []struct {
		name string
		do   func(w *watched)
		want float64
	}{
		{"few requests may be on their way", func(w *watched) { w.send(crowd-1, Ask{}); second(w); w.report(Stats{Known: load}) }, 1},
		{"many are hidden after a step", func(w *watched) { w.send(crowd, Ask{}); second(w); w.report(Stats{Known: load}) }, 0},
		{"not before", func(w *watched) {
			w.send(crowd, Ask{})
			w.now = w.now.Add(100 * time.Millisecond)
			w.report(Stats{Known: load})
		}, 1},
		{"a gauge that says something hides nothing", func(w *watched) { w.send(crowd, Ask{}); second(w); w.report(Stats{Known: load, Running: 1}) }, 1},
		{"the load endpoint vouches for idle gauges", func(w *watched) {
			w.send(crowd, Ask{})
			second(w)
			w.report(Stats{Known: load | FieldLoad, Load: crowd})
		}, 1},
		{"hidden until the next scrape says more", func(w *watched) {
			w.send(crowd, Ask{})
			second(w)
			w.report(Stats{Known: load})
			second(w)
			w.report(Stats{Known: load, Running: crowd})
		}, 1},
		{"counters that answers do not move", func(w *watched) {
			for range 4 {
				w.report(Stats{Known: counters, PromptTokens: 7})
				finish(w, 2)
				second(w)
			}
			w.report(Stats{Known: counters, PromptTokens: 7})
		}, 0},
		{"without counters nothing can freeze", func(w *watched) {
			for range 5 {
				w.report(Stats{Known: load})
				finish(w, 2)
				second(w)
			}
		}, 1},
		{"requests that generate nothing move nothing", func(w *watched) {
			for range 5 {
				w.report(Stats{Known: counters, PromptTokens: 7})
				for _, r := range w.send(2, Ask{Whole: true}) {
					r.FirstToken(w.now)
					r.Release(w.now)
				}
				second(w)
			}
		}, 1},
		{"nor do those that were refused", func(w *watched) {
			for range 5 {
				w.report(Stats{Known: counters, PromptTokens: 7})
				for _, r := range w.send(2, Ask{Output: 10}) {
					r.Refused()
					r.Release(w.now)
				}
				second(w)
			}
		}, 1},
		{"one movement is enough", func(w *watched) {
			for i := range 5 {
				w.report(Stats{Known: counters, PromptTokens: float64(i / 4)})
				finish(w, 2)
				second(w)
			}
		}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := watch1(t)
			w.report(Stats{Known: load})
			second(w)
			tt.do(w)
			if got := w.see().Trust; got != tt.want {
				t.Errorf("got trust %v, want %v", got, tt.want)
			}
		})
	}
}

// What hides requests must not be learned from.
func TestHiddenRequestsStayInTheQueue(t *testing.T) {
	w := watch1(t)
	w.report(Stats{Known: load, Running: 1})
	w.send(10, Ask{Tokens: 20_000})
	w.now = w.now.Add(time.Second)
	w.report(Stats{Known: load})
	if got := w.see(); got.Charge.Ahead != 200_000 {
		t.Errorf("%v of 200,000 tokens are left ahead, after a scrape that saw nothing", got.Charge.Ahead)
	}
}

func TestRungOf(t *testing.T) {
	fresh, old, ours, nothing := Candidate{Trust: 1}, Candidate{Trust: 0.5}, Candidate{Answered: true}, Candidate{}
	down := Candidate{Health: Health{Out: OutDown}}
	tests := []struct {
		name string
		pods []Candidate
		want Rung
	}{
		{"no pod", nil, RungHash},
		{"all fresh", []Candidate{fresh, fresh}, RungFresh},
		{"half of them", []Candidate{fresh, fresh, nothing, nothing}, RungFresh},
		{"fewer", []Candidate{fresh, old, nothing, nothing}, RungStale},
		{"own history", []Candidate{fresh, ours, nothing, nothing}, RungInFlight},
		{"pods that are out do not count", []Candidate{fresh, down, down}, RungFresh},
		{"unless all are", []Candidate{down, down}, RungHash},
		{"too little of it", []Candidate{ours, nothing, nothing}, RungHash},
	}
	for _, tt := range tests {
		if got := RungOf(tt.pods); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
