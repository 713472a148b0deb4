package podstate

import (
	"errors"
	"math"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"
)

func spec(i int) Spec {
	return Spec{Name: "pod-" + strconv.Itoa(i), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)}
}

func specs(n int) []Spec {
	var s []Spec
	for i := range n {
		s = append(s, spec(i))
	}
	return s
}

func leastLoaded(c []Candidate) (int, int) {
	best := -1
	for i := range c {
		if best < 0 || c[i].Charge.Requests < c[best].Charge.Requests {
			best = i
		}
	}
	return best, -1
}

// always picks the pod in a slot.
func always(slot int) func([]Candidate) (int, int) {
	return func(c []Candidate) (int, int) {
		for i := range c {
			if c[i].Pod.Slot == slot {
				return i, -1
			}
		}
		return -1, -1
	}
}

var t0 = time.Unix(1_000_000, 0)

func reserve(t *testing.T, table *Table, ask Ask, slot int) *Reservation {
	t.Helper()
	if ask.Now.IsZero() {
		ask.Now = t0
	}
	ask.Tokens = max(ask.Tokens, 1)
	r, err := table.PickAndReserve(&ask, always(slot))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestABurstIsSpreadEvenlyAndReleasedOnce(t *testing.T) {
	table := NewTable()
	table.SetPods(specs(8))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []*Reservation
	for range 1000 {
		wg.Go(func() {
			r, err := table.PickAndReserve(&Ask{Now: t0, Tokens: 10, Output: 5}, leastLoaded)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			all = append(all, r)
			mu.Unlock()
		})
	}
	wg.Wait()
	for _, c := range table.Snapshot(t0) {
		want := Charge{Requests: 125, Ahead: 1250, Held: 1875}
		if c.Charge != want {
			t.Errorf("pod %s: got %+v, want %+v", c.Pod.Addr, c.Charge, want)
		}
	}
	for _, r := range all {
		wg.Go(func() { r.Release(t0) })
		wg.Go(func() { r.FirstToken(t0); r.Release(t0) })
	}
	wg.Wait()
	for _, c := range table.Snapshot(t0) {
		if c.Charge != (Charge{}) {
			t.Errorf("pod %s: got %+v after all releases, want nothing", c.Pod.Addr, c.Charge)
		}
	}
}

func TestNoPod(t *testing.T) {
	table := NewTable()
	if _, err := table.PickAndReserve(&Ask{Now: t0}, leastLoaded); !errors.Is(err, ErrNoPod) {
		t.Errorf("empty table: got %v, want ErrNoPod", err)
	}
	table.SetPods(specs(2))
	none := func([]Candidate) (int, int) { return -1, -1 }
	if _, err := table.PickAndReserve(&Ask{Now: t0}, none); !errors.Is(err, ErrNoPod) {
		t.Errorf("all refused: got %v, want ErrNoPod", err)
	}
}

func TestMembership(t *testing.T) {
	table := NewTable()
	added, removed := table.SetPods(append(specs(2), spec(1)))
	if len(added) != 2 || len(removed) != 0 {
		t.Fatalf("a repeated spec must count once: added %d, removed %d", len(added), len(removed))
	}
	old := reserve(t, table, Ask{Tokens: 7}, 1)

	changed := spec(1)
	changed.UID = "new"
	added, removed = table.SetPods([]Spec{spec(0), changed})
	if len(added) != 1 || len(removed) != 1 || added[0].Slot == removed[0].Slot {
		t.Fatalf("another UID is another pod, in another slot: added %v, removed %v", added, removed)
	}
	next := reserve(t, table, Ask{Tokens: 9}, added[0].Slot)
	old.FirstToken(t0)
	old.Release(t0)
	if c := table.Snapshot(t0)[1]; c.Charge.Requests != 1 || c.Charge.Ahead != 9 {
		t.Errorf("a late release took from the new pod: %+v", c.Charge)
	}
	next.Release(t0)

	table.SetPods([]Spec{spec(0)})
	added, _ = table.SetPods([]Spec{spec(0), spec(5)})
	if got := added[0].Slot; got > 2 {
		t.Errorf("got slot %d, want one of a pod that has left", got)
	}
}

func TestCandidateFacts(t *testing.T) {
	table := NewTable()
	pods, _ := table.SetPods(specs(3))
	if c := table.Snapshot(t0)[0]; !math.IsInf(c.Age, 1) || c.Stats.Known != 0 {
		t.Errorf("never scraped: got age %v, known %b", c.Age, c.Stats.Known)
	}

	before := reserve(t, table, Ask{}, 0)
	mark := table.BeginScrape(pods[0])
	during := reserve(t, table, Ask{}, 0)
	table.SetStats(pods[0], &Stats{At: t0, Known: FieldAdapters | FieldMaxAdapters, Adapters: []string{"a"}, MaxAdapters: 1}, mark)
	table.SetStats(pods[1], &Stats{At: t0, Known: FieldAdapters | FieldMaxAdapters, Adapters: []string{"b"}, MaxAdapters: 2}, 0)
	table.SetStats(pods[0], &Stats{At: t0.Add(-time.Second)}, mark)

	var got []Candidate
	ask := Ask{Now: t0.Add(2 * time.Second), Tokens: 100, Adapter: "a", Cached: []int32{64, 500}}
	r, err := table.PickAndReserve(&ask, func(c []Candidate) (int, int) { got = append(got, c...); return 0, 1 })
	if err != nil {
		t.Fatal(err)
	}
	if c := got[0]; c.Age != 2 || c.Unseen != 1 || c.Cached != 64 || c.Adapter != AdapterResident {
		t.Errorf("pod 0: got age %v, unseen %d, cached %d, adapter %d", c.Age, c.Unseen, c.Cached, c.Adapter)
	}
	if c := got[1]; c.Cached != 99 || c.Adapter != AdapterFree {
		t.Errorf("pod 1: the last token is never cached: got %d; adapter %d", c.Cached, c.Adapter)
	}
	if c := got[2]; c.Cached != 0 || c.Adapter != AdapterFree {
		t.Errorf("pod 2, unknown: got cached %d, adapter %d", c.Cached, c.Adapter)
	}
	if r.Pod() != pods[0] || r.Second() != pods[1] || r.Cached() != 64 {
		t.Errorf("reservation of pod %v, second %v, cached %d", r.Pod(), r.Second(), r.Cached())
	}
	for _, r := range []*Reservation{before, during, r} {
		r.Release(t0)
	}
}

func TestServedMovesTheCharge(t *testing.T) {
	table := NewTable()
	pods, _ := table.SetPods(specs(2))
	r := reserve(t, table, Ask{Tokens: 10}, 0)
	if !r.Served(pods[1].Addr) || r.Pod() != pods[1] {
		t.Fatal("want the charge on pod 1")
	}
	if c := table.Snapshot(t0); c[0].Charge != (Charge{}) || c[1].Charge.Ahead != 10 {
		t.Errorf("got %+v and %+v", c[0].Charge, c[1].Charge)
	}
	if r.Served("192.0.2.1:1") {
		t.Error("an address outside of the table is no member")
	}
	r.Release(t0)
	r.Served(pods[0].Addr)
	for _, c := range table.Snapshot(t0) {
		if c.Charge != (Charge{}) {
			t.Errorf("pod %s: got %+v, want nothing", c.Pod.Addr, c.Charge)
		}
	}
}

// A retry brings a request long after it was sent: its utilization comes on top of
// what the pod has, and nothing is taken for the time before.
func TestServedLateAddsToUtilization(t *testing.T) {
	for _, late := range []time.Duration{0, 20 * time.Second, 30 * time.Second, 10 * time.Minute} {
		table := NewTable()
		pods, _ := table.SetPods(specs(2))
		moved := reserve(t, table, Ask{Tokens: 1000}, 0)
		now := t0.Add(late)
		reserve(t, table, Ask{Now: now, Tokens: 1000}, 1)
		one := table.Snapshot(now)[1].Util
		moved.Served(pods[1].Addr)
		if two := table.Snapshot(now)[1].Util; two < one || two > 2.001*one {
			t.Errorf("a request that comes %v late makes a utilization of %v of one of %v", late, two, one)
		}
	}
}

func BenchmarkPickAndReserve(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			table := NewTable()
			table.SetPods(specs(n))
			ask := Ask{Now: t0, Tokens: 1000}
			b.ReportAllocs()
			for b.Loop() {
				r, _ := table.PickAndReserve(&ask, leastLoaded)
				r.Release(t0)
			}
		})
	}
}
