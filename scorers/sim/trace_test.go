package sim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMooncakeFormat(t *testing.T) {
	tr, err := readMooncake(strings.NewReader(`{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}

{"timestamp": 3000, "input_length": 1030, "output_length": 0, "hash_ids": [0, 1, 7]}
{"timestamp": 3000, "input_length": 700, "output_length": 9}
`))
	if err != nil {
		t.Fatal(err)
	}
	q := tr.Requests
	if len(q) != 3 || q[0].Tokens() != 1100 || q[1].Tokens() != 1030 || q[2].Tokens() != 700 {
		t.Fatalf("%+v", q)
	}
	if q[1].At != 3*time.Second || q[1].Output != 1 || q[0].Output != 5 {
		t.Errorf("second request %+v", q[1])
	}
	a, b := engineBlocks(nil, q[0].Prompt, 256), engineBlocks(nil, q[1].Prompt, 256)
	if len(a) != 4 || len(b) != 4 || !slices.Equal(a, b) {
		t.Errorf("two equal ids are 1,024 equal tokens: blocks %x and %x", a, b)
	}
	if c := engineBlocks(nil, q[2].Prompt, 256); c[0] == a[0] {
		t.Error("a request without ids shares a prefix")
	}
}

func TestAzureFormat(t *testing.T) {
	tr, err := readAzure(strings.NewReader("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:16:50.6805900,0,0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if q := tr.Requests; len(q) != 2 || q[0].At != 0 || q[0].Tokens() != 374 || q[0].Output != 44 || q[1].At != 64*time.Second || q[1].Tokens() != 1 || q[1].Output != 1 {
		t.Errorf("%+v", q)
	}
}

func TestBrokenTracesAreNamed(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ name, text, says string }{
		{"a.jsonl", "{\"timestamp\": 0, \"input_length\": 10}\n{", "line 2"},
		{"a.jsonl", `{"timestamp": 0, "input_length": 0}`, "line 1"},
		{"a.jsonl", "", "no requests"},
		{"a.csv", "a,b,c\n", "columns"},
		{"a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,1\n", "line 2"},
		{"a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,x,1\n", "line 2"},
		{"a.csv", "", "the file is empty; want a first line with the columns [TIMESTAMP"},
		{"a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\n9999-11-16 18:15:46,1,1\n", "line 3: 2.913e+06 days after the first request; at most 31: correct"},
		{"a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\n2022-11-16 18:15:46,1,1\n", "line 3: -365 days"},
		{"a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,-1\n", `line 2: GeneratedTokens is "-1": want a whole number from 0 to 16777216`},
		{"a.jsonl", "{\"timestamp\": 0, \"input_length\": 1}\n{\"timestamp\": 1e300, \"input_length\": 1}", "line 2: 1.157e+292 days after the first"},
		{"a.jsonl", `{"timestamp": 0, "input_length": 1, "output_length": -2}`, "line 1: output_length is -2: want a whole number from 0 to 16777216"},
		{"a.jsonl", "\n" + strings.Repeat(" ", maxTraceLine), "line 2 is longer than 1048576 bytes"},
		{"a.txt", "", "unknown kind"},
	} {
		path := filepath.Join(dir, tt.name)
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTrace(path); err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%.200q: error %v, want one with %q and the path", tt.text, err, tt.says)
		}
	}
	if _, err := ReadTrace(filepath.Join(dir, "none.csv")); err == nil {
		t.Error("a missing file is no error")
	}
}

// The order of rows does not matter, nor when the clock began.
func TestTracesBeginWithTheirEarliestRequest(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.csv":   "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\n2023-11-16 18:15:44,1,1\n",
		"a.jsonl": "{\"timestamp\": 1700000002000, \"input_length\": 1}\n{\"timestamp\": 1700000000000, \"input_length\": 1}",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		tr, err := ReadTrace(path)
		if err != nil {
			t.Fatal(err)
		}
		if q := tr.Requests; q[0].At != 2*time.Second || q[1].At != 0 {
			t.Errorf("%s: requests at %v and %v, want 2 s and 0", name, q[0].At, q[1].At)
		}
	}
}

