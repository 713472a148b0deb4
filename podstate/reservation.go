package podstate

import (
	"slices"
	"time"
)

// Reservation is one request's charge on one pod. It holds the pod, not its
// address: a pod that returns under an old address is a new Pod, and a late
// Release must not take from its count. Its methods may be called from any
// goroutine.
type Reservation struct {
	table   *Table
	second  *Pod      // may be nil; immutable
	cached  int       // immutable
	sent    time.Time // immutable
	whole   bool      // immutable
	work    work      // immutable
	wait    float64   // Candidate.Wait of the first pod; immutable
	output  float64   // immutable
	adapter string    // immutable

	// Guarded by table.mu.
	pod      *Pod
	charge   Charge
	probe    bool // it is the trial request of a pod that was ejected
	seen     bool // its first token
	answered bool // well, as far as is known
	owed     bool // it waits for its text to begin
	loads    bool // its adapter has no slot yet, but one is free
	failed   bool // or refused: the prompt was not processed
	released bool

	full       bool         // its pod's batch was full at its dispatch
	begun      time.Time    // when its prompt was processed, as far as is known; zero: it is not
	due        time.Time    // when its text is overdue
	order      uint64       // Pod.sent at its dispatch
	queued     bool         // it is in the pod's queue
	prev, next *Reservation // in that queue
}

// Pod is the pod that is charged now.
func (r *Reservation) Pod() *Pod {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	return r.pod
}

// Second is the pod to try when the first one fails, or nil.
func (r *Reservation) Second() *Pod { return r.second }

// Cached is how many prompt tokens were expected in the first pod's cache.
func (r *Reservation) Cached() int { return r.cached }

// Served says that the member at addr took the request, which after a retry is
// not the pod that was picked: the charge moves there. It reports whether the
// address belongs to a member.
func (r *Reservation) Served(addr string) bool {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	if r.pod.Addr == addr {
		return true
	}
	i := slices.IndexFunc(r.table.pods, func(p *Pod) bool { return p.Addr == addr })
	if i < 0 {
		return false
	}
	if !r.released {
		r.table.touchLocked(r.pod)
		r.endProbeLocked()
		r.pod.queue.cancel(r, r.sent, r.pod.speed.now())
		r.pod.tick(r.sent)
		r.leaveLocked(r.sent)
		r.pod.charge.add(r.charge, -1)
		r.pod = r.table.pods[i]
		r.failed = false
		r.chargeLocked(r.sent)
		r.loads = false // it has lost time elsewhere, which is no sample
	}
	return true
}

func (r *Reservation) chargeLocked(now time.Time) {
	p := r.pod
	r.table.touchLocked(p)
	p.sent++
	r.order = p.sent
	p.tick(now)
	r.enterLocked(now)
	r.full = p.turns() > 0
	if now.After(p.utilAt) { // not if a retry brings a request that was sent before the last one
		p.util, p.utilAt = faded(p.util, now.Sub(p.utilAt)), now
	}
	p.util += p.speed.now().of(r.work) / utilTime
	p.mean.tokens += (r.work.tokens - p.mean.tokens) * 0.1
	p.mean.square += (r.work.square - p.mean.square) * 0.1
	p.charge.add(r.charge, 1)
	p.queue.push(r, now, p.speed.now())
}

// enterLocked and leaveLocked tell what follows a pod's requests that there will
// be one more, or less.
func (r *Reservation) enterLocked(now time.Time) {
	p := r.pod
	p.evidence.recount(p.charge.Requests, now)
	p.owe(r, now)
	if r.adapter != "" {
		r.loads = p.adapters.state(r.adapter) == AdapterFree
		p.adapters.begin(r.adapter, now)
	}
}

func (r *Reservation) leaveLocked(now time.Time) {
	p := r.pod
	p.evidence.recount(p.charge.Requests, now)
	p.pay(r, now)
	p.batch.leaves(r)
	if r.adapter != "" {
		p.adapters.end(r.adapter, r.answered && !r.failed, now)
	}
}

// Failed says that the pod failed this request: it refused or reset the
// connection, or answered in a way that only a sick server does. It comes
// before Served, when a retry moved the request to another pod.
func (r *Reservation) Failed(now time.Time) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	r.table.touchLocked(r.pod)
	r.pod.health.fail(now)
	r.endProbeLocked()
	r.failed = true
	r.pod.pay(r, now)
	r.pod.life.sign = now
}

// Refused says that the pod, or the gateway, turned this request away without
// working on the prompt, for which the pod's health is not to blame.
func (r *Reservation) Refused() {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	r.failed = true
}

// Succeeded says that the pod answered this request as a healthy server does.
func (r *Reservation) Succeeded(now time.Time) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	r.table.touchLocked(r.pod)
	r.pod.health.succeed(r.sent, now)
	r.endProbeLocked()
	r.answered, r.pod.answered = true, true
	r.pod.life.sign = now
}

func (r *Reservation) probeLocked(now time.Time) {
	h := &r.pod.health
	if !h.ejected.IsZero() && !now.Before(h.ejected) {
		r.probe = true
		h.probes++
	}
}

func (r *Reservation) endProbeLocked() {
	if r.probe {
		r.probe = false
		r.pod.health.probes--
	}
}

// FirstToken says that the prompt has been processed: it is ahead of nobody
// any more. Calls after the first do nothing.
func (r *Reservation) FirstToken(now time.Time) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	if r.released || r.seen {
		return
	}
	r.table.touchLocked(r.pod)
	r.seen, r.answered = true, true
	r.pod.pay(r, now)
	r.pod.stirs(now)
	switch {
	case r.whole:
		r.pod.passed(r, now)
	case r.loads:
		s := r.pod.speed.now()
		r.table.loads.learn(now.Sub(r.sent).Seconds() - r.wait - s.Base - s.of(r.work))
		r.pod.passed(r, now)
	default:
		r.pod.firstToken(r, now)
	}
}

// Release gives the whole charge back. Calls after the first do nothing, so it
// can be deferred and also called early.
func (r *Reservation) Release(now time.Time) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	if r.released {
		return
	}
	r.released = true
	r.table.touchLocked(r.pod)
	r.pod.givenUp(r, now)
	r.pod.finish(r)
	r.endProbeLocked()
	// A stream that ends before its first token, where all are seen, was given up
	// by its client: those before it may well be waiting still.
	early := !r.whole && !r.seen && r.table.watch.all()
	if !r.whole && !r.failed {
		r.table.watch.note(r.seen)
	}
	if r.failed || early {
		r.pod.queue.cancel(r, now, r.pod.speed.now())
	} else {
		r.pod.passed(r, now)
		r.pod.batch.ended(r, now)
		if !r.table.watch.all() {
			r.pod.lived(r, now)
		}
	}
	r.pod.tick(now)
	r.leaveLocked(now)
	r.pod.charge.add(r.charge, -1)
}
