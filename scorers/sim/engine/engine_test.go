package engine

import (
	"math"
	"slices"
	"testing"
	"time"
)

func within(got, want time.Duration, share float64) bool {
	return math.Abs(float64(got-want)) <= share*float64(want)
}

// The numbers are of a real server, see presets.
func TestTimesAreThoseOfARealServer(t *testing.T) {
	for _, m := range []struct {
		tokens int
		ms     time.Duration
	}{
		{16, 27}, {64, 61}, {128, 106}, {256, 209}, {512, 421}, {1024, 993}, {1536, 1466}, {2047, 2164},
		{2500, 2794}, {4096, 5605}, {6144, 10249}, {8000, 15759},
	} {
		r := start(t, preset(t, "cpu-70m"))
		if got := r.alone(&Request{Prompt: m.tokens, Output: 1}); !within(got, m.ms*time.Millisecond, 0.10) {
			t.Errorf("first token of %d tokens after %v, measured %v ms", m.tokens, got, int(m.ms))
		}
	}

	t.Run("cached context still costs attention", func(t *testing.T) {
		r := start(t, preset(t, "cpu-70m"))
		r.alone(&Request{Prompt: 4480, Output: 1, Blocks: tokens(128, 4480, 3968, 1, 2)})
		q := &Request{Prompt: 4480, Output: 1, Blocks: tokens(128, 4480, 3968, 1, 3)}
		if got := r.alone(q); q.Cached() != 3968 || !within(got, 1060*time.Millisecond, 0.05) {
			t.Errorf("512 new after %d cached tokens: %v, measured 1.06 s after 3968", q.Cached(), got)
		}
	})

	t.Run("decode step", func(t *testing.T) {
		for _, m := range []struct {
			batch, context int
			ms             float64
		}{{1, 32, 14}, {8, 32, 20}, {16, 32, 24}, {1, 1024, 18}, {8, 1024, 31}, {16, 1024, 46}} {
			r := start(t, preset(t, "cpu-70m"))
			var q *Request
			for range m.batch {
				q = r.submit(0, &Request{Prompt: m.context, Output: 80})
			}
			r.finish()
			step := (r.end[q] - r.first[q]) / 79
			if !within(step, time.Duration(m.ms*float64(time.Millisecond)), 0.25) {
				t.Errorf("batch %d, context %d: step %v, measured %v ms", m.batch, m.context, step, m.ms)
			}
		}
	})

	// Four requests decode; 4,000 tokens come at 2 s, 32 at 2.5 s, 600 at 3 s.
	t.Run("a long prompt takes the whole budget until its last chunk", func(t *testing.T) {
		r := start(t, preset(t, "cpu-70m"))
		for range 4 {
			r.submit(0, &Request{Prompt: 32, Output: 2000})
		}
		long := r.submit(2000*time.Millisecond, &Request{Prompt: 4000, Output: 10})
		short := r.submit(2500*time.Millisecond, &Request{Prompt: 32, Output: 10})
		middle := r.submit(3000*time.Millisecond, &Request{Prompt: 600, Output: 10})
		r.finish()
		if r.first[short] < r.first[long] {
			t.Errorf("the short prompt overtook: %v and %v", r.first[short], r.first[long])
		}
		for q, m := range map[*Request]time.Duration{short: 7430 * time.Millisecond, middle: 7910 * time.Millisecond} {
			if !within(r.first[q], m, 0.05) {
				t.Errorf("first token of %d tokens at %v, measured %v", q.Prompt, r.first[q], m)
			}
		}
	})
}

