package podstate

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrNoPod says that no pod may take the request.
var ErrNoPod = errors.New("no pod can take the request")

// Ask is what a pick has to know about a request before it can compare pods.
type Ask struct {
	Now     time.Time
	Tokens  int     // prompt tokens, estimated; at least 1
	Output  int     // tokens that it may generate, estimated
	Whole   bool    // the answer comes in one piece: its first byte says nothing about the first token
	Cached  []int32 // prompt tokens expected in each pod's prefix cache, by Pod.Slot; may be shorter than the table
	Adapter string  // LoRA adapter, or empty

	Retention []float32 // seconds that each pod's prefix cache keeps what nobody uses, by Pod.Slot; may be shorter than the table; 0: not known
}

// Table is the set of pods of one pool.
type Table struct {
	mu      sync.Mutex // makes read, choose and charge one step; guards all below, and the marked fields of Pod
	pods    []*Pod
	free    []int // slots of pods that have left
	slots   int   // slots ever used
	picks   uint64
	warm    bool // some pod of the last pick had a part of the prompt cached
	classes map[string]*class
	watch   watch
	loads   loadTime

	rows  []row       // as pods
	cands []Candidate // as pods; of the last pick, kept for the next one
	epoch time.Time   // the first pick
}

// NewTable returns a table without pods.
func NewTable() *Table { return &Table{classes: map[string]*class{}} }

// SetPods makes the specs the members of the table. A pod that stays keeps its
// state; one that is gone is never picked again, while its open reservations
// still end in peace. It returns the pods that came and that went.
func (t *Table) SetPods(specs []Spec) (added, removed []*Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()

	old := make(map[identity]*Pod, len(t.pods))
	for _, p := range t.pods {
		old[p.Spec.identity()] = p
	}
	pods, members := make([]*Pod, 0, len(specs)), make(map[identity]bool, len(specs))
	for _, s := range specs {
		id := s.identity()
		if members[id] {
			continue
		}
		members[id] = true
		p := old[id]
		if p == nil {
			p = &Pod{Spec: s, Addr: s.Addr.String(), stats: noStats, joined: len(t.pods) > 0}
			p.speed.class = t.classLocked(s.Labels)
			added = append(added, p)
		}
		pods = append(pods, p)
	}
	for _, p := range t.pods {
		if !members[p.Spec.identity()] {
			p.departed = true
			removed = append(removed, p)
		}
	}
	// Slots of the departed are handed out only at the next change, when nobody
	// can still hold them for the old pods.
	for _, p := range added {
		if n := len(t.free); n > 0 {
			p.Slot, t.free = t.free[n-1], t.free[:n-1]
		} else {
			p.Slot = t.slots
			t.slots++
		}
	}
	for _, p := range removed {
		t.free = append(t.free, p.Slot)
	}
	t.pods, t.rows, t.cands = pods, make([]row, len(pods)), make([]Candidate, len(pods))
	for i, p := range pods {
		p.index = i
		t.touchLocked(p)
	}
	return added, removed
}

// Pods returns the members in a new slice.
func (t *Table) Pods() []*Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.pods)
}

// BeginScrape returns a mark to pass to SetStats: requests reserved after it are
// not in the stats that this scrape will read.
func (t *Table) BeginScrape(p *Pod) (mark uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.sent
}

// SetStats replaces what the pod reported. Older stats than the present ones
// are dropped. s must not change afterwards.
func (t *Table) SetStats(p *Pod, s *Stats, mark uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.At.Before(p.stats.At) {
		return
	}
	t.touchLocked(p)
	if p.stats == noStats && p.joined {
		p.health.rampFrom = s.At
	}
	s.sent = mark
	t.sizeLocked(p, s.KVTokens)
	p.weigh(s)
	p.listen(s)
	p.adapters.scraped(s)
	if n := p.adapters.slots; p.adapters.told && n > 0 {
		p.speed.class.slots = n
	}
	p.others.scraped(s, p.charge.Requests-int(min(uint64(p.charge.Requests), p.sent-mark)))
	if !p.evidence.doubt {
		p.fit(s)
		if !t.watch.all() {
			p.count(s)
			p.reconcile(s)
		}
	}
	p.stats = s
	p.health.scraped(true, s.At)
}

// ScrapeRefused says that the pod's port was closed when it was to be scraped.
func (t *Table) ScrapeRefused(p *Pod, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touchLocked(p)
	p.health.scraped(false, now)
}

// ScrapeAnswered says that the pod's port is open, though the scrape has read no
// stats there: its metrics may be switched off.
func (t *Table) ScrapeAnswered(p *Pod, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touchLocked(p)
	p.health.scraped(true, now)
}

// Snapshot returns the table as a pick at this time for a request of one token
// would see it. The slice is the caller's.
func (t *Table) Snapshot(now time.Time) []Candidate {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.candidatesLocked(&Ask{Now: now, Tokens: 1}))
}

// PickAndReserve shows all pods to choose and charges the request to the pod
// whose index choose returns as first, before any other pick reads the charges.
// A negative first gives ErrNoPod. A second that is not negative names the pod
// to try when the first one fails; it is not charged.
//
// choose runs with the table locked: it must not block, and neither change nor
// keep the slice. The caller must Release the reservation when the request ends.
func (t *Table) PickAndReserve(ask *Ask, choose func([]Candidate) (first, second int)) (*Reservation, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	cands := t.candidatesLocked(ask)
	first, second := choose(cands)
	if first < 0 {
		return nil, ErrNoPod
	}
	c := &cands[first]
	r := &Reservation{table: t, pod: c.Pod, cached: c.Cached, sent: ask.Now, whole: ask.Whole, adapter: ask.Adapter}
	r.probeLocked(ask.Now)
	if second >= 0 {
		r.second = cands[second].Pod
	}
	r.charge = Charge{
		Requests: 1,
		Ahead:    float64(max(1, ask.Tokens-c.Cached)),
		Held:     float64(ask.Tokens + ask.Output),
	}
	r.work, r.wait, r.output = newWork(ask.Tokens, c.Cached), c.Wait, float64(ask.Output)
	r.chargeLocked(ask.Now)
	t.picks++
	c.Pod.last = t.picks
	if !t.warm {
		c.Pod.lastCold = t.picks
	}
	return r, nil
}

func (c *Charge) add(d Charge, sign int) {
	c.Requests += sign * d.Requests
	c.Ahead += float64(sign) * d.Ahead
	c.Held += float64(sign) * d.Held
	if c.Requests == 0 { // rounding must not pile up over millions of requests
		*c = Charge{}
	}
}