// D1 plays no trace of its own, so it does not say how fast.
func TestATraceIsPlayedAsFastAsRecordedUnlessToldOtherwise(t *testing.T) {
	tr := &Trace{Requests: []Request{{At: 0}, {At: time.Minute}}}
	load := (&study{scenario: scenario(t, "D1"), trace: tr}).load(1, 1)
	if at := load[1].At; at != time.Minute {
		t.Errorf("the last request comes at %v, want 1 min", at)
	}
}

func TestPlayingATrace(t *testing.T) {
	tr := &Trace{Rotate: true}
	for i := range 100 {
		tr.Requests = append(tr.Requests, Request{At: time.Duration(i) * time.Second, Prompt: []Segment{{uint64(i), 1}}, Output: 1})
	}
	a, b := tr.play(newGen(1, 2), 5), tr.play(newGen(2, 2), 5)
	if a[0].Prompt[0].ID == b[0].Prompt[0].ID {
		t.Error("two seeds start at the same place")
	}
	for _, load := range [][]Request{a, b} {
		if len(load) != 100 || load[99].At > 10*time.Second || !slices.IsSortedFunc(load, func(x, y Request) int { return int(x.At - y.At) }) {
			t.Errorf("%d requests until %v; want 100 within 10 s, in order", len(load), load[99].At)
		}
	}
	grain := &Trace{Grain: 3 * time.Second, Requests: []Request{{At: 3 * time.Second}, {At: 3 * time.Second}}}
	if p := grain.play(newGen(1, 1), 1); p[0].At == p[1].At || p[0].At < 3*time.Second || p[1].At > 6*time.Second {
		t.Errorf("rounded times %v and %v are not spread", p[0].At, p[1].At)
	}
	if tr.Requests[0].At != 0 {
		t.Error("playing has changed the trace")
	}
}

func FuzzTraces(f *testing.F) {
	f.Add(`{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}`)
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func() (*Trace, error){
			func() (*Trace, error) { return readMooncake(strings.NewReader(text)) },
			func() (*Trace, error) { return readAzure(strings.NewReader(text)) },
		} {
			tr, err := read()
			if err != nil {
				continue
			}
			for _, q := range tr.Requests {
				if n := q.Tokens(); n < 1 || n > maxTokens || q.Output < 1 {
					t.Fatalf("%d and %d tokens from %q", n, q.Output, text)
				}
			}
		}
	})
}

func TestBlocksOfTexts(t *testing.T) {
	a := []Segment{{1, 100}, {2, 100}}
	for _, tt := range []struct {
		rule string
		b    []Segment
		want int // common blocks of 16 tokens
	}{
		{"equal texts", a, 12},
		{"a longer text begins with a shorter one", []Segment{{1, 100}, {2, 100}, {3, 50}}, 12},
		{"other ends", []Segment{{1, 100}, {3, 100}}, 6},
		{"other starts", []Segment{{3, 100}, {2, 100}}, 0},
		{"the same segment, cut short", []Segment{{1, 40}}, 2},
		{"nothing", nil, 0},
	} {
		x, y := engineBlocks(nil, a, 16), engineBlocks(nil, tt.b, 16)
		n := 0
		for n < min(len(x), len(y)) && x[n] == y[n] {
			n++
		}
		if n != tt.want {
			t.Errorf("%s: %d common blocks, want %d", tt.rule, n, tt.want)
		}
	}
	long := routerBlocks(nil, []Segment{{1, 5000}}, 7)
	bytes := 0
	for _, b := range long {
		bytes += int(b.Bytes)
	}
	if bytes > 20_000 || bytes < 19_000 {
		t.Errorf("the router's blocks cover %d of 20,000 bytes", bytes)
	}
	if other := routerBlocks(nil, []Segment{{1, 5000}}, 8); other[0].Hash == long[0].Hash {
		t.Error("another seed gives the same blocks")
	}
}