func TestReport(t *testing.T) {
	t.Run("arrivals during a step are unknown until the next one ends", func(t *testing.T) {
		r := start(t, preset(t, "cpu-70m"))
		long := r.submit(0, &Request{Prompt: 5000, Output: 10})
		for range 5 {
			r.submit(100*time.Millisecond, &Request{Prompt: 32, Output: 10})
		}
		if rep := r.e.Report(); rep.Running != 0 || r.e.InFlight() != 6 {
			t.Errorf("within the first step: running %d, in flight %d; want 0 and 6", rep.Running, r.e.InFlight())
		}
		at, _ := r.e.Next()
		r.until(at)
		if rep := r.e.Report(); rep.Running != 1 || rep.Waiting != 0 || rep.PromptTokens != 0 || rep.PrefixQueries != 5000 {
			t.Errorf("after the first chunk: %+v", rep)
		}
		at, _ = r.e.Next()
		r.until(at)
		if rep := r.e.Report(); rep.Waiting != 5 {
			t.Errorf("after the second chunk: %d waiting, want 5", rep.Waiting)
		}
		r.finish()
		if rep := r.e.Report(); rep.Running+rep.Waiting != 0 || rep.KVUsage != 0 || rep.PromptTokens != 5160 || rep.GenerationTokens != 60 {
			t.Errorf("at the end: %+v", rep)
		}
		if r.first[long] == 0 {
			t.Error("no first token")
		}
	})

	t.Run("the KV gauge grows by chunks", func(t *testing.T) {
		r := start(t, preset(t, "cpu-70m"))
		r.submit(0, &Request{Prompt: 5000, Output: 10})
		for _, want := range []int{2048, 4096, 5000} {
			at, _ := r.e.Next()
			r.until(at)
			blocks := float64(preset(t, "cpu-70m").KVTokens/128 - 1)
			if got := r.e.Report().KVUsage; math.Abs(got-math.Ceil(float64(want)/128)/blocks) > 1e-9 {
				t.Errorf("usage %v after %d tokens", got, want)
			}
		}
	})

	t.Run("a full batch lets nobody in", func(t *testing.T) {
		cfg := preset(t, "cpu-70m")
		cfg.MaxSeqs = 4
		r := start(t, cfg)
		var qs []*Request
		for range 10 {
			qs = append(qs, r.submit(0, &Request{Prompt: 32, Output: 50}))
		}
		r.until(200 * time.Millisecond)
		if rep := r.e.Report(); rep.Running != 4 || rep.Waiting != 6 || rep.Deferred != 0 {
			t.Errorf("%+v, want 4 running and 6 waiting", rep)
		}
		r.finish()
		for i := 1; i < len(qs); i++ {
			if r.first[qs[i]] < r.first[qs[i-1]] {
				t.Errorf("request %d overtook", i)
			}
		}
	})
}

// Measured: 16 requests of 290 and 600 tokens in 8,320 tokens of cache.
func TestFullCachePreemptsTheLatest(t *testing.T) {
	cfg := preset(t, "cpu-70m")
	cfg.KVTokens, cfg.BlockTokens, cfg.MaxModelLen = 8320, 32, 8192
	r := start(t, cfg)
	var qs []*Request
	for range 16 {
		qs = append(qs, r.submit(0, &Request{Prompt: 290, Output: 600}))
	}
	least, most := 16, 0
	for len(r.end) == 0 {
		at, _ := r.e.Next()
		r.until(at)
		if rep := r.e.Report(); len(r.first) == 16 && len(r.end) == 0 {
			least, most = min(least, rep.Running), max(most, rep.Waiting)
			if rep.Preemptions != 0 {
				t.Fatal("a preemption was counted before its victim ran again")
			}
		}
	}
	if least > 10 || least+most != 16 {
		t.Errorf("down to %d running, up to %d waiting; about half must leave", least, most)
	}
	r.finish()
	if rep := r.e.Report(); rep.Preemptions < 5 || rep.GenerationTokens != 16*600 || rep.PromptTokens != 16*290 {
		t.Errorf("at the end: %+v", rep)
	}
	if slices.MaxFunc(qs, func(a, b *Request) int { return int(r.end[a] - r.end[b]) }) == qs[0] {
		t.Error("the earliest request was the last to end")
	}
}

