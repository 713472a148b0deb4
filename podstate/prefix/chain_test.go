package prefix

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

func text(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

// whole is the chain of a prompt in one span.
func whole(seed uint64, prompt []byte) []Block {
	return Chain(nil, seed, prompt, []Span{{0, len(prompt)}})
}

func same(a, b []Block) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func TestChain(t *testing.T) {
	long := text(1, 1<<20)
	tests := []struct {
		name   string
		prompt []byte
		want   int // blocks
	}{
		{"an empty prompt has no block", nil, 0},
		{"an unfinished block does not count", long[:127], 0},
		{"a full block counts", long[:128], 1},
		{"4 KB are 32 blocks", long[:4096], 32},
		{"200 KB are a few hundred blocks", long[:200<<10], 288},
		{"512 KB are a few hundred blocks", long[:512<<10], 349},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := whole(7, tt.prompt)
			if len(got) != tt.want {
				t.Errorf("%d blocks, want %d", len(got), tt.want)
			}
			sum := 0
			for _, b := range got {
				sum += int(b.Bytes)
			}
			if sum > len(tt.prompt) || len(tt.prompt)-sum >= blockLen(sum) {
				t.Errorf("blocks cover %d of %d bytes", sum, len(tt.prompt))
			}
		})
	}
}

func TestChainNamesPrefixes(t *testing.T) {
	a := text(1, 10_000)
	b := slices.Concat(a[:5_000], text(2, 5_000))
	ca, cb := whole(7, a), whole(7, b)
	if n := same(ca, cb); n != 5_000/128 {
		t.Errorf("%d blocks in common, want those of the first 5,000 bytes: %d", n, 5_000/128)
	}
	c := slices.Concat([]byte("!"), a[1:])
	if n := same(ca, whole(7, c)); n != 0 {
		t.Errorf("%d blocks in common although the first byte differs", n)
	}
	if n := same(ca, whole(8, a)); n != 0 {
		t.Errorf("%d blocks in common although the seed differs", n)
	}
}

func TestChainStopsAtBadSpans(t *testing.T) {
	p := text(1, 1000)
	for _, bad := range []Span{{-1, 5}, {6, 5}, {0, 1001}} {
		got := Chain(nil, 7, p, []Span{{0, 500}, bad, {500, 1000}})
		if want := whole(7, p[:500]); !slices.Equal(got, want) {
			t.Errorf("span %v: %d blocks, want the %d before it", bad, len(got), len(want))
		}
	}
}

func TestSeed(t *testing.T) {
	seen := map[uint64][3]string{}
	for _, s := range [][3]string{{}, {"m"}, {"", "m"}, {"", "", "m"}, {"m", "a"}, {"ma"}, {"m", "", "a"}} {
		seed := Seed(s[0], s[1], s[2])
		if old, dup := seen[seed]; dup {
			t.Errorf("%q and %q share a name space", old, s)
		}
		seen[seed] = s
	}
}

// The way a prompt is cut into spans must not matter.
func FuzzChain(f *testing.F) {
	f.Add(text(1, 3000), uint64(1))
	f.Add([]byte("short"), uint64(2))
	f.Fuzz(func(t *testing.T, prompt []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		var body []byte
		var spans []Span
		for rest := prompt; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			body = append(body, `","content":"`...)
			spans = append(spans, Span{len(body), len(body) + n})
			body = append(body, rest[:n]...)
			rest = rest[n:]
		}
		got := Chain(nil, seed, body, spans)
		if want := whole(seed, bytes.Clone(prompt)); !slices.Equal(got, want) {
			t.Fatalf("%d spans: got %v, want %v", len(spans), got, want)
		}
	})
}
