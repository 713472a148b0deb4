package podstate

import (
	"testing"
	"time"
)

// ward is a table of n pods with a clock, for the health of its first pod.
type ward struct {
	t     *testing.T
	table *Table
	now   time.Time
}

func newWard(t *testing.T, n int) *ward {
	w := &ward{t: t, table: NewTable(), now: t0}
	w.table.SetPods(specs(n))
	return w
}

func (w *ward) send(slot int) *Reservation {
	return reserve(w.t, w.table, Ask{Now: w.now}, slot)
}

func (w *ward) fail(slot, times int) {
	for range times {
		r := w.send(slot)
		r.Failed(w.now)
		r.Release(w.now)
	}
}

func (w *ward) succeed(slot int) {
	r := w.send(slot)
	r.Succeeded(w.now)
	r.Release(w.now)
}

func (w *ward) want(rule, out string, ramp float64) {
	w.t.Helper()
	got := w.table.Snapshot(w.now)[0].Health
	if got.Out != out || got.Ramp != ramp {
		w.t.Errorf("%s: got out %q, ramp %v; want %q, %v", rule, got.Out, got.Ramp, out, ramp)
	}
}

func TestEjectionAndReturn(t *testing.T) {
	w := newWard(t, 4)
	w.fail(0, 2)
	w.want("two failures", "", 1)
	w.succeed(0)
	w.fail(0, 2)
	w.want("a success between starts the count again", "", 1)
	w.fail(0, 1)
	w.want("three failures in a row", OutEjected, 1)
	w.now = w.now.Add(ejectMin)
	w.want("half-open after the first ejection", "", 1)
	probe := w.send(0)
	w.want("one trial at a time", OutProbing, 1)
	probe.Failed(w.now)
	probe.Release(w.now)
	w.want("a failed trial ejects at once", OutEjected, 1)
	w.now = w.now.Add(ejectMin)
	w.want("and for longer", OutEjected, 1)
	w.now = w.now.Add(ejectMin)
	w.succeed(0)
	w.want("a good trial brings it back slowly", "", rampMin)
	w.now = w.now.Add(rampTime / 2)
	w.want("half of the ramp", "", 0.5)
	w.now = w.now.Add(rampTime)
	w.want("end of the ramp", "", 1)
}

func TestAnAbandonedTrialOpensTheNext(t *testing.T) {
	w := newWard(t, 4)
	w.fail(0, 3)
	w.now = w.now.Add(ejectMin)
	w.send(0).Release(w.now)
	w.want("the client went away", "", 1)
	moved := w.send(0)
	moved.Served(w.table.Pods()[1].Addr)
	w.want("the request went to another pod", "", 1)
	moved.Release(w.now)
}

func TestADrainingPodIsEjectedThoughOldRequestsSucceed(t *testing.T) {
	w := newWard(t, 4)
	old := []*Reservation{w.send(0), w.send(0), w.send(0)}
	w.now = w.now.Add(time.Second)
	for _, r := range old {
		w.fail(0, 1)
		r.Succeeded(w.now)
		r.Release(w.now)
	}
	w.want("only new requests count", OutEjected, 1)
}

func TestEjectionIsBounded(t *testing.T) {
	w := newWard(t, 4)
	for slot := range 2 {
		w.fail(slot, 3)
	}
	w.want("half of the pods may be ejected", OutEjected, 1)
	w.fail(2, 3)
	w.want("more than half: what fails everywhere is not the pods' fault", "", 1)

	one := newWard(t, 1)
	one.fail(0, 5)
	one.want("the only pod is never ejected", "", 1)
}

func TestClosedPort(t *testing.T) {
	w := newWard(t, 2)
	pods := w.table.Pods()
	w.table.ScrapeRefused(pods[0], w.now)
	w.want("one refused scrape may be a hiccup", "", 1)
	w.table.ScrapeRefused(pods[0], w.now)
	w.want("two", OutDown, 1)
	w.table.ScrapeRefused(pods[1], w.now)
	w.table.ScrapeRefused(pods[1], w.now)
	w.want("no pod left: try anyway", "", 1)
	w.table.SetStats(pods[0], &Stats{At: w.now}, 0)
	w.want("it answers again: slowly", "", rampMin)
}

func TestAPodThatJoinsStartsSlowly(t *testing.T) {
	w := newWard(t, 1)
	added, _ := w.table.SetPods(specs(2))
	w.table.SetStats(w.table.Pods()[0], &Stats{At: w.now}, 0)
	w.want("a pod of the first hour does not", "", 1)
	w.table.SetStats(added[0], &Stats{At: w.now}, 0)
	if got := w.table.Snapshot(w.now)[1].Health.Ramp; got != rampMin {
		t.Errorf("the new pod: got ramp %v, want %v", got, rampMin)
	}
}
