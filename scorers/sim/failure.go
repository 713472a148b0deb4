package sim

import (
	"slices"
	"time"
)

// Failure is something that happens to a pod.
type Failure struct {
	Pod  int
	At   time.Duration
	For  time.Duration // 0: for good
	Kind FailureKind
}

// FailureKind says what.
type FailureKind string

// The kinds.
const (
	Kill FailureKind = "kill" // it dies; what it had is lost; it comes back with an empty cache
	Mute FailureKind = "mute" // its metrics time out; it serves on
)

func (c *cluster) fail(f Failure) {
	p := c.pods[f.Pod]
	switch f.Kind {
	case Mute:
		p.mute = true
	case Kill:
		p.engine = nil
		var lost []*flight
		for fl := range p.flights {
			lost = append(lost, fl)
		}
		// Maps have no order, and what follows must be the same in every run.
		slices.SortFunc(lost, func(a, b *flight) int { return a.index - b.index })
		clear(p.flights)
		for _, fl := range lost {
			fl.res.Failed(clock(c.now))
			c.land(fl, true)
		}
	}
}

func (c *cluster) recover(f Failure) {
	p := c.pods[f.Pod]
	switch f.Kind {
	case Mute:
		p.mute = false
	case Kill:
		if p.engine == nil {
			c.start(f.Pod) // the same settings worked before
		}
	}
}
