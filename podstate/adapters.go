package podstate

import (
	"math"
	"slices"
	"time"
)

const (
	// usualSlots is for pods that do not say how many adapters they hold, and whose
	// like do not either. A vLLM says it once it was asked for an adapter.
	usualSlots = 8
	// maxNamed bounds how many adapters of one pod are remembered. Servers have
	// some hundred slots at most.
	maxNamed = 512
)

// adapters is what is known of the LoRA adapters of one pod. Guarded by Table.mu.
//
// A server holds adapters in a fixed number of slots. One that has requests in
// the batch keeps its slot; of the others the one that was used longest ago
// makes room. Servers report the former only: after the last request none, though
// all that ran are still there. So the slots are followed here, by what is
// reported and by what was sent.
type adapters struct {
	slots  int  // as the pod says, else as another one of its class did; 0: not known
	told   bool // by the pod itself
	epoch  int  // of the stats; slots are empty at its begin
	uses   []use
	listed map[string]bool // what the pod can be asked for; nil: not known
	list   []string        // from which listed was made
}

// use is an adapter that has been used on the pod.
type use struct {
	name    string
	running bool      // as of the last stats
	open    int       // requests of ours that have not ended
	loaded  bool      // it has been seen to run
	at      time.Time // since when it is in use, or when it was used last
}

func (u *use) busy() bool { return u.running || u.open > 0 }

// before reports whether u gets a slot before v: adapters that run, then those
// that were asked for first, then those that were used last.
func (u *use) before(v *use) bool {
	switch {
	case u.running != v.running:
		return u.running
	case u.busy() != v.busy():
		return u.busy()
	case u.busy():
		return u.at.Before(v.at)
	default:
		return u.at.After(v.at)
	}
}

func (a *adapters) room() int {
	if a.slots > 0 {
		return a.slots
	}
	return usualSlots
}

func (a *adapters) find(name string) *use {
	i := slices.IndexFunc(a.uses, func(u use) bool { return u.name == name })
	if i < 0 {
		return nil
	}
	return &a.uses[i]
}

// state is what it takes to run the adapter.
func (a *adapters) state(name string) AdapterState {
	u := a.find(name)
	ahead, taken := 0, 0 // of it, and of them in use
	for i := range a.uses {
		if v := &a.uses[i]; u == nil && v.busy() || u != nil && v.before(u) {
			ahead++
			if v.busy() {
				taken++
			}
		}
	}
	switch {
	case u != nil && (u.running || ahead < a.room()):
		return AdapterResident
	case a.slots > 0 && taken >= a.slots:
		return AdapterFull
	default:
		return AdapterFree
	}
}

// stays is how long it takes until a slot is free for the adapter, where all are
// taken, in stays of a request. The requests of one adapter must all have ended,
// which takes the longest of several stays, if nobody sends more of them; and
// those adapters that wait already come first.
func (a *adapters) stays(name string) float64 {
	u := a.find(name)
	var few [64]int
	holders := few[:0] // open requests of each adapter that runs
	ahead := 0
	for i := range a.uses {
		v := &a.uses[i]
		if !v.busy() || u != nil && u.busy() && !v.before(u) {
			continue
		}
		if ahead++; v.running || len(holders) < a.slots && v.open > 0 {
			holders = append(holders, max(1, v.open))
		}
	}
	if len(holders) == 0 {
		return 1
	}
	slices.Sort(holders)
	wait := max(0, ahead-a.slots)
	return float64(wait/len(holders)) + 1 + math.Log(float64(holders[wait%len(holders)]))
}

// begin notes that a request for the adapter was sent.
func (a *adapters) begin(name string, now time.Time) {
	u := a.touch(name)
	if u == nil {
		return
	}
	if !u.busy() {
		u.at = now
	}
	u.open++
	a.trim()
}

// touch returns the adapter's use, or nil if there are too many.
func (a *adapters) touch(name string) *use {
	if u := a.find(name); u != nil {
		return u
	}
	if len(a.uses) >= maxNamed {
		return nil
	}
	a.uses = append(a.uses, use{name: name})
	return &a.uses[len(a.uses)-1]
}

