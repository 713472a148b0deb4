package scorers

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// ladderProfiles are those that users get.
var ladderProfiles = []string{"latency", "throughput", "hyperpod", "epp"}

func eachFleet(t *testing.T, pods int, test func(t *testing.T, f *fleet)) {
	for _, name := range ladderProfiles {
		t.Run(name, func(t *testing.T) { test(t, newFleet(t, name, pods)) })
	}
}

func (f *fleet) wantRung(want podstate.Rung) {
	f.t.Helper()
	if got := podstate.RungOf(f.table.Snapshot(f.now)); got != want {
		f.t.Errorf("the pool is %v, want %v", got, want)
	}
}

func silence(f *fleet) {
	for _, s := range f.servers {
		s.mute = true
	}
}

func TestRungHash(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		silence(f)
		f.wantRung(podstate.RungHash)
		homes := map[*server]int{}
		for key := uint64(1); key <= 200; key++ {
			home := f.ask(Request{Key: key})
			if f.rung != podstate.RungHash {
				t.Fatalf("a decision on rung %v, want hash", f.rung)
			}
			homes[home]++
			f.giveUp(home)
			for range 2 {
				next := f.ask(Request{Key: key})
				if next != home {
					t.Fatal("two requests with one beginning went to two pods")
				}
				f.giveUp(next)
			}
		}
		for _, n := range homes {
			if len(homes) != 4 || n < 30 || n > 70 {
				t.Errorf("a pod is home of %d of 200 beginnings, of %d pods", n, len(homes))
			}
		}

		f.shares()
		for range 100 {
			f.ask(Request{Key: 1})
		}
		for i, share := range f.shares() {
			if share > 0.32 {
				t.Errorf("pod %d has %.0f %% of the requests in flight with one beginning, more than a quarter above its part", i, 100*share)
			}
		}
	})
}

func TestRungRandom(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		silence(f)
		for range 400 {
			f.giveUp(f.ask(Request{}))
			if f.rung != podstate.RungRandom {
				t.Fatalf("a decision on rung %v, want random", f.rung)
			}
		}
		for i, share := range f.shares() {
			if share < 0.18 || share > 0.32 {
				t.Errorf("pod %d got %.0f %%, want about a quarter", i, 100*share)
			}
		}
	})
}

func TestRungInFlight(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		silence(f)
		f.load(2*time.Second, 50)
		f.wantRung(podstate.RungInFlight)
		f.shares()
		f.servers[0].prefill = 10 * time.Second // it falls behind, and only its open requests tell
		f.load(5*time.Second, 50)
		if f.rung != podstate.RungInFlight {
			t.Errorf("a decision on rung %v, want in-flight", f.rung)
		}
		if share := f.shares()[0]; share > 0.15 {
			t.Errorf("a pod that answers nothing got %.0f %% of the requests", 100*share)
		}
	})
}

// While metrics grow old, the gauges lose their say, and requests go on.
func TestRungsWhileMetricsAge(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		crowded := f.servers[0] // by others, whom we do not see
		crowded.report = func(s *podstate.Stats) { s.Waiting, s.Running, s.KVUsage = 50, 50, 0.95 }
		f.pass(2 * time.Second)
		f.load(time.Second, 100)
		f.wantRung(podstate.RungFresh)
		if share := f.shares()[0]; share > 0.1 && f.profile.weighted() {
			t.Errorf("fresh: a pod that says it is crowded got %.0f %%", 100*share)
		}
		silence(f)
		f.load(4*time.Second, 100)
		f.wantRung(podstate.RungStale)
		if trust := f.candidate(crowded).Trust; trust <= 0 || trust >= 1 {
			t.Errorf("stale: trust %v", trust)
		}
		f.load(7*time.Second, 100)
		f.wantRung(podstate.RungInFlight)
		f.shares()
		f.load(2*time.Second, 100)
		for i, share := range f.shares() {
			if share < 0.15 || share > 0.35 {
				t.Errorf("in-flight: pod %d got %.0f %%; what it said long ago must not count", i, 100*share)
			}
		}
		for _, s := range f.servers {
			s.mute = false
		}
		f.pass(2 * time.Second)
		f.wantRung(podstate.RungFresh)
	})
}

