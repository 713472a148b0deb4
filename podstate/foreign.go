package podstate

// others is what a pod reports beyond what this replica has sent: requests of
// other replicas, of other gateways, or from before this one started.
type others struct {
	foreign
	begun bool // it was scraped
	last  [2]float64
}

// foreign is requests that are not ours, as of the last scrape.
type foreign struct{ requests, waiting float64 }

// scraped compares what the pod says with what it has of ours. Gauges trail by a
// step, so a request of ours that has just ended still shows: what is of others
// must stand in two scrapes.
func (o *others) scraped(s *Stats, ours int) {
	told := max(s.Running+s.Waiting, s.Load)
	requests := max(0, told-float64(ours))
	now := [2]float64{requests, min(requests, s.Waiting)}
	if !o.begun {
		o.begun, o.last = true, now
	}
	o.requests, o.waiting = min(now[0], o.last[0]), min(now[1], o.last[1])
	o.last = now
}

// believed sums up what pods report of others, by how far they are believed.
type believed struct {
	trust float64
	foreign
}

func (b *believed) add(trust float64, f foreign) {
	b.trust += trust
	b.requests += trust * f.requests
	b.waiting += trust * f.waiting
}

func (b *believed) mean() foreign { return foreign{b.requests / b.trust, b.waiting / b.trust} }

// fillForeignLocked completes candidates by what others have sent. Of a pod that
// is not believed, the mean of the others is assumed.
func (t *Table) fillForeignLocked(cands []Candidate, mean foreign) {
	for i := range cands {
		c, o := &cands[i], &t.rows[i].foreign
		c.Foreign = c.Trust*o.requests + (1-c.Trust)*mean.requests
		w := t.rows[i].mean
		if w.tokens == 0 {
			w = foreignWork
		}
		c.Wait += (c.Trust*o.waiting + (1-c.Trust)*mean.waiting) * c.Speed.of(w)
	}
}

// foreignWork is the prompt of a request that we know nothing of, where this
// replica has sent none to compare it with.
var foreignWork = newWork(1000, 0)
