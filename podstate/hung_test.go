package podstate

import (
	"testing"
	"time"
)

func TestHang(t *testing.T) {
	const counters = load | FieldPromptTokens
	text := Ask{Tokens: 100, Output: 10}
	second := func(w *watched) { w.now = w.now.Add(time.Second) }
	// still lets time go by with scrapes that say nothing new.
	still := func(w *watched, seconds int) {
		for range seconds {
			second(w)
			w.report(Stats{Known: counters, PromptTokens: 7})
		}
	}
	answer := func(w *watched, n int) {
		for _, r := range w.send(n, text) {
			r.FirstToken(w.now)
			r.Succeeded(w.now)
			r.Release(w.now)
		}
	}
	tests := []struct {
		name string
		do   func(w *watched)
		out  bool
	}{
		{"a text that is overdue", func(w *watched) { w.send(1, text); still(w, 7) }, true},
		{"texts that were given up one after the other", func(w *watched) {
			for range 4 {
				r := w.send(1, text)[0]
				still(w, 2)
				r.Release(w.now)
			}
		}, true},
		{"not in the pauses between them", func(w *watched) {
			for range 4 {
				r := w.send(1, text)[0]
				still(w, 1)
				r.Release(w.now)
				still(w, 10)
			}
		}, false},
		{"not before its time", func(w *watched) { w.send(1, text); still(w, 4) }, false},
		{"later if more is ahead", func(w *watched) { w.send(1, Ask{Tokens: 50_000, Output: 10}); still(w, 15) }, false},
		{"not if nothing is owed", func(w *watched) { still(w, 60) }, false},
		{"nor if no text was asked for", func(w *watched) { w.send(1, Ask{Tokens: 100}); still(w, 60) }, false},
		{"nor after its first token", func(w *watched) { w.send(1, text)[0].FirstToken(w.now); still(w, 60) }, false},
		{"nor after its end", func(w *watched) { w.send(1, text)[0].Release(w.now); still(w, 60) }, false},
		{"nor if it went to another pod", func(w *watched) {
			r := w.send(1, text)[0]
			r.Failed(w.now)
			still(w, 60)
		}, false},
		{"nor if the engine moves", func(w *watched) {
			w.send(1, text)
			for i := range 30 {
				second(w)
				w.report(Stats{Known: counters, PromptTokens: float64(i)})
			}
		}, false},
		{"nor if others get first tokens", func(w *watched) {
			w.send(1, text)
			for range 30 {
				answer(w, 1)
				still(w, 1)
			}
		}, false},
		{"nor if metrics are known to be frozen", func(w *watched) {
			still(w, 1)
			answer(w, 3)
			w.send(1, text)
			still(w, 30)
		}, false},
		{"nor if it counts nothing", func(w *watched) {
			w.send(1, text)
			for range 30 {
				second(w)
				w.report(Stats{Known: load, Running: 1})
			}
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := watch1(t)
			w.table.SetPods(specs(3)) // one of three may be ejected
			w.report(Stats{Known: counters, PromptTokens: 7})
			tt.do(w)
			// The ejection may be over, but it has been one.
			if got := w.pod.health.ejections > 0; got != tt.out {
				t.Errorf("ejected: %v, want %v", got, tt.out)
			}
		})
	}
}

func TestClientsGiveUp(t *testing.T) {
	text := Ask{Tokens: 100, Output: 10}
	tests := []struct {
		name   string
		after  time.Duration
		do     func(w *watched, r *Reservation)
		failed int
	}{
		{"long after its text was due", 20 * time.Second, nil, 1},
		{"before that", 2 * time.Second, nil, 0},
		{"after its first token", 20 * time.Second, func(w *watched, r *Reservation) { r.FirstToken(w.now) }, 0},
		{"after headers that are as good as it gets", 20 * time.Second, func(w *watched, r *Reservation) { r.Succeeded(w.now) }, 0},
		{"while others are answered", 20 * time.Second, func(w *watched, _ *Reservation) {
			w.now = w.now.Add(time.Second)
			other := w.send(1, text)[0]
			other.Succeeded(w.now)
			other.Release(w.now)
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := watch1(t)
			r := w.send(1, text)[0]
			if tt.do != nil {
				tt.do(w, r)
			}
			w.now = w.now.Add(tt.after)
			r.Release(w.now)
			if got := w.pod.health.failures; got != tt.failed {
				t.Errorf("%d failures, want %d", got, tt.failed)
			}
		})
	}
}
