package engine

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// run is an engine with a virtual clock and a note of when things happened.
type run struct {
	t     testing.TB
	e     *Engine
	now   time.Duration
	first map[*Request]time.Duration
	end   map[*Request]time.Duration
}

func start(t testing.TB, cfg Config) *run {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &run{t: t, e: e, first: map[*Request]time.Duration{}, end: map[*Request]time.Duration{}}
}

func preset(t testing.TB, name string) Config {
	t.Helper()
	c, err := Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// until plays all steps that end by then.
func (r *run) until(then time.Duration) {
	for {
		at, busy := r.e.Next()
		if !busy || at > then {
			break
		}
		r.now = at
		for _, ev := range r.e.EndStep() {
			m := r.first
			if ev.Kind == Finished {
				m = r.end
			}
			if _, twice := m[ev.Request]; twice {
				r.t.Fatalf("event %d came twice", ev.Kind)
			}
			m[ev.Request] = at
		}
	}
	if then < math.MaxInt64 {
		r.now = then
	}
}

func (r *run) finish() { r.until(math.MaxInt64) }

func (r *run) submit(at time.Duration, q *Request) *Request {
	r.t.Helper()
	r.until(at)
	if err := r.e.Submit(at, q); err != nil {
		r.t.Fatal(err)
	}
	return q
}

// alone submits one request to an idle engine and waits for its end.
func (r *run) alone(q *Request) (ttft time.Duration) {
	r.t.Helper()
	at := r.now
	r.submit(at, q)
	r.finish()
	return r.first[q] - at
}

// tokens makes the blocks of a text: n tokens of which the first shared ones are
// those of the named text, and the rest belong to nobody else.
func tokens(size, n, shared int, text, rest uint64) []uint64 {
	var out []uint64
	h := mix(text)
	for i := 1; i <= n/size; i++ {
		seed := text
		if i*size > shared {
			seed = rest
		}
		h = mix(h ^ mix(seed) + uint64(i))
		out = append(out, h)
	}
	return out
}

// Whatever comes, in any order: all that is not aborted ends once with all of its
// tokens, and nothing is left behind.
func FuzzNothingIsLost(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := preset(t, "cpu-70m")
		cfg.BlockTokens = 1 + rng.IntN(40)
		cfg.KVTokens = 2000 + rng.IntN(4000)
		cfg.MaxSeqs = 1 + rng.IntN(20)
		cfg.TokenBudget = cfg.MaxSeqs + rng.IntN(500)
		cfg.MaxModelLen = 1500
		cfg.AdapterSlots = rng.IntN(3)
		r := start(t, cfg)
		var sent, aborted []*Request
		tokens := 0
		for range 200 {
			q := &Request{Prompt: 1 + rng.IntN(1000), Output: 1 + rng.IntN(400), Salt: rng.Uint64N(2)}
			if cfg.AdapterSlots > 0 {
				q.Adapter = []string{"", "a", "b", "c"}[rng.IntN(4)]
			}
			text := rng.Uint64N(5)
			q.Blocks = testBlocks(cfg.BlockTokens, q, text, rng)
			r.submit(r.now+time.Duration(rng.IntN(int(time.Second))), q)
			if rng.IntN(10) == 0 {
				r.until(r.now + time.Duration(rng.IntN(int(time.Second))))
				if _, over := r.end[q]; !over {
					r.e.Abort(q)
					aborted = append(aborted, q)
					continue
				}
			}
			sent = append(sent, q)
			tokens += q.Output
		}
		r.finish()
		for _, q := range sent {
			if r.end[q] == 0 || r.first[q] == 0 || r.first[q] > r.end[q] || r.e.Generated(q) != q.Output {
				t.Fatalf("request of %d and %d tokens: first %v, end %v, generated %d", q.Prompt, q.Output, r.first[q], r.end[q], r.e.Generated(q))
			}
		}
		for _, q := range aborted {
			if r.end[q] != 0 {
				t.Fatal("an aborted request ended")
			}
		}
		e := r.e
		if e.report.GenerationTokens < tokens || len(aborted) == 0 && e.report.GenerationTokens != tokens {
			t.Fatalf("%d tokens generated, want %d", e.report.GenerationTokens, tokens)
		}
		if e.kv.nfree != len(e.kv.block)-1 || e.context != 0 || e.decoders != 0 || e.waiting.len() != 0 || e.waiting.deferred != 0 || e.InFlight() != 0 {
			t.Fatalf("left behind: %d free of %d, context %d, decoders %d, waiting %d, deferred %d",
				e.kv.nfree, len(e.kv.block)-1, e.context, e.decoders, e.waiting.len(), e.waiting.deferred)
		}
		for _, s := range e.adapters.slot {
			if s.users != 0 || s.visible != 0 {
				t.Fatalf("adapter %q: %d users, %d visible", s.name, s.users, s.visible)
			}
		}
		for key, b := range e.kv.index {
			if e.kv.block[b].key != key {
				t.Fatal("the index points at another block")
			}
		}
	})
}

func testBlocks(size int, q *Request, text uint64, rng *rand.Rand) []uint64 {
	n := q.Prompt + q.Output
	return tokens(size, n, rng.IntN(n+1), text, rng.Uint64())
}

// Steps a second of a busy engine, and how much faster than its own clock it is.
func BenchmarkSteps(b *testing.B) {
	for _, name := range []string{"h100-8b", "a10g-8b"} {
		b.Run(name, func(b *testing.B) {
			cfg := preset(b, name)
			r := start(b, cfg)
			rng := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			next := time.Duration(0)
			var pool []*Request
			for b.Loop() {
				at, busy := r.e.Next()
				for !busy || next <= at {
					q := &Request{}
					if n := len(pool); n > 0 {
						q, pool = pool[n-1], pool[:n-1]
					}
					q.Prompt, q.Output = 100+rng.IntN(1000), 50+rng.IntN(300)
					if err := r.e.Submit(next, q); err != nil {
						b.Fatal(err)
					}
					next += time.Duration(rng.ExpFloat64() * float64(200*time.Millisecond))
					at, busy = r.e.Next()
				}
				for _, ev := range r.e.EndStep() {
					if ev.Kind == Finished {
						pool = append(pool, ev.Request)
					}
				}
			}
			b.ReportMetric(next.Seconds()/b.Elapsed().Seconds(), "x-realtime")
		})
	}
}
