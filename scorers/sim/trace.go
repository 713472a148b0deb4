package sim

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var t *Trace
	switch ext := filepath.Ext(path); ext {
	case ".jsonl":
		t, err = readMooncake(f)
	case ".csv":
		t, err = readAzure(f)
	default:
		return nil, fmt.Errorf("%s: unknown kind of trace %q; known: .jsonl (Mooncake), .csv (Azure)", path, ext)
	}
	if err == nil && len(t.Requests) == 0 {
		err = errors.New("no requests")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

const (
	mooncakeBlock = 512             // tokens that one hash id stands for
	mooncakeGrain = 3 * time.Second // of its conversation trace
	maxTraceLine  = 1 << 20         // bytes
	maxTokens     = 1 << 24         // of one request; more is a broken file
)

func readMooncake(r io.Reader) (*Trace, error) {
	t := &Trace{Grain: mooncakeGrain}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxTraceLine)
	for n := 1; lines.Scan(); n++ {
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
		if v.Input < 1 || v.Input > maxTokens || v.Output > maxTokens || v.Timestamp < 0 {
			return nil, fmt.Errorf("line %d: timestamp %v, %d input and %d output tokens: out of range", n, v.Timestamp, v.Input, v.Output)
		}
		q := Request{At: seconds(v.Timestamp / 1000), Output: max(1, v.Output), Reply: mix(uint64(n))}
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
	return t, lines.Err()
}

func readAzure(r io.Reader) (*Trace, error) {
	t := &Trace{Rotate: true}
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = 3
	head, err := rows.Read()
	if err != nil {
		return nil, err
	}
	if want := []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}; !slices.Equal(head, want) {
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
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		in, err1 := strconv.Atoi(row[1])
		out, err2 := strconv.Atoi(row[2])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if in < 0 || out < 0 || in > maxTokens || out > maxTokens {
			return nil, fmt.Errorf("line %d: %d context and %d generated tokens: out of range", n, in, out)
		}
		if start.IsZero() {
			start = at
		}
		t.Requests = append(t.Requests, Request{At: at.Sub(start),
			Prompt: []Segment{{mix(uint64(n)), max(1, in)}}, Output: max(1, out), Reply: mix(mix(uint64(n)))})
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
