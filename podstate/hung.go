package podstate

import "time"

// A pod that hangs takes requests and answers none, and nothing else looks
// wrong: its health is fine, its gauges say idle. It is found by what is
// missing: it owes an answer for far longer than predicted, nobody else has got
// one since, and no value that it reports has moved.
const (
	// An answer is overdue after a fixed time and a multiple of the predicted one.
	// Steps of seconds are ordinary on slow machines, and predictions may be wrong
	// by a factor of two or three.
	hungAfter  = 5 * time.Second
	hungFactor = 3
)

// life is a pod's signs of life. Guarded by Table.mu.
type life struct {
	owed  int           // texts of ours that have not begun
	since time.Time     // when owed became positive, or the last sign came
	quiet time.Duration // time without a sign before since, in which something was owed
	limit time.Duration // of all that time
	sign  time.Time     // the last answer of any kind, or change of what it reports
}

func (p *Pod) patience(wait float64, w work) time.Duration {
	s := p.speed.now()
	return hungAfter + time.Duration(hungFactor*1e9*(wait+s.Base+s.of(w)))
}

// owe notes that the pod has got a request for text. Others may take any time.
func (p *Pod) owe(r *Reservation, now time.Time) {
	if r.output == 0 {
		return
	}
	limit, l := p.patience(r.wait, r.work), &p.life
	r.due, r.owed = now.Add(limit), true
	if l.owed == 0 {
		l.since = now
		if l.quiet == 0 {
			l.limit = limit
		}
	}
	l.owed++
}

// pay notes that the request is owed nothing any more.
func (p *Pod) pay(r *Reservation, now time.Time) {
	if !r.owed {
		return
	}
	r.owed = false
	l := &p.life
	if l.owed--; l.owed == 0 {
		l.quiet += max(0, now.Sub(l.since))
	}
}

// stirs notes that the engine has moved.
func (p *Pod) stirs(now time.Time) {
	l := &p.life
	if now.After(l.sign) {
		l.sign = now
	}
	l.since, l.quiet, l.limit = now, 0, p.patience(p.queue.left, work{})
}

// givenUp judges the pod by a request that ended before there was any answer.
func (p *Pod) givenUp(r *Reservation, now time.Time) {
	if r.owed && !r.answered && now.After(r.due) && !p.life.sign.After(r.sent) {
		p.health.fail(now)
	}
}

// listen looks for signs of life in stats that have been weighed.
func (p *Pod) listen(s *Stats) {
	e, l := &p.evidence, &p.life
	switch {
	case e.still == 0:
		p.stirs(s.At)
	case counts(s) && e.finished == 0 && l.owed > 0 && l.quiet+s.At.Sub(l.since) > l.limit:
		p.health.hang(s.At)
	}
}
