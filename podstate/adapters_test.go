package podstate

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// loras are what a vLLM says of its adapters: those with requests in the batch.
func loras(slots int, running ...string) Stats {
	return Stats{Known: load | FieldAdapters | FieldMaxAdapters, Adapters: running, MaxAdapters: slots}
}

// seen is the pod as the pick of a request for the adapter sees it.
func (w *watched) seen(name string) (c Candidate) {
	w.table.PickAndReserve(&Ask{Now: w.now, Tokens: 1, Adapter: name}, func(cands []Candidate) (int, int) {
		c = cands[0]
		return -1, -1
	})
	return c
}

func (w *watched) wantAdapter(rule, name string, want AdapterState) {
	w.t.Helper()
	if got := w.seen(name).Adapter; got != want {
		w.t.Errorf("%s: %s is %d, want %d", rule, name, got, want)
	}
}

// use sends a request for an adapter and has it answered.
func (w *watched) use(name string) {
	for _, r := range w.send(1, Ask{Adapter: name, Output: 1}) {
		r.FirstToken(w.now)
		r.Succeeded(w.now)
		r.Release(w.now)
	}
	w.now = w.now.Add(time.Second)
}

func TestResidency(t *testing.T) {
	w := watch1(t)
	w.wantAdapter("nothing is known", "a", AdapterFree)
	w.report(loras(2))
	w.use("a")
	w.report(loras(2))
	w.wantAdapter("used, though none is reported", "a", AdapterResident)
	w.use("b")
	w.wantAdapter("two slots", "a", AdapterResident)
	w.use("c")
	w.wantAdapter("the one used longest ago has made room", "a", AdapterFree)
	w.wantAdapter("not the others", "b", AdapterResident)
	w.report(loras(2, "x"))
	w.wantAdapter("one of another router's has taken a slot", "b", AdapterFree)
	w.wantAdapter("and the last one is still there", "c", AdapterResident)
	w.report(loras(2, "x", "y"))
	w.wantAdapter("all slots are in use", "c", AdapterFull)
	w.report(loras(2))
	w.wantAdapter("and free again, with what ran last in them", "y", AdapterResident)
	w.wantAdapter("for others to take", "c", AdapterFree)

	s := loras(2)
	s.Epoch = 1
	w.report(s)
	w.wantAdapter("a new process has none", "y", AdapterFree)
}

func TestSlotsByWhatWeSent(t *testing.T) {
	w := watch1(t)
	w.report(loras(2))
	a := w.send(2, Ask{Adapter: "a"})
	w.now = w.now.Add(time.Millisecond)
	b := w.send(1, Ask{Adapter: "b"})
	w.wantAdapter("sent is as good as there", "b", AdapterResident)
	w.now = w.now.Add(time.Millisecond)
	w.wantAdapter("a third one has to wait", "c", AdapterFull)
	c := w.send(1, Ask{Adapter: "c"})
	w.wantAdapter("also when one waits already", "c", AdapterFull)
	a[0].Release(w.now)
	w.wantAdapter("one end is not enough", "c", AdapterFull)
	b[0].FirstToken(w.now)
	b[0].Succeeded(w.now)
	b[0].Release(w.now)
	w.wantAdapter("all of one adapter are", "c", AdapterResident)
	c[0].Failed(w.now)
	c[0].Release(w.now)
	w.wantAdapter("what failed never came", "c", AdapterFree)
	a[1].Release(w.now)
}

func TestSlotsOfASilentPod(t *testing.T) {
	w := watch1(t)
	w.report(loras(1, "x"))
	w.wantAdapter("in use", "a", AdapterFull)
	w.now = w.now.Add(time.Minute)
	w.wantAdapter("in use a minute ago", "a", AdapterFree)
}

func TestUsesAreBounded(t *testing.T) {
	w := watch1(t)
	w.report(loras(4))
	var names []string
	for i := range 3 * maxNamed {
		names = append(names, fmt.Sprint(i))
		w.send(1, Ask{Adapter: fmt.Sprint("ours ", i)})
	}
	w.report(loras(4, names...))
	if n := len(w.pod.adapters.uses); n > maxNamed {
		t.Errorf("%d adapters are remembered, limit %d", n, maxNamed)
	}
}

func TestMissing(t *testing.T) {
	table := NewTable()
	pods, _ := table.SetPods(specs(3))
	list := func(p *Pod, at int, names ...string) {
		table.SetStats(p, &Stats{At: t0.Add(time.Duration(at) * time.Second), Known: FieldModels, Loadable: names}, 0)
	}
	see := func() (got [3]AdapterState) {
		table.PickAndReserve(&Ask{Now: t0, Tokens: 1, Adapter: "a"}, func(c []Candidate) (int, int) {
			for i := range c {
				got[i] = c[i].Adapter
			}
			return -1, -1
		})
		return got
	}
	list(pods[0], 0)
	list(pods[1], 0, "b")
	if got, want := see(), [3]AdapterState{AdapterFree, AdapterFree, AdapterFree}; got != want {
		t.Errorf("listed nowhere, it may be loaded on demand: got %v, want %v", got, want)
	}
	list(pods[1], 1, "b", "a")
	if got, want := see(), [3]AdapterState{AdapterMissing, AdapterFree, AdapterFree}; got != want {
		t.Errorf("listed by one pod, the last lists nothing: got %v, want %v", got, want)
	}
	list(pods[0], 2, "a")
	if got, want := see(), [3]AdapterState{AdapterFree, AdapterFree, AdapterFree}; got != want {
		t.Errorf("loaded meanwhile: got %v, want %v", got, want)
	}
}

