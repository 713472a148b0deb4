package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers/sim/engine"
)

// Record is what came of one request.
type Record struct {
	At     time.Duration
	TTFT   time.Duration // 0: no token ever came
	Total  time.Duration // 0: it did not end well
	Prompt int
	Cached int
	Output int
	Pod    int // that answered; -1 for none
}

// Outcome is one run.
type Outcome struct {
	Records []Record
	Reports []engine.Report // of each pod, at the end
	Steps   int             // of the engines
	Window  time.Duration   // Scenario.Window
}

// cluster is the world of one run.
type cluster struct {
	sc      *Scenario
	load    []Request
	routers []*router
	pods    []*pod
	agenda  agenda
	now     time.Duration
	rng     *rand.Rand

	records []Record
	coming  []int         // requests that come by the clock and are not on the agenda yet
	after   map[int][]int // requests that wait for the end of another one
	flights []*flight     // by request; nil before and after
	open    int           // requests that have not ended
	steps   int
	spare   []*flight
}

// pod is one model server.
type pod struct {
	engine     *engine.Engine // nil while it is down
	cfg        engine.Config
	generation int
	mute       bool // scrapes get no answer
	flights    map[*flight]struct{}
}

// flight is a request on a pod.
type flight struct {
	engine.Request
	index  int
	router int
	res    *podstate.Reservation
	mirror []*podstate.Reservation // what other routers know of it
	seen   bool                    // routers see its first token
	whole  bool                    // its answer comes in one piece
	text   []Segment
}

// lookUp is after how many events a run looks whether its context has ended.
const lookUp = 1 << 12

// Run plays a load with a policy. The same arguments give the same outcome. If
// ctx ends before, that is the error.
func Run(ctx context.Context, sc *Scenario, load []Request, newPolicy func() (Policy, error), seed uint64) (*Outcome, error) {
	c := &cluster{sc: sc, load: load, records: make([]Record, len(load)), after: map[int][]int{}, open: len(load),
		flights: make([]*flight, len(load)),
		rng:     rand.New(rand.NewPCG(seed, 2))}
	for range max(1, sc.Routers) {
		p, err := newPolicy()
		if err != nil {
			return nil, err
		}
		c.routers = append(c.routers, newRouter(sc, p, rand.New(rand.NewPCG(c.rng.Uint64(), 3))))
	}
	engines, err := sc.Engines()
	if err != nil {
		return nil, err
	}
	for _, cfg := range engines {
		c.pods = append(c.pods, &pod{cfg: cfg, flights: map[*flight]struct{}{}})
		if err := c.start(len(c.pods) - 1); err != nil {
			return nil, err
		}
	}
	c.schedule()
	for n := 0; c.open > 0; n++ {
		if n%lookUp == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		ev, ok := c.agenda.pop()
		if !ok {
			return nil, errors.New("requests are open, but nothing is going to happen: a request waits for one that never ends")
		}
		c.now = ev.at
		c.handle(ev)
	}
	out := &Outcome{Records: c.records, Steps: c.steps, Window: c.sc.Window}
	for _, p := range c.pods {
		if p.engine != nil {
			out.Reports = append(out.Reports, p.engine.Report())
		}
	}
	return out, nil
}

func (c *cluster) schedule() {
	for i := range c.load {
		c.records[i].Pod = -1
		if a := c.load[i].After; a > 0 {
			c.after[a-1] = append(c.after[a-1], i)
		} else {
			c.coming = append(c.coming, i)
		}
	}
	slices.SortStableFunc(c.coming, func(i, j int) int { return cmp.Compare(c.load[i].At, c.load[j].At) })
	c.nextArrival()
	for r := range c.routers {
		for p := range c.pods {
			c.agenda.push(event{at: time.Duration(c.rng.Float64() * float64(c.sc.Scrape)), kind: scrapeBegin, a: r, b: p})
		}
	}
	for i, f := range c.sc.Failures {
		c.agenda.push(event{at: f.At, kind: failure, a: i})
		if f.For > 0 {
			c.agenda.push(event{at: f.At + f.For, kind: recovery, a: i})
		}
	}
}

