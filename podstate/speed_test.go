package podstate

import (
	"math"
	"testing"
	"time"
)

// unseen serves one request after the other on two pods of these speeds, in
// steps of 10 base, without a first token ever seen.
func unseen(t *testing.T, table *Table, speeds [2]float64, counters bool, n int) (now time.Time) {
	t.Helper()
	now = t0
	var prompts, answers, free [2]float64
	pods := table.Pods()
	scrape := func() {
		for i, p := range pods {
			mark := table.BeginScrape(p)
			s := &Stats{At: now, Every: time.Second, Known: FieldRunning | FieldWaiting, Running: 1}
			if counters {
				s.Known |= FieldPromptTokens | FieldGenerationTokens
				s.PromptTokens, s.GenerationTokens = prompts[i], answers[i]
			}
			table.SetStats(p, s, mark)
		}
	}
	for k := range n {
		tokens := 1000 + 500*(k%3)
		var open [2]*Reservation
		for i := range pods {
			open[i] = reserve(t, table, Ask{Now: now, Tokens: tokens, Output: 20}, i)
			free[i] = speeds[i] * (float64(tokens) + 20*100)
			prompts[i] += float64(tokens)
			answers[i] += 20
		}
		start := now
		now = start.Add(time.Duration(1e9 * min(free[0], free[1])))
		i := 0
		if free[1] < free[0] {
			i = 1
		}
		open[i].Release(now)
		now = start.Add(time.Duration(1e9 * max(free[0], free[1])))
		open[1-i].Release(now)
		scrape()
		now = now.Add(time.Second)
	}
	return now
}

func TestSpeedIsLearnedWithoutFirstTokens(t *testing.T) {
	for _, tt := range []struct {
		name     string
		counters bool
		within   float64 // factor
	}{
		{"from counters", true, 1.3},
		{"from the ends of answers", false, 1.3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := NewTable()
			table.SetPods(specs(2))
			speeds := [2]float64{5e-5, 6e-4}
			now := unseen(t, table, speeds, tt.counters, 150)
			for i, c := range table.Snapshot(now) {
				// A request as they came: what cannot be told apart, prompts and
				// answers, is right in sum.
				got := 20*c.Speed.Base + c.Speed.Prefill(1500, 0)
				want := speeds[i] * (1500 + 20*100)
				if got > want*tt.within || got < want/tt.within {
					t.Errorf("pod %d: a request is predicted to take %.3f s, want %.3f within a factor of %v", i, got, want, tt.within)
				}
			}
		})
	}
}

func TestEqualPodsAreTakenForEqual(t *testing.T) {
	table, now := NewTable(), t0
	table.SetPods(specs(3))
	for _, p := range table.Pods() {
		table.SetStats(p, &Stats{At: now, Known: FieldKVTokens, KVTokens: 300_000 + 100*p.Slot}, 0)
	}
	serve := func(slot int, seconds float64) {
		r := reserve(t, table, Ask{Now: now, Tokens: 2000}, slot)
		now = now.Add(time.Duration(1e9 * seconds))
		r.FirstToken(now)
		r.Release(now)
		now = now.Add(time.Second)
	}
	for range 60 { // a tenth apart: chance; three times: another GPU
		serve(0, 0.20)
		serve(1, 0.22)
		serve(2, 0.66)
	}
	predict := func(slot int) float64 {
		s := table.Snapshot(now)[slot].Speed
		return s.Base + s.Prefill(2000, 0)
	}
	// The class's own estimate moves with its last samples, so ratios count.
	if r := predict(1) / predict(0); r > 1.1 {
		t.Errorf("pods that are a tenth apart are predicted %.2f apart", r)
	}
	if r := predict(2) / predict(0); r < 2 {
		t.Errorf("a pod that is three times slower is predicted %.2f times slower", r)
	}
}