func TestAdapters(t *testing.T) {
	cfg := preset(t, "cpu-70m")
	cfg.AdapterSlots = 2
	r := start(t, cfg)
	r.submit(0, &Request{Prompt: 32, Output: 200, Adapter: "a"})
	b := r.submit(0, &Request{Prompt: 32, Output: 400, Adapter: "b"})
	c := r.submit(0, &Request{Prompt: 32, Output: 10, Adapter: "c"})
	again := r.submit(time.Second, &Request{Prompt: 32, Output: 400, Adapter: "a"})
	base := r.submit(time.Second, &Request{Prompt: 32, Output: 10})
	r.until(2 * time.Second)
	if rep := r.e.Report(); rep.Deferred != 1 || rep.Waiting != 1 || !slices.Equal(rep.Adapters, []string{"a", "b"}) {
		t.Errorf("%+v, want one deferred and adapters a and b", rep)
	}
	if r.first[base] == 0 || r.first[again] == 0 {
		t.Error("requests that need no new slot were held up")
	}
	r.finish()
	if r.first[c] < min(r.end[again], r.end[b]) {
		t.Errorf("c got a slot at %v, before every request of another adapter had ended", r.first[c])
	}
	if rep := r.e.Report(); rep.AdapterLoads != 3 || len(rep.Adapters) != 0 {
		t.Errorf("%d loads, adapters %v; want 3 and none", rep.AdapterLoads, rep.Adapters)
	}
	warm := r.alone(&Request{Prompt: 32, Output: 1, Adapter: "c"})
	cold := r.alone(&Request{Prompt: 32, Output: 1, Adapter: "d"})
	if d := cold - warm; d != cfg.AdapterLoad+cfg.AdapterFetch {
		t.Errorf("a new adapter costs %v, want %v", d, cfg.AdapterLoad+cfg.AdapterFetch)
	}
}

func TestAbort(t *testing.T) {
	r := start(t, preset(t, "cpu-70m"))
	run := r.submit(0, &Request{Prompt: 64, Output: 1000})
	r.until(time.Second)
	long := r.submit(time.Second, &Request{Prompt: 5000, Output: 10})
	inbox := r.submit(time.Second, &Request{Prompt: 64, Output: 10})
	r.e.Abort(inbox)
	r.until(1100 * time.Millisecond)
	late := r.submit(1100*time.Millisecond, &Request{Prompt: 64, Output: 10})
	r.e.Abort(long)
	r.e.Abort(run)
	r.finish()
	if len(r.end) != 1 || r.end[late] == 0 {
		t.Errorf("%d requests ended, want only the one that was not aborted", len(r.end))
	}
	if rep := r.e.Report(); rep.Running+rep.Waiting != 0 || rep.KVUsage != 0 || rep.PromptTokens != 128 {
		t.Errorf("at the end: %+v", rep)
	}
	r.e.Abort(late) // has finished: nothing happens
}

func TestImpossibleRequestsAndSettingsAreErrors(t *testing.T) {
	good := preset(t, "cpu-70m")
	r := start(t, good)
	for _, q := range []*Request{{Prompt: 0, Output: 1}, {Prompt: 1, Output: 0}, {Prompt: 8192, Output: 1}} {
		if err := r.e.Submit(0, q); err == nil {
			t.Errorf("%d and %d tokens were taken", q.Prompt, q.Output)
		}
	}
	for name, edit := range map[string]func(*Config){
		"no block":        func(c *Config) { c.BlockTokens = 0 },
		"no cache":        func(c *Config) { c.KVTokens = 128 },
		"budget too low":  func(c *Config) { c.TokenBudget = 15 },
		"length too long": func(c *Config) { c.MaxModelLen = 100_000 },
		"negative slots":  func(c *Config) { c.AdapterSlots = -1 },
	} {
		c := good
		edit(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Preset("h200"); err == nil {
		t.Error("unknown preset: no error")
	}
	for name := range presets {
		if _, err := New(preset(t, name)); err != nil {
			t.Errorf("preset %s: %v", name, err)
		}
	}
}