// nextArrival plans one arrival at a time, to keep the agenda short.
func (c *cluster) nextArrival() {
	if len(c.coming) > 0 {
		i := c.coming[0]
		c.coming = c.coming[1:]
		c.agenda.push(event{at: c.load[i].At, kind: arrival, a: i})
	}
}

func (c *cluster) handle(ev event) {
	switch ev.kind {
	case arrival:
		if c.load[ev.a].After == 0 {
			c.nextArrival()
		}
		c.arrive(ev.a)
	case stepEnd:
		c.stepEnded(ev.a, ev.b)
	case scrapeBegin:
		mark := c.routers[ev.a].table.BeginScrape(c.routers[ev.a].pods[ev.b])
		c.agenda.push(event{at: c.now + scrapeTime, kind: scrapeEnd, a: ev.a, b: ev.b, mark: mark, from: c.now})
		c.agenda.push(event{at: c.now + c.sc.Scrape, kind: scrapeBegin, a: ev.a, b: ev.b})
	case scrapeEnd:
		c.scraped(ev)
	case failure:
		c.fail(c.sc.Failures[ev.a])
	case recovery:
		c.recover(c.sc.Failures[ev.a])
	case giveUp:
		c.giveUp(ev.a)
	case call:
		ev.do()
	}
}

// scrapeTime is how long a scrape takes.
const scrapeTime = 2 * time.Millisecond

func (c *cluster) scraped(ev event) {
	p := c.pods[ev.b]
	switch r := c.routers[ev.a]; {
	case p.engine == nil:
		r.table.ScrapeRefused(r.pods[ev.b], clock(c.now))
	case !p.mute:
		r.scraped(ev.b, stats(ev.from, c.sc.Scrape, p.generation, &p.cfg, p.engine.Report(), c.sc.Adapters), ev.mark)
	}
}

// arrive places a request and hands it to its pod.
func (c *cluster) arrive(i int) {
	q := &c.load[i]
	rec := &c.records[i]
	*rec = Record{At: c.now, Prompt: q.Tokens(), Output: q.Output, Pod: -1}
	router := c.rng.IntN(len(c.routers))
	guess := math.Exp(c.sc.TokenError * c.rng.NormFloat64())
	r := c.routers[router]
	whole := c.rng.Float64() < c.sc.Whole
	res := r.place(c.now, q, guess, whole)
	if res == nil {
		c.over(i)
		return
	}
	f := c.flight()
	f.Prompt, f.Output, f.Adapter, f.Data = rec.Prompt, q.Output, q.Adapter, f
	f.index, f.router, f.res, f.mirror = i, router, res, nil
	f.seen = c.rng.Float64() >= c.sc.Blind && !whole
	f.whole = whole
	f.text = append(append(f.text[:0], q.Prompt...), Segment{q.Reply, q.Output})
	if !c.dispatch(f, r, res) {
		res.Release(clock(c.now))
		c.over(i)
		return
	}
	c.flights[i] = f
	if c.sc.Patience > 0 {
		c.agenda.push(event{at: c.now + c.sc.Patience, kind: giveUp, a: i})
	}
	if len(c.routers) > 1 && c.sc.Gossip > 0 {
		c.share(f, r.ask.Tokens, res.Cached())
	}
}

// giveUp lets the client of a request go that has waited in vain.
func (c *cluster) giveUp(i int) {
	f := c.flights[i]
	if f == nil || c.records[i].TTFT > 0 {
		return
	}
	p := c.pods[c.records[i].Pod]
	p.engine.Abort(&f.Request)
	delete(p.flights, f)
	c.land(f, false) // the engine may hold it until the step ends
}

