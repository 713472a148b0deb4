package sim

import "time"

type eventKind uint8

const (
	arrival     eventKind = iota // of request a
	stepEnd                      // of pod a in its generation b
	scrapeBegin                  // by router a of pod b
	scrapeEnd                    // likewise
	failure                      // number a
	recovery                     // likewise
	giveUp                       // of request a
	call                         // do
)

type event struct {
	at   time.Duration
	seq  uint64 // events of one time come in the order in which they were planned
	kind eventKind
	a, b int
	mark uint64        // of a scrape
	from time.Duration // when it began
	do   func()
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.seq < f.seq
}

// agenda is a heap of what is going to happen.
type agenda struct {
	heap []event
	seq  uint64
}

func (a *agenda) push(e event) {
	a.seq++
	e.seq = a.seq
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&a.heap[up]) {
			break
		}
		a.heap[i] = a.heap[up]
		i = up
	}
	a.heap[i] = e
}

func (a *agenda) pop() (event, bool) {
	if len(a.heap) == 0 {
		return event{}, false
	}
	first := a.heap[0]
	n := len(a.heap) - 1
	last := a.heap[n]
	a.heap[n] = event{}
	a.heap = a.heap[:n]
	if n == 0 {
		return first, true
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && a.heap[down+1].before(&a.heap[down]) {
			down++
		}
		if !a.heap[down].before(&last) {
			break
		}
		a.heap[i] = a.heap[down]
		i = down
	}
	a.heap[i] = last
	return first, true
}