func (p *Profile) weighted() bool {
	_, ok := p.policy.(*weighted)
	return ok
}

// One pod's metrics fail: it is judged by what we sent, the others as before.
func TestOneMutePod(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		f.load(2*time.Second, 100)
		f.servers[0].mute = true
		f.load(20*time.Second, 100)
		f.wantRung(podstate.RungFresh)
		f.shares()
		f.load(2*time.Second, 100)
		share := f.shares()[0]
		if most := 0.35; share > most {
			t.Errorf("the mute pod got %.0f %%", 100*share)
		}
		if !f.profile.weighted() && share < 0.1 {
			t.Errorf("the mute pod got %.0f %%; the cost does not live on gauges", 100*share)
		}
	})
}

// A long step, or a lie, hides what a pod has of ours.
func TestHiddenRequests(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		liar := f.servers[0]
		liar.report = func(s *podstate.Stats) { s.Running, s.Waiting, s.KVUsage = 0, 0, 0 }
		for _, s := range f.servers {
			s.decode = 3 * time.Second
		}
		f.load(6*time.Second, 20)
		c := f.candidate(liar)
		if c.Trust != 0 {
			t.Errorf("trust %v in a pod that says it is idle with %d requests of ours", c.Trust, c.Charge.Requests)
		}
		if c.Unseen != c.Charge.Requests {
			t.Errorf("%d of %d requests count as unseen, want all", c.Unseen, c.Charge.Requests)
		}
		f.shares()
		f.load(10*time.Second, 20)
		if share := f.shares()[0]; share < 0.05 || share > 0.32 {
			t.Errorf("the liar got %.0f %%, want no more than a quarter", 100*share)
		}
		liar.report = nil
		f.pass(time.Second)
		if c := f.candidate(liar); c.Trust != 1 {
			t.Errorf("trust %v in a pod that tells the truth again", c.Trust)
		}
	})
}

// Metrics stand still while requests end.
func TestFrozenMetrics(t *testing.T) {
	eachFleet(t, 4, func(t *testing.T, f *fleet) {
		f.load(3*time.Second, 100)
		ice := f.servers[0]
		frozen := ice.stats(f.now)
		frozen.Running, frozen.Waiting, frozen.KVUsage = 1, 0, 0.01
		ice.report = func(s *podstate.Stats) {
			at := s.At
			*s = *frozen
			s.At = at
		}
		for _, s := range f.servers[1:] {
			s.report = func(s *podstate.Stats) { s.Waiting += 3 } // of others
		}
		f.load(3*time.Second, 100)
		if c := f.candidate(ice); c.Trust != 1 {
			t.Errorf("trust %v after 3 s; scrapes may be lost", c.Trust)
		}
		f.load(3*time.Second, 100)
		if c := f.candidate(ice); c.Trust != 0 {
			t.Errorf("trust %v in counters that no answer moves", c.Trust)
		}
		f.shares()
		f.load(5*time.Second, 100)
		if share := f.shares()[0]; share > 0.45 {
			t.Errorf("the frozen pod got %.0f %%: its empty queue of old counts", 100*share)
		}
		ice.report = nil
		f.load(2*time.Second, 100)
		if c := f.candidate(ice); c.Trust != 1 {
			t.Errorf("trust %v in counters that move again", c.Trust)
		}
	})
}

// An idle pod's counters stand still, too.
func TestIdleIsNotFrozen(t *testing.T) {
	f := newFleet(t, "latency", 2)
	f.load(2*time.Second, 20)
	f.pass(time.Minute)
	for _, s := range f.servers {
		if c := f.candidate(s); c.Trust != 1 || c.Health.Out != "" {
			t.Errorf("an idle pod: trust %v, out %q", c.Trust, c.Health.Out)
		}
	}
}
