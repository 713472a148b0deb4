package engine

import (
	"fmt"
	"testing"
)

func TestPrefixCache(t *testing.T) {
	const size = 128
	const text = 7
	for _, tt := range []struct {
		rule          string
		before, n     int // tokens of the first and the second prompt
		shared        int
		adapter, salt bool
		want          int
	}{
		{"the same again, but its last token", 4000, 4000, 4000, false, false, 3968},
		{"a shared start, whole blocks", 4000, 4000, 3000, false, false, 2944},
		{"one token short of a block", 4000, 4000, 127, false, false, 0},
		{"a block and one more token", 4000, 4000, 129, false, false, 128},
		{"a full last block is computed again", 4000, 256, 256, false, false, 128},
		{"the last token is alone in its block", 4000, 257, 257, false, false, 256},
		{"one block only", 4000, 128, 128, false, false, 0},
		{"another adapter", 4000, 4000, 4000, true, false, 0},
		{"another salt", 4000, 4000, 4000, false, true, 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			r := start(t, preset(t, "cpu-70m"))
			r.alone(&Request{Prompt: tt.before, Output: 1, Blocks: tokens(size, tt.before, tt.before, text, 0)})
			q := &Request{Prompt: tt.n, Output: 1, Blocks: tokens(size, tt.n, tt.shared, text, 1)}
			if tt.adapter {
				q.Adapter = "a"
			}
			if tt.salt {
				q.Salt = 1
			}
			r.alone(q)
			if q.Cached() != tt.want {
				t.Errorf("%d tokens cached, want %d", q.Cached(), tt.want)
			}
			if rep := r.e.Report(); rep.PrefixQueries != tt.before+tt.n || rep.PrefixHits != tt.want {
				t.Errorf("report counts %d of %d", rep.PrefixHits, rep.PrefixQueries)
			}
		})
	}

	t.Run("generated tokens are cached too", func(t *testing.T) {
		r := start(t, preset(t, "cpu-70m"))
		all := tokens(size, 600, 600, text, 0)
		r.alone(&Request{Prompt: 300, Output: 300, Blocks: all})
		q := &Request{Prompt: 600, Output: 1, Blocks: all}
		if r.alone(q); q.Cached() != 512 {
			t.Errorf("%d tokens cached, want 512", q.Cached())
		}
	})

	t.Run("a burst with one prefix pays for it once", func(t *testing.T) {
		r := start(t, preset(t, "cpu-70m"))
		var qs []*Request
		for range 3 {
			qs = append(qs, r.submit(0, &Request{Prompt: 2600, Output: 5, Blocks: tokens(size, 2600, 2600, text, 0)}))
		}
		r.finish()
		if a, b, c := qs[0].Cached(), qs[1].Cached(), qs[2].Cached(); a != 0 || b != 2560 || c != 2560 {
			t.Errorf("cached %d, %d, %d; want 0, 2560, 2560", a, b, c)
		}
	})

	t.Run("a reset forgets all that nobody uses", func(t *testing.T) {
		r := start(t, preset(t, "cpu-70m"))
		p := tokens(size, 1000, 1000, text, 0)
		r.alone(&Request{Prompt: 1000, Output: 1, Blocks: p})
		r.e.ResetCache()
		q := &Request{Prompt: 1000, Output: 1, Blocks: p}
		if r.alone(q); q.Cached() != 0 || len(r.e.kv.index) != 7 {
			t.Errorf("%d tokens cached, %d blocks in the index; want 0 and 7", q.Cached(), len(r.e.kv.index))
		}
	})

	// Measured with 260 blocks of 32 tokens: a prompt of 2,000, fillers, the prompt again.
	for _, tt := range []struct{ fill, low, high int }{{1500, 1984, 1984}, {6000, 1984, 1984}, {7500, 700, 900}, {9000, 0, 0}} {
		t.Run(fmt.Sprintf("least recently used and tail first after %d other tokens", tt.fill), func(t *testing.T) {
			cfg := preset(t, "cpu-70m")
			cfg.KVTokens, cfg.BlockTokens, cfg.MaxModelLen = 8320, 32, 8192
			r := start(t, cfg)
			p := tokens(32, 2000, 2000, text, 0)
			r.alone(&Request{Prompt: 2000, Output: 1, Blocks: p})
			for i := range 3 {
				n := tt.fill / 3
				r.alone(&Request{Prompt: n, Output: 1, Blocks: tokens(32, n, 0, 0, uint64(100+i))})
			}
			q := &Request{Prompt: 2000, Output: 1, Blocks: p}
			if r.alone(q); q.Cached() < tt.low || q.Cached() > tt.high {
				t.Errorf("%d tokens cached, want %d to %d", q.Cached(), tt.low, tt.high)
			}
		})
	}
}
