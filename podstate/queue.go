package podstate

import "time"

// queue is the prompts of a pod that are not known to be processed, in the order
// in which they were sent. Model servers process prompts in that order, and a
// long prompt takes whole steps for itself, so the work ahead of a new request
// is what decides when its first token comes.
//
// The work drains by prediction as time passes, and is corrected by whatever is
// seen: the first token of one prompt says that all before it are processed and
// none after it; the end of an answer says the former; a scrape says how many
// wait.
type queue struct {
	head, tail *Reservation
	sum        work
	left       float64 // seconds of work, as of at
	at         time.Time

	edge  time.Time // when the prompt before head was processed
	exact bool      // or some time before edge

	batch struct { // prompts that were processed in one step
		work    work
		seconds float64
		noise   float64 // see rate.learn
	}
}

// held is how much of the first prompt in the queue is still to do when its
// first token is overdue: a prediction that came out wrong says that the pod is
// slower than believed, or stands still. To add what it is overdue by, or half of
// that, made first tokens in drawn loads up to 9 % longer.
const held = 0.25

// backlog is what a pick reads of a queue that is not empty.
type backlog struct {
	whole     bool // the first token of head will not be seen
	sum, head work
	left      float64
	at        time.Duration // since Table.epoch
}

// wait is how long the pod will be busy with the prompts that it has. Watched
// says that first tokens are seen, corrected that first tokens or scrapes set
// the prediction right; without either, nothing is taken off: a pod that falls
// behind must not look idle.
func (b *backlog) wait(now time.Duration, s Speed, watched, corrected bool) float64 {
	if !corrected {
		return s.of(b.sum)
	}
	left := b.left - float64(now-b.at)*1e-9
	if watched && !b.whole {
		left = max(left, s.of(b.sum)-(1-held)*s.of(b.head))
	}
	return max(0, left)
}

// drain brings left up to date.
func (q *queue) drain(now time.Time) {
	if dt := now.Sub(q.at).Seconds(); dt > 0 {
		q.left = max(0, q.left-dt)
		q.at = now
	}
}

func (q *queue) push(r *Reservation, now time.Time, s Speed) {
	q.drain(now)
	q.left += s.of(r.work)
	q.sum = q.sum.plus(r.work)
	r.prev, r.next, r.queued = q.tail, nil, true
	if q.tail != nil {
		q.tail.next = r
	} else {
		q.head = r
	}
	q.tail = r
}

func (q *queue) unlink(r *Reservation) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		q.head = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		q.tail = r.prev
	}
	r.prev, r.next, r.queued = nil, nil, false
	q.sum.tokens -= r.work.tokens
	q.sum.square -= r.work.square
	if q.head == nil {
		q.sum = work{}
		q.left = 0
	}
}

// cancel takes out a prompt that will not be processed.
func (q *queue) cancel(r *Reservation, now time.Time, s Speed) {
	if !r.queued {
		return
	}
	q.drain(now)
	after := 0.0
	for n := r.next; n != nil; n = n.next {
		after += s.of(n.work)
	}
	q.left -= bound(q.left-after, 0, s.of(r.work))
	q.unlink(r)
}

// passed says that r has been processed by now at the latest, and so all before
// it.
func (p *Pod) passed(r *Reservation, now time.Time) {
	if !r.queued {
		return
	}
	q := &p.queue
	q.drain(now)
	p.popThrough(r, now)
	q.left = min(q.left, p.speed.now().of(q.sum))
	q.edge, q.exact = now, false
}

// popThrough takes all up to r out of the queue, which have been processed by now
// at the latest, probably when it was predicted.
func (p *Pod) popThrough(r *Reservation, now time.Time) {
	for last := false; !last; {
		h := p.queue.head
		last = h == r
		p.charge.Ahead -= h.charge.Ahead
		h.charge.Ahead = 0
		p.queue.unlink(h)
		p.batch.crowd.work += p.speed.now().of(h.work)
		at := h.sent.Add(time.Duration(1e9 * h.wait))
		if at.After(now) {
			at = now
		}
		p.batch.begins(h, at)
	}
}