// dispatch sends a request to the picked pod, or the second one if that is down.
func (c *cluster) dispatch(f *flight, r *router, res *podstate.Reservation) bool {
	for _, p := range []*podstate.Pod{res.Pod(), res.Second()} {
		if p == nil {
			return false
		}
		n := r.number(p)
		target := c.pods[n]
		if target.engine == nil {
			res.Failed(clock(c.now))
			continue
		}
		res.Served(p.Addr)
		f.Blocks = engineBlocks(f.Blocks[:0], f.text, target.cfg.BlockTokens)
		_, busy := target.engine.Next()
		if err := target.engine.Submit(c.now, &f.Request); err != nil {
			return false // too long for this kind of pod: the client gets an error
		}
		c.records[f.index].Pod = n
		target.flights[f] = struct{}{}
		if !busy {
			c.nextStep(n)
		}
		return true
	}
	return false
}

func (r *router) number(p *podstate.Pod) int {
	for i := range r.pods {
		if r.pods[i] == p {
			return i
		}
	}
	panic(fmt.Sprintf("BUG: pod %s is not in the table that it was picked from", p.Addr))
}

func (c *cluster) nextStep(pod int) {
	if at, busy := c.pods[pod].engine.Next(); busy {
		c.agenda.push(event{at: at, kind: stepEnd, a: pod, b: c.pods[pod].generation})
	}
}

func (c *cluster) stepEnded(n, generation int) {
	p := c.pods[n]
	if p.generation != generation || p.engine == nil {
		return // it has died since
	}
	c.steps++
	for _, ev := range p.engine.EndStep() {
		f := ev.Request.Data.(*flight)
		rec := &c.records[f.index]
		switch ev.Kind {
		case engine.FirstToken:
			rec.TTFT = c.now - rec.At
			rec.Cached = f.Cached()
			if f.seen {
				f.res.FirstToken(clock(c.now))
				f.res.Succeeded(clock(c.now))
				c.mirrored(f, func(m *podstate.Reservation) { m.FirstToken(clock(c.now)) })
			}
		case engine.Finished:
			rec.Total = c.now - rec.At
			delete(p.flights, f)
			if f.whole {
				f.res.FirstToken(clock(c.now))
			}
			f.res.Succeeded(clock(c.now))
			c.land(f, true)
		}
	}
	c.nextStep(n)
}

// land ends a flight. Its memory is used again if nobody else can have it.
func (c *cluster) land(f *flight, reuse bool) {
	c.flights[f.index] = nil
	f.res.Release(clock(c.now))
	if len(c.routers) > 1 && c.sc.Gossip > 0 {
		c.mirrored(f, func(m *podstate.Reservation) { m.Release(clock(c.now)) })
	} else if reuse {
		c.spare = append(c.spare, f)
	}
	c.over(f.index)
}

// over ends a request, well or not, and lets those come that waited for it.
func (c *cluster) over(i int) {
	c.open--
	for _, j := range c.after[i] {
		c.agenda.push(event{at: c.now + c.load[j].At, kind: arrival, a: j})
	}
}

func (c *cluster) flight() *flight {
	if n := len(c.spare); n > 0 {
		f := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return f
	}
	return &flight{}
}

// share tells the other routers of a flight, a while later.
func (c *cluster) share(f *flight, tokens, cached int) {
	pod, at := c.records[f.index].Pod, c.now
	f.mirror = make([]*podstate.Reservation, len(c.routers))
	c.later(func() {
		for i, r := range c.routers {
			if i != f.router {
				f.mirror[i] = r.mirror(at, &c.load[f.index], pod, tokens, cached, f.whole)
			}
		}
	})
}

// mirrored changes what the other routers know of a flight, a while later.
func (c *cluster) mirrored(f *flight, change func(*podstate.Reservation)) {
	if len(f.mirror) == 0 {
		return
	}
	c.later(func() {
		for _, m := range f.mirror {
			if m != nil {
				change(m)
			}
		}
	})
}

// later does what gossip does, one gossip interval from now.
func (c *cluster) later(do func()) {
	c.agenda.push(event{at: c.now + c.sc.Gossip, kind: call, do: do})
}

func (c *cluster) start(n int) (err error) {
	p := c.pods[n]
	p.engine, err = engine.New(p.cfg)
	p.generation++
	return err
}