func TestNewPodStartsAsItsKind(t *testing.T) {
	table, now := NewTable(), t0
	list := specs(3)
	list[0].Labels = map[string]string{"nvidia.com/gpu.product": "NVIDIA-H100"}
	list[1].Labels = map[string]string{"nvidia.com/gpu.product": "NVIDIA-A10G"}
	list[2].Labels = map[string]string{"nvidia.com/gpu.product": "NVIDIA-A10G"}
	table.SetPods(list[:2])
	for slot, seconds := range []float64{0.05, 0.6} {
		for range 20 {
			r := reserve(t, table, Ask{Now: now, Tokens: 2000}, slot)
			now = now.Add(time.Duration(1e9 * seconds))
			r.FirstToken(now)
			r.Release(now)
			now = now.Add(time.Second)
		}
	}
	table.SetPods(list)
	s := table.Snapshot(now)[2].Speed
	if got := s.Base + s.Prefill(2000, 0); math.Abs(got-0.6) > 0.12 {
		t.Errorf("a new A10G is predicted to take %.3f s for a prompt that takes the other 0.6", got)
	}
}

func TestFullBatchMakesWait(t *testing.T) {
	table, now := NewTable(), t0
	table.SetPods(specs(1))
	p := table.Pods()[0]
	table.SetStats(p, &Stats{At: now, Every: time.Second, Known: FieldMaxRunning, MaxRunning: 4}, 0)
	for range 60 { // answers take 2 s
		r := reserve(t, table, Ask{Now: now, Tokens: 1}, 0)
		r.FirstToken(now)
		now = now.Add(2 * time.Second)
		r.Release(now)
	}
	for range 3 {
		reserve(t, table, Ask{Now: now, Tokens: 1}, 0).FirstToken(now)
	}
	if got := table.Snapshot(now)[0].Wait; got != 0 {
		t.Errorf("one place is free, but the wait is %.2f s", got)
	}
	for range 2 {
		reserve(t, table, Ask{Now: now, Tokens: 1}, 0).FirstToken(now)
	}
	if got := table.Snapshot(now)[0].Wait; math.Abs(got-1) > 0.1 {
		t.Errorf("two of five must end, one of four every half second: got a wait of %.2f s, want 1", got)
	}
}

func TestFillCountsWhatIsComing(t *testing.T) {
	table, now := NewTable(), t0
	table.SetPods(specs(1))
	p := table.Pods()[0]
	table.SetStats(p, &Stats{At: now, Every: time.Second, Known: FieldKVUsage | FieldKVTokens | FieldRunning | FieldWaiting,
		KVUsage: 0.4, KVTokens: 10_000, Running: 2}, 0)
	if got := table.Snapshot(now)[0].Fill; math.Abs(got-0.4) > 1e-9 {
		t.Errorf("nothing is coming: got %.3f, want 0.4", got)
	}
	for range 60 {
		reserve(t, table, Ask{Now: now, Tokens: 744}, 0).Release(now)
	}
	for range 3 {
		reserve(t, table, Ask{Now: now, Tokens: 744}, 0)
	}
	if got := table.Snapshot(now)[0].Fill; math.Abs(got-0.7) > 0.01 {
		t.Errorf("three prompts of 744 tokens and their answers are coming: got %.3f, want 0.7", got)
	}
}

// The first long prompts after many short ones teach how attention grows, and
// spoil nothing of what the short ones have taught.
func TestLongPromptsTeachTheSquare(t *testing.T) {
	actual := Speed{Base: 0.015, Token: 0.7e-3, Square: 0.16e-6} // of a real vLLM server on a CPU
	for _, short := range []int{0, 40, 400} {
		table, now := NewTable(), t0
		table.SetPods(specs(1))
		ask := func(tokens int) (predicted float64) {
			s := table.Snapshot(now)[0].Speed
			r := reserve(t, table, Ask{Now: now, Tokens: tokens, Output: 100}, 0)
			now = now.Add(time.Duration(1e9 * (actual.Base + actual.Prefill(tokens, 0))))
			r.FirstToken(now)
			now = now.Add(time.Second)
			r.Release(now)
			return (s.Base + s.Prefill(tokens, 0)) / (actual.Base + actual.Prefill(tokens, 0))
		}
		for i := range short {
			ask(100 + i%5*100)
		}
		for range 6 {
			ask(8000)
		}
		if got := ask(8000); got < 0.7 || got > 1.4 {
			t.Errorf("after %d short prompts and six long ones, a long one is predicted to take %.2f times as long as it does", short, got)
		}
		if got := ask(300); short > 0 && (got < 0.7 || got > 1.4) {
			t.Errorf("after %d short prompts and seven long ones, a short one is predicted to take %.2f times as long as it does", short, got)
		}
	}
}
