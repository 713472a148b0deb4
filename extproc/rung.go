package extproc

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/podstate"
)

// rungs shows how much is known about the pools: now, and at each decision, for
// what was true between two readings of the metrics.
type rungs struct {
	pools  []Pool
	picked [][podstate.Rungs]atomic.Uint64 // by pool

	now, decisions *prometheus.Desc
}

func newRungs(pools []Pool) *rungs {
	labels := []string{"pool", "rung"}
	return &rungs{
		pools: pools, picked: make([][podstate.Rungs]atomic.Uint64, len(pools)),
		now: prometheus.NewDesc("warmpath_extproc_rung",
			"1 for the rung on which the pool's decisions stand: fresh, stale, in-flight, hash; else 0.", labels, nil),
		decisions: prometheus.NewDesc("warmpath_extproc_rung_decisions_total",
			"Requests that got a pod, by the rung on which their decision stood; random is one without a prompt.", labels, nil),
	}
}

func (r *rungs) note(pool int, rung podstate.Rung) {
	if rung < podstate.Rungs {
		r.picked[pool][rung].Add(1)
	}
}

func (r *rungs) Describe(ch chan<- *prometheus.Desc) {
	ch <- r.now
	ch <- r.decisions
}

func (r *rungs) Collect(ch chan<- prometheus.Metric) {
	for i, p := range r.pools {
		now := podstate.RungOf(p.Table.Snapshot(time.Now()))
		for rung := range podstate.Rung(podstate.Rungs) {
			if rung != podstate.RungRandom {
				on := 0.0
				if rung == now {
					on = 1
				}
				ch <- prometheus.MustNewConstMetric(r.now, prometheus.GaugeValue, on, p.Name, rung.String())
			}
			n := float64(r.picked[i][rung].Load())
			ch <- prometheus.MustNewConstMetric(r.decisions, prometheus.CounterValue, n, p.Name, rung.String())
		}
	}
}
