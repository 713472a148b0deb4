package podstate

import (
	"math"
	"testing"
	"time"
)

// lane is one pod with an exact speed of 1 ms a token, and a clock.
type lane struct {
	t     *testing.T
	table *Table
	pod   *Pod
	now   time.Time
}

func newLane(t *testing.T, watched bool) *lane {
	l := &lane{t: t, table: NewTable(), now: t0}
	added, _ := l.table.SetPods(specs(1))
	l.pod = added[0]
	exact := rate{Speed: Speed{Base: 0.01, Token: 0.001, Square: 1e-12}, samples: 1000}
	l.pod.speed.own, l.pod.speed.class.rate = exact, exact
	for range 100 {
		l.table.watch.note(watched)
	}
	return l
}

func (l *lane) send(tokens int) *Reservation {
	return reserve(l.t, l.table, Ask{Now: l.now, Tokens: tokens}, 0)
}

func (l *lane) after(d time.Duration) *lane {
	l.now = l.now.Add(d)
	return l
}

func (l *lane) want(rule string, seconds float64) {
	l.t.Helper()
	if got := l.table.Snapshot(l.now)[0].Wait; math.Abs(got-seconds) > 0.02 {
		l.t.Errorf("%s: got a wait of %.3f s, want %.3f", rule, got, seconds)
	}
}

func TestWorkAheadIsAQueue(t *testing.T) {
	l := newLane(t, true)
	l.want("nothing ahead", 0)
	a, b, c := l.send(1000), l.send(2000), l.send(500)
	l.want("all of it", 3.5)
	l.after(500*time.Millisecond).want("it drains by prediction", 3.0)
	l.after(2*time.Second).want("but an overdue first token holds it", 2.75)
	a.FirstToken(l.now)
	l.want("the first token: that prompt is done, and the next begins", 2.5)
	l.after(time.Second)
	c.FirstToken(l.now)
	l.want("a later one implies those before it", 0)
	for _, r := range []*Reservation{a, b, c} {
		r.Release(l.now)
	}
	if got := l.table.Snapshot(l.now)[0].Charge; got != (Charge{}) {
		t.Errorf("got %+v at the end, want nothing", got)
	}
}

func TestAnAbortBeforeTheFirstTokenTakesOnlyItsOwnWork(t *testing.T) {
	l := newLane(t, true)
	first, aborted, last := l.send(1000), l.send(2000), l.send(500)
	aborted.Release(l.after(100 * time.Millisecond).now)
	l.want("those before and behind it still wait", 1.4)
	first.Release(l.now)
	l.want("also if it was the one being processed", 0.5)
	last.Release(l.now)
}

func TestAFailureTakesOnlyItsOwnWork(t *testing.T) {
	l := newLane(t, false)
	l.table.SetStats(l.pod, &Stats{At: t0, Every: time.Second, Known: FieldWaiting}, 0)
	waits, failed := l.send(1000), l.send(2000)
	failed.Failed(l.now)
	failed.Release(l.now)
	l.want("a fast 500 does not mean that the prompts before it are processed", 1)
	waits.Release(l.now)
}

func TestWithoutFirstTokensEndsAndScrapesCorrect(t *testing.T) {
	l := newLane(t, false)
	a, b := l.send(1000), l.send(2000)
	l.after(time.Second).want("nothing is taken off a wait that nothing corrects", 3)
	a.Release(l.now)
	l.want("an answer that ended implies its prompt", 2)

	scrape := func(waiting float64) {
		mark := l.table.BeginScrape(l.pod)
		l.table.SetStats(l.pod, &Stats{At: l.now, Every: time.Second, Known: FieldWaiting | FieldRunning, Waiting: waiting, Running: 1}, mark)
	}
	c := l.send(4000)
	l.after(6 * time.Second)
	scrape(1)
	l.want("one still waits: its whole prompt is ahead", 4)
	l.after(6 * time.Second)
	scrape(0)
	l.want("none waits: at most the one that is being processed", 0)
	b.Release(l.now)
	c.Release(l.now)
}

func TestSpeedIsLearnedFromFirstTokens(t *testing.T) {
	for _, perToken := range []float64{2.5e-5, 3e-4, 2e-3} {
		table, now := NewTable(), t0
		table.SetPods(specs(1))
		for i := range 60 {
			tokens := 500 + 300*(i%7)
			r := reserve(t, table, Ask{Now: now, Tokens: tokens}, 0)
			now = now.Add(time.Duration(1e9 * (10*perToken + perToken*float64(tokens))))
			r.FirstToken(now)
			now = now.Add(time.Second)
			r.Release(now)
		}
		s := table.Snapshot(now)[0].Speed
		got, want := s.Base+s.Prefill(1500, 0), 1510*perToken
		if got < want*0.9 || got > want*1.1 {
			t.Errorf("%g s a token: a prompt of 1,500 is predicted to take %.4f s, want %.4f within a tenth", perToken, got, want)
		}
	}
}

func TestQueueingIsNotTakenForSlowness(t *testing.T) {
	table, now := NewTable(), t0
	table.SetPods(specs(1))
	const perToken = 1e-4
	for range 40 { // bursts of ten: the last one waits for nine others
		var burst []*Reservation
		for range 10 {
			burst = append(burst, reserve(t, table, Ask{Now: now, Tokens: 1000}, 0))
		}
		for _, r := range burst {
			now = now.Add(time.Duration(1e9 * perToken * 1000))
			r.FirstToken(now)
			r.Release(now)
		}
		now = now.Add(time.Second)
	}
	s := table.Snapshot(now)[0].Speed
	if got := s.Base + s.Prefill(1000, 0); got < 0.09 || got > 0.12 {
		t.Errorf("a prompt that takes 0.1 s is predicted to take %.4f s", got)
	}
}

func TestOneSlowRequestDoesNotKeepAPodOutForGood(t *testing.T) {
	table, now := NewTable(), t0
	table.SetPods(specs(2))
	serve := func(slot int, seconds float64) {
		r := reserve(t, table, Ask{Now: now, Tokens: 1000}, slot)
		now = now.Add(time.Duration(1e9 * seconds))
		r.FirstToken(now)
		r.Release(now)
		now = now.Add(time.Second)
	}
	for _, p := range table.Pods() {
		table.SetStats(p, &Stats{At: now, Known: FieldKVTokens, KVTokens: 400_000}, 0) // one kind of hardware
	}
	predict := func(slot int) float64 {
		s := table.Snapshot(now)[slot].Speed
		return s.Base + s.Prefill(1000, 0)
	}
	for range 5 {
		serve(1, 2) // it compiles its kernels
	}
	for range 30 {
		serve(0, 0.1)
	}
	slow := predict(1)
	for range 300 { // it gets nothing, its twin goes on
		serve(0, 0.1)
	}
	if got := predict(1); got > slow/2 || got > 0.2 {
		t.Errorf("after five minutes it is predicted to take %.3f s, before %.3f; its twin takes 0.1", got, slow)
	}
}