func TestLoadTimeIsLearned(t *testing.T) {
	w := watch1(t)
	w.report(loras(1))
	s := w.pod.speed.now()
	before := s
	cold := Ask{Tokens: 100, Output: 1}
	predicted := s.Base + s.Prefill(100, 0)
	for i := range 60 {
		cold.Adapter = fmt.Sprint("adapter ", i)
		r := w.send(1, cold)[0]
		took := predicted + 0.4
		if i%3 == 0 {
			took = predicted + 0.9 // now and then from a disk
		}
		w.now = w.now.Add(time.Duration(1e9 * took))
		r.FirstToken(w.now)
		r.Succeeded(w.now)
		r.Release(w.now)
		w.now = w.now.Add(time.Minute)
	}
	if got := w.table.loads.value(); math.Abs(math.Log(got/0.4)) > 0.2 {
		t.Errorf("learned %v s, want about 0.4", got)
	}
	if w.pod.speed.now() != before {
		t.Error("the pod's speed was learned from prompts that waited for their adapters")
	}
	w.report(loras(1))
	if wait := w.seen("new").AdapterWait; wait != w.table.loads.value() {
		t.Errorf("the wait for an adapter is %v s, want the time to load it", wait)
	}
}

func TestWaitForASlotIsLongerWithMoreRequestsInIt(t *testing.T) {
	w := watch1(t)
	w.report(loras(1))
	r := w.send(1, Ask{Adapter: "a", Output: 1})[0]
	r.FirstToken(w.now)
	w.now = w.now.Add(8 * time.Second)
	r.Release(w.now)
	wait := func() float64 { return w.seen("b").AdapterWait }
	free := wait()
	w.send(1, Ask{Adapter: "a", Output: 1})
	one := wait()
	w.send(9, Ask{Adapter: "a", Output: 1})
	ten := wait()
	if free > 1 || one < 8 || ten < 1.5*one {
		t.Errorf("waits %v, %v, %v s with no, one and ten requests of 8 s in the slot", free, one, ten)
	}
}

func TestWaitForASlotIsLongerWithOthersAhead(t *testing.T) {
	w := watch1(t)
	w.report(loras(2))
	r := w.send(1, Ask{Adapter: "z", Output: 1})[0]
	r.FirstToken(w.now)
	w.now = w.now.Add(8 * time.Second)
	r.Release(w.now)
	stays := func(name string) float64 {
		w.now = w.now.Add(time.Millisecond)
		c := w.seen(name)
		return (c.AdapterWait - w.table.loads.value()) / c.Stay
	}
	send := func(n int, name string) {
		w.now = w.now.Add(time.Millisecond)
		w.send(n, Ask{Adapter: name, Output: 1})
	}
	send(1, "a")
	send(3, "b")
	w.report(loras(2, "a", "b"))
	of1, of3 := 1.0, 1+math.Log(3)
	for i, want := range []float64{of1, of3, 1 + of1, 1 + of3, 2 + of1} {
		if got := stays("new"); math.Abs(got-want) > 0.01 {
			t.Errorf("with %d adapters ahead, the wait is %.2f stays, want %.2f", i, got, want)
		}
		send(5, fmt.Sprint("waits ", i))
	}
	if got := stays("waits 1"); math.Abs(got-of3) > 0.01 {
		t.Errorf("the second of those that wait has %.2f stays to go, want %.2f", got, of3)
	}
}

func TestPodsOfAClassHaveAsManySlots(t *testing.T) {
	table := NewTable()
	pods, _ := table.SetPods(specs(3))
	s, none := loras(2), loras(0) // the latter is switched off, and no example
	s.At, none.At = t0, t0
	table.SetStats(pods[0], &s, 0)
	table.SetStats(pods[2], &none, 0)
	for i := range 2 {
		ask := Ask{Now: t0, Tokens: 1, Adapter: fmt.Sprint("adapter ", i)}
		table.PickAndReserve(&ask, func([]Candidate) (int, int) { return 1, -1 })
	}
	table.PickAndReserve(&Ask{Now: t0.Add(time.Millisecond), Tokens: 1, Adapter: "third"}, func(c []Candidate) (int, int) {
		if c[0].Adapter != AdapterFree || c[1].Adapter != AdapterFull {
			t.Errorf("states %d and %d; the other pod of the class has two slots, and both are taken", c[0].Adapter, c[1].Adapter)
		}
		return -1, -1
	})
	s.At, s.MaxAdapters = t0.Add(time.Second), 4
	table.SetStats(pods[1], &s, 0)
	table.PickAndReserve(&Ask{Now: t0.Add(2 * time.Second), Tokens: 1, Adapter: "third"}, func(c []Candidate) (int, int) {
		if c[1].Adapter != AdapterFree {
			t.Errorf("state %d, though the pod itself says that it has four slots", c[1].Adapter)
		}
		return -1, -1
	})
}
