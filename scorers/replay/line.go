package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

const (
	maxLine = 64 << 20 // bytes; a decision among 100,000 pods has half of that
	maxPods = 100_000  // a line can claim many in a few bytes
)

// line is a decision as JSON has it. The pods, which come last, are written by
// appendColumns.
type line struct {
	ID      hash                         `json:"id"`
	Time    time.Time                    `json:"time"`
	Pool    string                       `json:"pool"`
	Profile string                       `json:"profile"`
	Weights map[string]float64           `json:"weights,omitempty"`
	Tokens  int                          `json:"tokens"`
	Output  int                          `json:"output"`
	Reuse   float64                      `json:"reuse,omitempty"`
	Adapter string                       `json:"adapter,omitempty"`
	Key     hash                         `json:"key,omitempty"`
	Prompt  hash                         `json:"prompt,omitempty"`
	Subset  []string                     `json:"subset,omitzero"` // an empty one allows no pod
	Rung    podstate.Rung                `json:"rung,omitempty"`  // 0: fresh; podstate has the list
	Refusal string                       `json:"refusal,omitempty"`
	First   *int                         `json:"first,omitempty"`
	Second  *int                         `json:"second,omitempty"`
	Count   int                          `json:"count"`
	Pods    map[string][]json.RawMessage `json:"pods,omitempty"`
}

// hash is written in hexadecimal, as many readers take numbers of JSON for
// floating-point ones.
type hash uint64

func (h hash) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(h)), nil }

func (h *hash) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number of 64 bits in hexadecimal", text)
	}
	*h = hash(n)
	return nil
}

// Append adds the decision to b as one line of JSON, with its line feed. Names
// of adapters pass through hide, unless that is nil: it must give equal names
// equal words, and different ones different words.
//
//	{"id":"00c0ffee00c0ffee","time":"…","pool":"llama-8b","profile":"latency",
//	 "tokens":812,"output":200,"key":"…","prompt":"…","first":1,"second":0,
//	 "count":2,"pods":{"addr":["10.0.0.1:8000","10.0.0.2:8000"],"ramp":[1],…}}
//
// pods has a column for each value, in the order of the candidates. A column of
// one element holds for all pods; null is a value that is not known; a column
// that is missing is zero, or not known, for all.
func (d *Decision) Append(b []byte, hide func(string) string) []byte {
	r := &d.Request
	l := line{ID: hash(r.Seed), Time: d.Time, Pool: d.Pool, Profile: d.Profile, Weights: d.Weights, Tokens: r.Tokens, Output: r.Output,
		Reuse: r.Reuse, Adapter: r.Adapter, Key: hash(r.Key), Prompt: hash(d.Prompt), Subset: r.Subset, Rung: r.Rung, Refusal: r.Refusal, Count: len(d.Candidates)}
	if hide != nil && r.Adapter != "" {
		l.Adapter = hide(r.Adapter)
	}
	if i := d.index(d.First); i >= 0 {
		l.First = &i
	}
	if i := d.index(d.Second); i >= 0 {
		l.Second = &i
	}
	b = appendJSON(b, &l)
	b = append(b[:len(b)-1], `,"pods":{`...)
	b = appendColumns(b, d.Candidates, hide)
	return append(b, "}}\n"...)
}

// Read returns the decisions of a log, and an error for each line that is none.
func Read(r io.Reader) iter.Seq2[*Decision, error] {
	return func(yield func(*Decision, error) bool) {
		lines := bufio.NewReader(r)
		var text []byte
		for n, end := 1, error(nil); end == nil; n++ {
			text, end = readLine(lines, text[:0])
			if end != nil && end != io.EOF {
				yield(nil, fmt.Errorf("line %d: %w", n, end))
				return
			}
			text := bytes.TrimSpace(text)
			if len(text) == 0 {
				continue
			}
			var d *Decision
			err := fmt.Errorf("longer than %d MB, as no decision is", maxLine>>20)
			if len(text) <= maxLine {
				d, err = Parse(text)
			}
			if err != nil {
				err = fmt.Errorf("line %d: %w", n, err)
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// readLine adds the next line to b, or so much of it that it is longer than
// maxLine.
func readLine(r *bufio.Reader, b []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(b) <= maxLine {
			b = append(b, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return b, err
		}
	}
}

// Parse reads one line.
func Parse(text []byte) (*Decision, error) {
	var l line
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return nil, fmt.Errorf("want a line of a log of decisions, whole and of this version: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the decision; want one decision on each line")
	}
	switch {
	case l.Pods == nil:
		return nil, errors.New("it has no pods; want a line of a log of decisions")
	case l.Rung >= podstate.Rungs:
		return nil, fmt.Errorf("rung %d; want 0 to %d", l.Rung, podstate.Rungs-1)
	case l.Count < 0 || l.Count > maxPods:
		return nil, fmt.Errorf("count %d; want 0 to %d", l.Count, maxPods)
	}
	cands, err := parseColumns(l.Pods, l.Count)
	if err != nil {
		return nil, err
	}
	d := &Decision{Time: l.Time, Pool: l.Pool, Profile: l.Profile, Weights: l.Weights, Prompt: uint64(l.Prompt), Candidates: cands,
		Request: scorers.Request{Tokens: l.Tokens, Output: l.Output, Reuse: l.Reuse, Adapter: l.Adapter, Key: uint64(l.Key), Subset: l.Subset,
			Seed: uint64(l.ID), Rung: l.Rung, Refusal: l.Refusal}}
	if d.First, err = d.pod(l.First); err != nil {
		return nil, fmt.Errorf("first: %w", err)
	}
	if d.Second, err = d.pod(l.Second); err != nil {
		return nil, fmt.Errorf("second: %w", err)
	}
	return d, nil
}

// pod returns the pod of candidate i, or nil for none.
func (d *Decision) pod(i *int) (*podstate.Pod, error) {
	if i == nil {
		return nil, nil
	}
	if *i < 0 || *i >= len(d.Candidates) {
		return nil, fmt.Errorf("%d; there are %d pods", *i, len(d.Candidates))
	}
	return d.Candidates[*i].Pod, nil
}
