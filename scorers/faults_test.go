package scorers

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// A pod that drains answers each new request with an error at once, so it is the
// least loaded of all. No more than a handful of requests may fall into the hole.
func TestDrainingHole(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		f.load(2*time.Second, 100)
		f.servers[0].fails = true
		f.load(20*time.Second, 100)
		// Three at first, and one for each trial: after 1, 2, 4 and 8 seconds.
		if n := f.servers[0].failed; n < 3 || n > 8 {
			t.Errorf("%d of 2,000 requests failed, want 3 to 8", n)
		}
		f.servers[0].fails = false
		f.load(30*time.Second, 100)
		f.shares()
		f.load(5*time.Second, 100)
		if share := f.shares()[0]; share < 0.15 {
			t.Errorf("long after its end the pod gets %.0f %%, want its part", 100*share)
		}
	})
}

// What fails everywhere is not the pods' fault: the pool goes on trying.
func TestAllPodsFail(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		for _, s := range f.servers {
			s.fails = true
		}
		f.load(5*time.Second, 100)
		for i, share := range f.shares() {
			if share == 0 {
				t.Errorf("pod %d is not tried", i)
			}
		}
	})
}

func TestNewPodStartsSlowly(t *testing.T) {
	eachFleet(t, 3, func(t *testing.T, f *fleet) {
		f.load(2*time.Second, 100)
		f.join(1)
		f.pass(tick)
		f.shares()
		var got []float64
		for range 3 {
			f.load(time.Second, 100)
			got = append(got, f.shares()[3])
			f.load(4*time.Second, 100)
			f.shares()
		}
		if got[0] > 0.15 || got[2] < 0.15 {
			t.Errorf("a new pod gets %.2f of the requests, 0.25 is its part; want less at first and all in the end", got)
		}
	})
}

// A pod takes requests and does nothing, and its gauges say idle.
func TestHungPod(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		f.load(5*time.Second, 100)
		hung := f.servers[0]
		hung.hangs = true
		ejected := false
		for range 10 {
			f.load(time.Second, 100)
			ejected = ejected || f.candidate(hung).Health.Out == podstate.OutEjected
		}
		caught := len(hung.open)
		if !ejected || caught > 20 {
			t.Errorf("in 10 s the pod was ejected: %v; it owes %d answers", ejected, caught)
		}
		f.load(20*time.Second, 100)
		if n := len(hung.open); n > caught+1 {
			t.Errorf("%d requests more have gone there, want one trial at most", n-caught)
		}
		f.giveUp(hung)
		f.load(5*time.Second, 100)
		if n := len(hung.open); n > 1 {
			t.Errorf("%d requests follow those that were given up, want one trial", n)
		}
		t.Logf("%d of 3,500 requests were caught", hung.failed)
		hung.hangs = false
		f.load(time.Minute, 100)
		f.shares()
		f.load(5*time.Second, 100)
		if share := f.shares()[0]; share < 0.15 {
			t.Errorf("a minute after its end the pod gets %.0f %%, want its part", 100*share)
		}
	})
}

// The same, where metrics tell nothing: clients that give up do.
func TestHungPodWithoutMetrics(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		silence(f)
		f.load(5*time.Second, 100)
		hung := f.servers[0]
		hung.hangs = true
		for range 3 {
			f.load(10*time.Second, 100)
			f.giveUp(hung)
		}
		if c := f.candidate(hung); c.Health.Out == "" {
			t.Error("clients have given up three times, and nothing is wrong with the pod")
		}
	})
}

// Slow is not hung: one step may take seconds, and one long answer says nothing.
func TestSlowPodsAreNotHung(t *testing.T) {
	eachFleet(t, 2, func(t *testing.T, f *fleet) {
		for _, s := range f.servers {
			s.prefill, s.decode = 3*time.Second, 40*time.Second
		}
		for range 20 {
			f.ask(Request{})
			for range 40 {
				f.pass(100 * time.Millisecond)
				for _, s := range f.servers {
					if c := f.candidate(s); c.Health.Out != "" {
						t.Fatalf("a slow pod is %s", c.Health.Out)
					}
				}
			}
		}
	})
}

// Two adapters keep both slots of a pod, as long as requests for them keep
// coming. A third must go elsewhere, however short the queue is there.
func TestThirdAdapterDoesNotStarve(t *testing.T) {
	eachFleet(t, 2, func(t *testing.T, f *fleet) {
		taken, other := f.servers[0], f.servers[1]
		taken.report = func(s *podstate.Stats) {
			s.Known |= podstate.FieldAdapters | podstate.FieldMaxAdapters
			s.Adapters, s.MaxAdapters = []string{"a", "b"}, 2
			s.Running, s.Waiting = 2, 0
		}
		other.report = func(s *podstate.Stats) {
			s.Known |= podstate.FieldAdapters | podstate.FieldMaxAdapters
			s.Adapters, s.MaxAdapters = []string{"d"}, 2
			s.Running, s.Waiting = 8, 1
		}
		f.pass(2 * time.Second)
		for range 20 {
			if f.ask(Request{Adapter: "c"}) != other {
				t.Fatal("the third adapter was sent to where it starves")
			}
			f.pass(50 * time.Millisecond)
		}
	})
}

// An adapter that has just been used is still there, though the pod reports
// none: it pays to go back.
func TestIdleAdapterIsResident(t *testing.T) {
	f := newFleet(t, "latency", 4)
	for _, s := range f.servers {
		s.report = func(s *podstate.Stats) {
			s.Known |= podstate.FieldAdapters | podstate.FieldMaxAdapters
			s.Adapters, s.MaxAdapters = nil, 2
		}
	}
	f.pass(2 * time.Second)
	home := f.ask(Request{Adapter: "a"})
	f.pass(5 * time.Second)
	for range 10 {
		if f.ask(Request{Adapter: "a"}) != home {
			t.Fatal("the adapter was loaded again, on another pod")
		}
		f.pass(5 * time.Second)
	}
}

// A prompt that only one pod can hold goes there, unless it may be the estimate
// that is wrong.
func TestPromptThatFitsOnePod(t *testing.T) {
	eachFleet(t, 3, func(t *testing.T, f *fleet) {
		for _, s := range f.servers[:2] {
			s.report = func(s *podstate.Stats) {
				s.Known |= podstate.FieldMaxModelLen
				s.MaxModelLen = 8192
			}
		}
		f.pass(2 * time.Second)
		for range 20 {
			if f.ask(Request{Tokens: 20_000}) != f.servers[2] {
				t.Fatal("a prompt of 20,000 tokens went to a pod that takes 8,192")
			}
			f.pass(time.Second)
		}
		f.shares()
		for range 30 {
			f.ask(Request{Tokens: 9000})
			f.pass(time.Second)
		}
		if share := f.shares(); share[0]+share[1] < 0.1 {
			t.Errorf("pods that may take 9,000 tokens of estimate got %.2f", share)
		}
	})
}
