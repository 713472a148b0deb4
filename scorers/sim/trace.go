package sim

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Trace is a recorded load.
type Trace struct {
	Requests []Request
	// Grain is by how much the recorded times are rounded down: each is moved at
	// random within it, or bursts would appear that nobody sent.
	Grain time.Duration
	// Rotate says that requests do not depend on each other, so that another seed
	// may start at another place.
	Rotate bool
}

// ReadTrace reads a file: *.jsonl in Mooncake's format, *.csv in that of the
// Azure public dataset.
func ReadTrace(path string) (*Trace, error) {
	var read func(io.Reader) (*Trace, error)
	switch ext := filepath.Ext(path); ext {
	case ".jsonl":
		read = readMooncake
	case ".csv":
		read = readAzure
	default:
		return nil, misuse(fmt.Errorf("%s: unknown kind of trace %q; known: .jsonl (Mooncake), .csv (Azure)", path, ext))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := read(f)
	if err == nil && len(t.Requests) == 0 {
		err = errors.New("no requests; want one a line")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	earliest := t.Requests[0].At
	for _, q := range t.Requests {
		earliest = min(earliest, q.At)
	}
	for i := range t.Requests {
		t.Requests[i].At -= earliest
	}
	return t, nil
}

// near refuses a time that is too far from the first one.
func near(seconds float64) error {
	const day = 24 * 3600
	if most := maxSpan.Seconds(); !(math.Abs(seconds) <= most) {
		return fmt.Errorf("%.4g days after the first request; at most %v: correct the times, or cut the trace", seconds/day, most/day)
	}
	return nil
}

const (
	mooncakeBlock = 512                 // tokens that one hash id stands for
	mooncakeGrain = 3 * time.Second     // of its conversation trace
	maxTraceLine  = 1 << 20             // bytes
	maxTokens     = 1 << 24             // of one request; more is a broken file
	maxSpan       = 31 * 24 * time.Hour // public ones last a week
)

func readMooncake(r io.Reader) (*Trace, error) {
	t := &Trace{Grain: mooncakeGrain}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxTraceLine)
	first, n := 0.0, 1
	for ; lines.Scan(); n++ {
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		var v struct {
			Timestamp float64  `json:"timestamp"` // ms
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			HashIDs   []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(t.Requests) == 0 {
			first = v.Timestamp
		}
		after := (v.Timestamp - first) / 1000
		if err := cmp.Or(
			named("input_length", v.Input, whole(1, maxTokens)),
			named("output_length", v.Output, whole(0, maxTokens)),
			near(after)); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		q := Request{At: seconds(after), Output: max(1, v.Output), Reply: mix(uint64(n))}
		rest := v.Input
		for _, id := range v.HashIDs {
			if size := min(rest, mooncakeBlock); size > 0 {
				q.Prompt = append(q.Prompt, Segment{mix(id + 1), size})
				rest -= size
			}
		}
		if rest > 0 { // without ids: a text of its own
			q.Prompt = append(q.Prompt, Segment{mix(mix(uint64(n))), rest})
		}
		t.Requests = append(t.Requests, q)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d is longer than %d bytes; want one request a line", n, maxTraceLine)
	}
	return t, lines.Err()
}

// named checks a value, and names it if it is wrong.
func named(name string, x int, l limits[int]) error {
	if err := l.check(x); err != nil {
		return fmt.Errorf("%s is %d: %w", name, x, err)
	}
	return nil
}

func readAzure(r io.Reader) (*Trace, error) {
	t := &Trace{Rotate: true}
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = 3
	want := []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
	head, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the file is empty; want a first line with the columns %v", want)
	}
	if err != nil {
		return nil, err
	}
	if !slices.Equal(head, want) {
		return nil, fmt.Errorf("columns are %v, want %v", head, want)
	}
	var start time.Time
	for n := 2; ; n++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
		at, err := time.Parse("2006-01-02 15:04:05.999999999", row[0])
		if err != nil {
			return nil, fmt.Errorf("line %d: %s is %q; want a time such as 2023-11-16 18:15:46.68", n, want[0], row[0])
		}
		var tokens [2]int
		for i := range tokens {
			if tokens[i], err = whole(0, maxTokens).read(row[i+1]); err != nil {
				return nil, fmt.Errorf("line %d: %s is %q: %w", n, want[i+1], row[i+1], err)
			}
		}
		if start.IsZero() {
			start = at
		}
		if err := near(float64(at.Unix() - start.Unix())); err != nil { // at.Sub knows 292 years only
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		t.Requests = append(t.Requests, Request{At: at.Sub(start),
			Prompt: []Segment{{mix(uint64(n)), max(1, tokens[0])}}, Output: max(1, tokens[1]), Reply: mix(mix(uint64(n)))})
	}
}

// play returns the load of a seed.
func (t *Trace) play(g *gen, speed float64) []Request {
	load := slices.Clone(t.Requests)
	slices.SortStableFunc(load, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	span := load[len(load)-1].At + 1
	shift := time.Duration(0)
	if t.Rotate {
		shift = time.Duration(g.rng.Float64() * float64(span))
	}
	for i := range load {
		at := (load[i].At + shift) % span
		if t.Grain > 0 {
			at += time.Duration(g.rng.Float64() * float64(t.Grain))
		}
		load[i].At = time.Duration(float64(at) / (speed * g.scale))
	}
	slices.SortStableFunc(load, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	return load
}
