package podstate

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

func TestARowThatIsKeptEqualsOneMadeAnew(t *testing.T) {
	for seed := range uint64(40) {
		w := &storm{rng: rand.New(rand.NewPCG(seed, 1)), table: NewTable(), now: t0}
		w.table.SetPods(specs(8))
		for op := range 400 {
			w.step()
			if w.rng.IntN(4) > 0 {
				continue // rows are to survive several steps
			}
			kept := w.table.Snapshot(w.now)
			for _, p := range w.table.pods {
				w.table.touchLocked(p)
			}
			for i, anew := range w.table.Snapshot(w.now) {
				if kept[i] != anew {
					t.Fatalf("seed %d, step %d, pod %d:\nkept %+v\nanew %+v", seed, op, i, kept[i], anew)
				}
			}
		}
	}
}

// storm is everything that happens to a table, at random.
type storm struct {
	rng   *rand.Rand
	table *Table
	now   time.Time
	open  []*Reservation
	done  float64 // of the pods' counters
}

func (w *storm) step() {
	w.now = w.now.Add(time.Duration(w.rng.ExpFloat64() * 3e7))
	if w.rng.IntN(200) == 0 {
		w.now = w.now.Add(time.Duration(w.rng.IntN(40)) * time.Second)
	}
	pods := w.table.Pods()
	p := pods[w.rng.IntN(len(pods))]
	switch k := w.rng.IntN(20); {
	case k < 7:
		w.send()
	case k < 10 && len(w.open) > 0:
		w.open[w.rng.IntN(len(w.open))].FirstToken(w.now)
	case k < 15 && len(w.open) > 0:
		w.hear(pods)
	case k < 18:
		w.scrape(p)
	case k < 19:
		w.table.ScrapeRefused(p, w.now)
		if w.rng.IntN(2) == 0 {
			w.table.ScrapeAnswered(p, w.now)
		}
	case w.rng.IntN(4) == 0:
		some := specs(10)
		w.rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		w.table.SetPods(some[:1+w.rng.IntN(len(some))])
	}
}

func (w *storm) send() {
	ask := &Ask{Now: w.now, Tokens: 1 + w.rng.IntN(8000), Output: 100 * w.rng.IntN(3), Whole: w.rng.IntN(5) == 0}
	for range w.rng.IntN(12) {
		ask.Cached = append(ask.Cached, int32(max(0, w.rng.IntN(2000)-1000)))
		ask.Retention = append(ask.Retention, float32(w.rng.IntN(3)))
	}
	if w.rng.IntN(4) == 0 {
		ask.Adapter = "a" + strconv.Itoa(w.rng.IntN(6))
	}
	r, err := w.table.PickAndReserve(ask, func(c []Candidate) (int, int) {
		return w.rng.IntN(len(c)), w.rng.IntN(len(c))
	})
	if err == nil {
		w.open = append(w.open, r)
	}
}

// hear hears of one of the oldest requests; the news may come in any order.
func (w *storm) hear(pods []*Pod) {
	i := w.rng.IntN(min(5, len(w.open)))
	switch r := w.open[i]; w.rng.IntN(10) {
	case 0:
		r.Served(pods[w.rng.IntN(len(pods))].Addr)
	case 1:
		r.Failed(w.now)
	case 2:
		r.Refused()
	case 3, 4, 5:
		r.Succeeded(w.now)
	default:
		r.Release(w.now)
		w.open = append(w.open[:i], w.open[i+1:]...)
	}
}

func (w *storm) scrape(p *Pod) {
	mark := w.table.BeginScrape(p)
	w.done += w.rng.Float64() * float64(w.rng.IntN(2))
	s := &Stats{At: w.now, Every: time.Duration(w.rng.IntN(3)) * time.Second, Epoch: w.rng.IntN(100) / 99,
		Known: FieldRunning | FieldWaiting | FieldKVUsage | FieldKVTokens | FieldPromptTokens | FieldGenerationTokens |
			FieldMaxRunning | FieldMaxAdapters | FieldAdapters,
		Running: float64(w.rng.IntN(6)), Waiting: float64(w.rng.IntN(3)), KVUsage: w.rng.Float64(),
		KVTokens: 100_000 * (1 + p.Slot%3), MaxRunning: 4 + p.Slot, MaxAdapters: 2,
		PromptTokens: 4000 * w.done, GenerationTokens: 500 * w.done,
		Adapters: []string{"a" + strconv.Itoa(w.rng.IntN(6))},
	}
	switch w.rng.IntN(12) {
	case 0:
		s.Known = Field(w.rng.Uint32())
	case 1, 2, 3:
		s.Running, s.Waiting = 0, 0
	}
	w.table.SetStats(p, s, mark)
}