// end notes that such a request has ended, and whether the adapter ran for it.
func (a *adapters) end(name string, ran bool, now time.Time) {
	u := a.find(name)
	if u == nil || u.open == 0 {
		return
	}
	u.open--
	u.loaded = u.loaded || ran
	if !u.busy() {
		u.at = now
	}
	a.trim()
}

// trim forgets adapters that have made room for others, or never ran.
func (a *adapters) trim() {
	a.uses = slices.DeleteFunc(a.uses, func(u use) bool { return !u.busy() && !u.loaded })
	for len(a.uses) > a.room() {
		last := 0
		for i := range a.uses {
			if a.uses[last].before(&a.uses[i]) {
				last = i
			}
		}
		if a.uses[last].busy() {
			return
		}
		a.uses = slices.Delete(a.uses, last, last+1)
	}
}

// scraped takes over what the pod says.
func (a *adapters) scraped(s *Stats) {
	if s.Epoch != a.epoch {
		a.epoch = s.Epoch
		for i := range a.uses {
			a.uses[i].loaded, a.uses[i].running = false, false
		}
	}
	if s.Has(FieldMaxAdapters) {
		a.slots, a.told = s.MaxAdapters, true
	}
	if s.Has(FieldAdapters) {
		for i := range a.uses {
			u := &a.uses[i]
			if u.running && u.open == 0 {
				u.at = s.At
			}
			u.running = false
		}
		for _, name := range s.Adapters[:min(len(s.Adapters), maxNamed)] {
			if u := a.touch(name); u != nil {
				if !u.busy() {
					u.at = s.At
				}
				u.running, u.loaded = true, true
			}
		}
	}
	a.trim()
	if s.Has(FieldModels) && (a.listed == nil || !sameSlice(a.list, s.Loadable)) {
		a.list, a.listed = s.Loadable, make(map[string]bool, len(s.Loadable))
		for _, name := range s.Loadable {
			a.listed[name] = true
		}
	}
}

// rest forgets which adapters ran, when that is long ago.
func (a *adapters) rest() {
	for i := range a.uses {
		a.uses[i].running = false
	}
}

// sameSlice is how scrapes show that a list has not changed.
func sameSlice(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// fill sets what the candidates of a request for an adapter have of it.
func (t *Table) fillAdaptersLocked(name string, cands []Candidate) {
	listed := false
	for i := range cands {
		a := &cands[i].Pod.adapters
		if cands[i].Silent() {
			a.rest()
		}
		if !a.told {
			a.slots = cands[i].Pod.speed.class.slots
		}
		cands[i].Adapter = a.state(name)
		listed = listed || a.listed[name]
	}
	for i := range cands {
		c := &cands[i]
		a := &c.Pod.adapters
		if listed && a.listed != nil && !a.listed[name] && c.Adapter != AdapterResident {
			c.Adapter = AdapterMissing
		}
		if c.Adapter != AdapterResident {
			c.AdapterWait = t.loads.value()
		}
		if c.Adapter == AdapterFull {
			c.AdapterWait += c.Stay * a.stays(name)
		}
	}
}

// loadTime is the time that it takes to load an adapter, learned: the median of
// what first tokens took longer than predicted. From memory it is a few
// milliseconds, from a disk up to a second.
type loadTime struct {
	factor  float64 // of the prior
	samples int
}

const (
	loadPrior    = 0.05 // seconds
	loadShortest = 0.001
	loadLongest  = 30
)

func (l *loadTime) value() float64 {
	if l.samples == 0 {
		return loadPrior
	}
	return l.factor * loadPrior
}

// learn goes a step towards the sample, however far it is: half of the steps go
// up where the median is.
func (l *loadTime) learn(seconds float64) {
	v := l.value()
	l.samples++
	step := math.Exp(max(0.1, 1/float64(l.samples)))
	if seconds < v {
		step = 1 / step
	}
	l.factor = bound(v*step, loadShortest, loadLongest) / loadPrior
}

// Waits is how many of the requests that wait, by the stats, wait for what this
// request would wait for, too: those that are deferred wait for an adapter slot,
// which is nothing to a request without an adapter, or with one that has a slot.
func (c *Candidate) Waits() float64 {
	if c.Adapter <= AdapterResident {
		return max(0, c.Stats.queued())
	}
	return max(0, c.Stats.Waiting)
}
