package scorers

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// reported is a pod that reports these fields, freshly scraped.
func reported(f podstate.Field, s podstate.Stats) podstate.Candidate {
	s.Known, s.Every = f, time.Second
	return podstate.Candidate{Stats: &s, Age: 0.5, Trust: 1}
}

// unreported is a pod that was never scraped.
func unreported() podstate.Candidate {
	return podstate.Candidate{Stats: &podstate.Stats{}, Age: math.Inf(1)}
}

func waits(n float64, unseen int) podstate.Candidate {
	c := reported(podstate.FieldWaiting, podstate.Stats{Waiting: n})
	c.Unseen, c.Charge.Requests = unseen, unseen
	return c
}

// defers has requests that wait, some of them for an adapter slot.
func defers(waiting, deferred float64, a podstate.AdapterState) podstate.Candidate {
	c := reported(podstate.FieldWaiting|podstate.FieldDeferred, podstate.Stats{Waiting: waiting, Deferred: deferred})
	c.Adapter = a
	return c
}

func runs(n float64, unseen int) podstate.Candidate {
	c := reported(podstate.FieldRunning, podstate.Stats{Running: n})
	c.Unseen, c.Charge.Requests = unseen, unseen
	return c
}

func uses(kv float64, held float64) podstate.Candidate {
	c := reported(podstate.FieldKVUsage|podstate.FieldKVTokens, podstate.Stats{KVUsage: kv, KVTokens: 1000})
	c.Charge = podstate.Charge{Requests: 2, Held: held}
	c.Unseen = 1
	return c
}

func trusted(c podstate.Candidate, trust float64) podstate.Candidate {
	c.Trust = trust
	return c
}

func aged(c podstate.Candidate, age float64) podstate.Candidate {
	c.Age, c.Trust = age, 0
	return c
}

func caches(tokens int) podstate.Candidate { return podstate.Candidate{Cached: tokens} }

func adapter(a podstate.AdapterState) podstate.Candidate { return podstate.Candidate{Adapter: a} }

func cold(order uint64) podstate.Candidate { return podstate.Candidate{LastCold: order} }

func busy(requests int, ahead float64) podstate.Candidate {
	return podstate.Candidate{Charge: podstate.Charge{Requests: requests, Ahead: ahead}}
}

func TestScores(t *testing.T) {
	type pods = []podstate.Candidate
	tests := []struct {
		name, scorer string
		pods         pods
		want         []float64
	}{
		{"the queue is scaled between best and worst", "queue", pods{waits(0, 0), waits(1, 0), waits(4, 0)}, []float64{1, 0.75, 0}},
		{"equal queues are all best", "queue", pods{waits(3, 0), waits(3, 0)}, []float64{1, 1}},
		{"unseen requests wait", "queue", pods{waits(0, 4), waits(3, 0), waits(2, 0)}, []float64{0, 0.5, 1}},
		{"an unknown queue is the median", "queue", pods{waits(0, 0), waits(4, 0), waits(2, 0), unreported()}, []float64{1, 0, 0.5, 0.5}},
		{"half of the trust moves a queue to the median", "queue", pods{waits(0, 0), waits(4, 0), trusted(waits(8, 0), 0.5)}, []float64{1, 1. / 3, 0}},
		{"a queue without trust is the median", "queue", pods{waits(0, 0), waits(4, 0), trusted(waits(8, 0), 0)}, []float64{1, 0, 0.5}},
		{"unknown queues are equal", "queue", pods{unreported(), unreported()}, []float64{1, 1}},

		{"running is scaled between best and worst", "running", pods{runs(2, 0), runs(3, 0), runs(4, 0)}, []float64{1, 0.5, 0}},
		{"unseen requests run", "running", pods{runs(0, 4), runs(2, 0)}, []float64{0, 1}},

		{"free KV cache", "kvCache", pods{uses(0.25, 0), uses(1, 0)}, []float64{0.75, 0}},
		{"half of the held tokens are unseen", "kvCache", pods{uses(0.25, 500), uses(0.9, 500)}, []float64{0.5, 0}},
		{"an unknown KV cache is the median", "kvCache", pods{uses(0.25, 0), uses(0.75, 0), unreported()}, []float64{0.75, 0.25, 0.5}},

		{"cached share of the prompt", "prefix", pods{caches(0), caches(50), caches(100)}, []float64{0, 0.5, 1}},

		{"adapter", "loraAffinity", pods{adapter(podstate.AdapterResident), adapter(podstate.AdapterFree), adapter(podstate.AdapterFull), adapter(podstate.AdapterMissing)}, []float64{1, 0.8, 0, 0}},
		{"a slot queue is nothing to those without an adapter", "queue", pods{defers(9, 9, podstate.AdapterNone), defers(3, 0, podstate.AdapterNone)}, []float64{1, 0}},
		{"nor to those whose adapter has a slot", "queue", pods{defers(9, 9, podstate.AdapterResident), defers(3, 0, podstate.AdapterFree)}, []float64{1, 0}},
		{"and is one for all others", "queue", pods{defers(9, 9, podstate.AdapterFull), defers(3, 0, podstate.AdapterFree)}, []float64{0, 1}},
		{"no adapter", "loraAffinity", pods{adapter(podstate.AdapterNone), adapter(podstate.AdapterNone)}, []float64{1, 1}},

		{"cold requests go where none was for longest", "lru", pods{cold(9), cold(0), cold(4)}, []float64{0, 1, 0.5}},
		{"warm requests do not care", "lru", pods{cold(9), cold(0), caches(1)}, []float64{0.5, 0.5, 0.5}},
		{"a single pod is the best", "lru", pods{cold(9)}, []float64{1}},

		{"requests in flight", "activeRequests", pods{busy(0, 0), busy(1, 0), busy(4, 0)}, []float64{1, 0.75, 0}},
		{"idle pods are equal", "activeRequests", pods{busy(0, 0), busy(0, 0)}, []float64{1, 1}},
		{"tokens ahead", "tokenLoad", pods{busy(1, 1<<21-100), busy(1, 1<<30)}, []float64{0.5, 0}},
		{"waiting against a fixed scale", "loadAware", pods{waits(0, 0), waits(64, 0), waits(60, 4), waits(999, 0)}, []float64{0.5, 0.25, 0.25, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.scorer+"/"+tt.name, func(t *testing.T) {
			for i := range tt.pods {
				if tt.pods[i].Stats == nil {
					tt.pods[i].Stats = &podstate.Stats{}
				}
			}
			got := make([]float64, len(tt.pods))
			for i := range got {
				got[i] = -7 // leftovers of the pick before
			}
			builders[tt.scorer]().Score(&Request{Tokens: 100}, tt.pods, got)
			if !slices.EqualFunc(got, tt.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-3 }) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// named gives candidates pods, with addresses 10.0.0.1:8000 and so on.
func named(cands ...podstate.Candidate) []podstate.Candidate {
	for i := range cands {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i + 1)}), 8000)
		cands[i].Pod = &podstate.Pod{Spec: podstate.Spec{Name: strconv.Itoa(i), Addr: addr}, Addr: addr.String(), Slot: i}
		if cands[i].Stats == nil {
			cands[i].Stats = &podstate.Stats{}
		}
	}
	return cands
}