// firstToken says that r has been processed just now.
func (p *Pod) firstToken(r *Reservation, now time.Time) {
	if !r.queued {
		return
	}
	q := &p.queue
	p.measure(r, now)
	p.popThrough(r, now)
	p.batch.begins(r, now)
	if q.head == nil {
		p.settle() // nothing is left that could share its step
	}
	q.left, q.at = p.speed.now().of(q.sum), now
	q.edge, q.exact = now, true
}

// measure learns from the time that the pod spent on the prompts up to r, if it
// is known when it began with them and that it did not pause.
func (p *Pod) measure(r *Reservation, now time.Time) {
	q := &p.queue
	s := p.speed.now()
	start := q.head.sent
	if q.edge.After(start) {
		if !q.exact {
			p.settle()
			return
		}
		start = q.edge
	}
	var w work
	busy := start
	for h := q.head; ; h = h.next {
		if h.sent.After(busy) {
			p.settle() // it may have paused
			return
		}
		w = w.plus(h.work)
		busy = busy.Add(time.Duration(0.5e9 * s.of(h.work)))
		if h == r {
			break
		}
	}
	seconds := now.Sub(start).Seconds()
	// Short prompts share a step, and then their first tokens come together.
	if start == q.edge && seconds < 0.004 && q.batch.seconds > 0 {
		q.batch.seconds += seconds
		q.batch.work = q.batch.work.plus(w)
		return
	}
	p.settle()
	if !r.full {
		q.batch.work, q.batch.seconds, q.batch.noise = w, seconds, noiseSome
		if r.table.watch.all() {
			q.batch.noise = noiseAll
		}
	}
}

// settle learns from the last batch.
func (p *Pod) settle() {
	b := &p.queue.batch
	if b.seconds > 0 {
		p.learn(1, b.work, b.seconds, b.noise)
	}
	b.seconds = 0
}

func (p *Pod) learn(steps float64, w work, seconds, noise float64) {
	before := p.speed.now().Token
	p.speed.learn(steps, w, seconds, noise)
	p.queue.left *= p.speed.now().Token / before
}

// reconcile compares the queue with what a scrape says about it.
func (p *Pod) reconcile(st *Stats) {
	q := &p.queue
	if !st.Has(FieldWaiting) || q.head == nil || st.still(p.stats) {
		return
	}
	waiting := st.queued()
	s := p.speed.now()
	// Gauges move when a step ends: what came during the last one is not in them.
	young := st.At.Add(-time.Duration(1e9 * (0.05 + 4096*s.Token)))
	var after, unstarted float64 // seconds: sent too late to be counted; counted as waiting
	r := q.tail
	for ; r != nil && (r.order > st.sent || r.sent.After(young)); r = r.prev {
		after += s.of(r.work)
	}
	for ; r != nil && waiting >= 1; r = r.prev {
		unstarted += s.of(r.work)
		waiting--
	}
	q.drain(st.At)
	if r == nil {
		q.left = max(q.left, unstarted+after)
		return
	}
	// r has been started, all before it are processed.
	if r.prev != nil {
		p.popThrough(r.prev, st.At)
		q.edge, q.exact = st.At, false
	}
	least := unstarted
	if unstarted > 0 {
		least += after
	}
	q.left = bound(q.left, least, unstarted+after+s.of(r.work))
}

// still reports whether no step has ended between the two.
func (s *Stats) still(old *Stats) bool {
	return s.Waiting == old.Waiting && s.Running == old.Running &&
		s.PromptTokens == old.PromptTokens && s.GenerationTokens == old.GenerationTokens && old.Known != 0
}

// watch tells whether the first tokens of streams are seen.
type watch struct {
	share, n float64
}

func (w *watch) note(seen bool) {
	w.n++
	x := 0.0
	if seen {
		x = 1
	}
	w.share += (x - w.share) * max(0.02, 1/w.n)
}

// all reports whether practically all are seen, so that one that is not seen
// has not come.
func (w *watch) all() bool { return w.share > 0.8 }
