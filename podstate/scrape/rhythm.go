package scrape

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

const (
	// hurry is how much faster than usual a pod is scraped whose state is about to
	// decide something; rest is how much slower one that does nothing. A pod that
	// rests still keeps its connection.
	hurry, rest = 10, 2

	// fastest is the shortest pause in a hurry. Gauges move once an engine step,
	// 20 to 50 ms, so that more would tell nothing new.
	fastest = 100 * time.Millisecond

	// maxPause bounds the time between two scrapes of a pod that fails: it may be
	// back any moment.
	maxPause = 5 * time.Second

	// cheap is the size of a reading that may be repeated in a hurry, bytes. Where
	// an engine must send all that it has, ten times a second would cost it a tenth
	// of the core that streams its tokens.
	cheap = 16 << 10

	// nearlyFull is the use of the KV cache from which a pod may begin to preempt.
	nearlyFull = 0.8
)

// Budget bounds how many scrapes a second the scrapers of a process may do
// together beyond one per pod and interval.
type Budget struct {
	perSecond float64

	mu   sync.Mutex
	left float64
	at   time.Time
}

// NewBudget returns a budget that is full: of one second.
func NewBudget(perSecond float64) *Budget { return &Budget{perSecond: perSecond, left: perSecond} }

// take reports whether one more may be done.
func (b *Budget) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.left = min(b.perSecond, b.left+b.perSecond*max(0, now.Sub(b.at).Seconds()))
	}
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// rhythm decides when a pod is scraped next.
type rhythm struct {
	interval time.Duration
	budget   *Budget
	sent     uint64 // mark of the last scrape
	failures int    // in a row
}

// next returns the pause after a scrape. stats is nil when there was nothing
// new; floor is the shortest pause that the engine bears, and light says that
// the scrape may be repeated soon.
func (r *rhythm) next(now time.Time, stats *podstate.Stats, mark uint64, floor time.Duration, light bool) time.Duration {
	r.failures = 0
	sent := mark != r.sent
	r.sent = mark
	fast := max(fastest, floor, r.interval/hurry)
	switch {
	case fast < r.interval && light && (stats == nil || sent || urgent(stats)) && r.budget.take(now):
		return fast
	case stats != nil && !sent && idle(stats):
		return max(r.interval, min(rest*r.interval, keepIdle*8/10))
	}
	return max(r.interval, floor)
}

// failed returns the pause after a scrape that failed.
func (r *rhythm) failed() time.Duration {
	r.failures++
	return min(r.interval<<min(r.failures-1, 10), max(r.interval, maxPause))
}

// urgent says that small changes of the pod's state decide where a request goes.
func urgent(s *podstate.Stats) bool {
	return s.Waiting > 0 || s.Has(podstate.FieldKVUsage) && s.KVPeak > nearlyFull
}

// idle says that the pod reports to do nothing.
func idle(s *podstate.Stats) bool {
	return s.Has(podstate.FieldRunning|podstate.FieldWaiting) && s.Running == 0 && s.Waiting == 0 && s.Load == 0
}

// beats is how many moments there are in a pause at which scrapes begin, and
// beat the longest time between two such moments. A process that wakes up for
// one pod in each millisecond finds its caches cold and looks for work in vain
// in between; pods that share a moment cost half or a third.
const (
	beats = 5
	beat  = 50 * time.Millisecond
)

// wait returns how long to wait for a pause: it is varied by a tenth, so that
// pods do not fall into step, and ends at a moment that many pods share.
func wait(now time.Time, pause time.Duration) time.Duration {
	d := time.Duration(float64(pause) * (0.9 + 0.2*rand.Float64()))
	grid := max(1, min(pause/beats, beat))
	return max(0, d+grid/2-time.Duration(now.Add(d+grid/2).UnixNano())%grid)
}
