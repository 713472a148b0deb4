package podstate

import "time"

// A model server's own /health is no help: it answers 200 while asleep, draining
// or wedged. So a pod's health is judged by what happens to requests, and by
// whether its port answers the scraper.
//
//	healthy ──failures──▶ ejected ──time──▶ half-open ──success──▶ ramping ──time──▶ healthy
//	                         ▲──────────failure──┘
const (
	// ejectAfter failures in a row eject a pod. Two would let a single bad
	// prompt, tried twice, take a pod out; a draining vLLM answers every request
	// with 500 within 10 ms, so the third comes soon enough.
	ejectAfter = 3
	// The first ejection is short, because overload (503) looks like death.
	ejectMin, ejectMax = time.Second, 30 * time.Second
	// rampTime is how long a pod that came back takes to get its full share:
	// its caches are cold, and engines compile on their first requests.
	rampTime = 10 * time.Second
	rampMin  = 0.1
	// scrapesDown refused scrapes in a row mean that the port is closed.
	scrapesDown = 2
)

// Reasons why a pod may not be picked, as in Health.Out.
const (
	OutEjected = "ejected" // it failed requests; waits for its next trial
	OutProbing = "probing" // its one trial request is under way
	OutDown    = "down"    // its port is closed
)

// Health is what past requests say about a pod. Its zero value is a pod that
// has just arrived and may be picked.
type Health struct {
	Out  string  // why it must not be picked, or empty
	Ramp float64 // share of its normal load that it should get, above 0 to 1
}

// health is the state behind Health. Guarded by Table.mu.
type health struct {
	failures  int       // in a row
	failedAt  time.Time // the last one
	ejections int       // in a row; lengthens the next one
	ejected   time.Time // until when; zero: not ejected
	probes    int       // requests under way since ejected has passed
	rampFrom  time.Time // zero: no ramp
	refused   int       // scrapes in a row that found the port closed
}

func (h *health) view(now time.Time) Health {
	v := Health{Ramp: 1}
	switch {
	case h.refused >= scrapesDown:
		v.Out = OutDown
	case h.ejected.IsZero():
	case now.Before(h.ejected):
		v.Out = OutEjected
	case h.probes > 0:
		v.Out = OutProbing
	}
	if !h.rampFrom.IsZero() {
		v.Ramp = min(1, max(rampMin, now.Sub(h.rampFrom).Seconds()/rampTime.Seconds()))
	}
	return v
}

func (h *health) fail(now time.Time) {
	h.failures++
	h.failedAt = now
	half := !h.ejected.IsZero() && !now.Before(h.ejected)
	if h.failures < ejectAfter && !half {
		return
	}
	if !h.ejected.IsZero() && !half {
		return // late news of requests sent before the ejection
	}
	h.eject(now)
}

func (h *health) eject(now time.Time) {
	h.ejected = now.Add(min(ejectMin<<min(h.ejections, 10), ejectMax))
	h.ejections++
}

// hang ejects a pod that answers nothing any more. The trial after that may hang,
// too, and then no other request follows it.
func (h *health) hang(now time.Time) {
	if h.ejected.IsZero() {
		h.failedAt = now
		h.eject(now)
	}
}

// succeed takes note of a good answer to a request that was sent at this time.
// One that was sent before the last failure proves nothing: a draining server
// finishes its old requests while it refuses all new ones.
func (h *health) succeed(sent, now time.Time) {
	if sent.Before(h.failedAt) {
		return
	}
	h.failures = 0
	if !h.ejected.IsZero() {
		h.ejected, h.rampFrom = time.Time{}, now
		return
	}
	if now.Sub(h.rampFrom) > rampTime {
		h.ejections, h.rampFrom = 0, time.Time{}
	}
}

// scraped takes note of whether the pod's port answered a scrape.
func (h *health) scraped(open bool, now time.Time) {
	switch {
	case !open:
		h.refused++
	case h.refused >= scrapesDown: // it came back: a new process, in all likelihood
		*h = health{rampFrom: now, probes: h.probes}
	default:
		h.refused = 0
	}
}

// spare lets pods be picked in spite of their ejection where too few would be
// left: at most half of a table may be ejected, because what fails everywhere
// is not the fault of the pods. A closed port is certain, so it only counts for
// less than nothing: when no pod at all is left.
func spare(cands []Candidate) {
	var ejected, down int
	for i := range cands {
		switch cands[i].Health.Out {
		case OutDown:
			down++
		case OutEjected, OutProbing:
			ejected++
		}
	}
	alive := len(cands) - down
	for i := range cands {
		out := cands[i].Health.Out
		if out == OutDown && alive == 0 || out != "" && out != OutDown && 2*ejected > alive {
			cands[i].Health.Out = ""
		}
	}
}

// States of a pod besides the reasons of Health.Out.
const (
	StateIn     = "in" // it takes requests, if perhaps few at first
	StateAsleep = "asleep"
)

// States returns how many pods are in each state, those with none included. It
// tells what each pod is by itself: one that failed is out until it has answered
// again, also while its trial is only due (OutProbing), and while pods that are
// out are picked because too few others are left. Snapshot says whom a pick may
// take.
func (t *Table) States(now time.Time) map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := map[string]int{StateIn: 0, StateAsleep: 0, OutEjected: 0, OutProbing: 0, OutDown: 0}
	for _, p := range t.pods {
		n[p.state(now)]++
	}
	return n
}

func (p *Pod) state(now time.Time) string {
	c := Candidate{Stats: p.stats, Age: now.Sub(p.stats.At).Seconds(), Health: p.health.view(now)}
	switch {
	case c.Health.Out != "":
		return c.Health.Out
	case !p.health.ejected.IsZero():
		return OutProbing
	case c.Asleep():
		return StateAsleep
	default:
		return StateIn
	}
}
