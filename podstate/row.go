package podstate

import (
	"math"
	"time"
)

// A pick compares all pods, and between two picks few of them change. So the
// table keeps each pod's candidate, with a row that says what to do about it: to
// make it anew if something has changed, else to bring up to date what time
// alone changes. Rows and candidates stand side by side in memory; pods, which
// do not, are only read when they have changed.

// row is what a pick reads of a pod. Times are since Table.epoch.
type row struct {
	until   time.Duration // from when on the candidate must be made anew
	aging   time.Duration // from when on its trust declines
	scraped time.Duration // Stats.At, or never
	util    float64       // as of utilAt
	utilAt  time.Duration
	foreign foreign
	slot    int32
	fresh   bool // Candidate.fresh
	waits   bool // turns is not 0, or backlog not empty
	speed   likely
	turns   float64 // Pod.turns
	stay    stay
	backlog backlog
	mean    work
}

const (
	outdated = time.Duration(math.MinInt64) // row.until of one that must be made anew
	forever  = time.Duration(math.MaxInt64)
	never    = outdated
)

// touchLocked says that something of the pod changes.
func (t *Table) touchLocked(p *Pod) {
	if !p.departed {
		t.rows[p.index].until = outdated
	}
}

func (t *Table) candidatesLocked(ask *Ask) []Candidate {
	if t.epoch.IsZero() {
		t.epoch = ask.Now
	}
	now, watched := ask.Now.Sub(t.epoch), t.watch.all()
	out := false
	t.warm = false
	var seen believed
	cands := t.cands[:len(t.rows)]
	for i := range t.rows {
		r, c := &t.rows[i], &cands[i]
		if now >= r.until {
			t.refreshLocked(t.pods[i], ask.Now)
			out = out || c.Health.Out != ""
		}
		if r.scraped != never {
			c.Age = (now - r.scraped).Seconds()
		}
		if now >= r.aging {
			c.Trust = c.aged()
			c.Fill = c.fill(r.mean)
		}
		if s := r.speed.now(); s != c.Speed {
			c.Speed = s
		}
		c.Wait, c.Foreign, c.Cached, c.AdapterWait = 0, 0, 0, 0
		if s := r.stay.seconds(now.Seconds()); s != c.Stay {
			c.Stay = s
		}
		if r.waits {
			c.Wait = max(r.backlog.wait(now, c.Speed, watched, watched || r.fresh), r.turns*c.Stay)
		}
		c.Util = faded(r.util, now-r.utilAt)
		if c.Adapter != AdapterNone {
			c.Adapter = AdapterNone
		}
		if int(r.slot) < len(ask.Cached) {
			c.Cached = min(int(ask.Cached[r.slot]), ask.Tokens-1)
			t.warm = t.warm || c.Cached > 0
		}
		keeps := 0.0
		if int(r.slot) < len(ask.Retention) {
			keeps = float64(ask.Retention[r.slot])
		}
		if keeps != c.Retention {
			c.Retention = keeps
		}
		seen.add(c.Trust, r.foreign)
	}
	if seen.requests > 0 {
		t.fillForeignLocked(cands, seen.mean())
	}
	if out {
		spare(cands)
	}
	if ask.Adapter != "" {
		t.fillAdaptersLocked(ask.Adapter, cands)
	}
	return cands
}

// refreshLocked makes the pod's row and its candidate anew.
func (t *Table) refreshLocked(p *Pod, now time.Time) {
	r, c := &t.rows[p.index], &t.cands[p.index]
	p.speed.fade(now)
	*c = Candidate{Pod: p, Stats: p.stats, Charge: p.charge, Age: math.Inf(1), Health: p.health.view(now),
		Last: p.last, LastCold: p.lastCold, Answered: p.answered}
	*r = row{until: forever, aging: forever, scraped: never, slot: int32(p.Slot), turns: p.turns(), stay: p.batch.stays(),
		util: p.util, mean: p.mean, speed: p.speed.likely, foreign: p.others.foreign}
	if !p.stats.At.IsZero() {
		c.Age, r.scraped = now.Sub(p.stats.At).Seconds(), p.stats.At.Sub(t.epoch)
	}
	c.Trust = p.evidence.trust(c)
	c.Unseen = p.unseen(c)
	c.Fill = c.fill(p.mean)

	r.fresh = c.fresh()
	if p.util != 0 {
		r.utilAt = p.utilAt.Sub(t.epoch)
	}
	r.waits = r.turns > 0
	if q := &p.queue; q.head != nil {
		r.waits = true
		r.backlog = backlog{q.head.whole, q.sum, q.head.work, q.left, q.at.Sub(t.epoch)}
	}

	if p.speed.last > 0 {
		r.until = p.speed.at.Add(fadeTime).Sub(t.epoch)
	}
	if c.Trust > 0 {
		r.aging = r.scraped + trustFull*p.stats.pause()
		r.until = min(r.until, r.scraped+trustNone*p.stats.pause())
	}
	if c.Health.Out != "" || c.Health.Ramp < 1 {
		r.until = outdated // it changes all the time, or spare changes it
	}
}
