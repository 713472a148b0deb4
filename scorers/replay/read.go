package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

const (
	maxLine = 256 << 20 // bytes
	maxPods = 100_000   // a line can claim many in a few bytes
)

// line is a decision as JSON has it.
type line struct {
	ID      string                       `json:"id"`
	Time    time.Time                    `json:"time"`
	Pool    string                       `json:"pool"`
	Profile string                       `json:"profile"`
	Weights map[string]float64           `json:"weights"`
	Tokens  int                          `json:"tokens"`
	Output  int                          `json:"output"`
	Adapter string                       `json:"adapter"`
	Key     string                       `json:"key"`
	Prompt  string                       `json:"prompt"`
	Subset  []string                     `json:"subset"`
	Rung    podstate.Rung                `json:"rung"` // 0: fresh; podstate has the list
	Refusal string                       `json:"refusal"`
	First   *int                         `json:"first"`
	Second  *int                         `json:"second"`
	Count   int                          `json:"count"`
	Pods    map[string][]json.RawMessage `json:"pods"`
}

// Read returns the decisions of a log, and an error for each line that is none.
func Read(r io.Reader) iter.Seq2[*Decision, error] {
	return func(yield func(*Decision, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		for n := 1; lines.Scan(); n++ {
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			d, err := Parse(text)
			if err != nil {
				err = fmt.Errorf("line %d: %w", n, err)
			}
			if !yield(d, err) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// Parse reads one line.
func Parse(text []byte) (*Decision, error) {
	var l line
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return nil, err
	}
	if l.Rung >= podstate.Rungs {
		return nil, fmt.Errorf("rung %d; want 0 to %d", l.Rung, podstate.Rungs-1)
	}
	if l.Count < 0 || l.Count > maxPods {
		return nil, fmt.Errorf("count %d; want 0 to %d", l.Count, maxPods)
	}
	d := &Decision{Time: l.Time, Pool: l.Pool, Profile: l.Profile, Weights: l.Weights,
		Request: scorers.Request{Tokens: l.Tokens, Output: l.Output, Adapter: l.Adapter, Subset: l.Subset, Rung: l.Rung, Refusal: l.Refusal}}
	var err error
	if d.Request.Seed, err = parseHex(l.ID); err != nil {
		return nil, fmt.Errorf("id: %w", err)
	}
	if l.Key != "" {
		if d.Request.Key, err = parseHex(l.Key); err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
	}
	if l.Prompt != "" {
		if d.Prompt, err = parseHex(l.Prompt); err != nil {
			return nil, fmt.Errorf("prompt: %w", err)
		}
	}
	if err := d.parseColumns(l.Pods, l.Count); err != nil {
		return nil, err
	}
	if d.First, err = d.pod(l.First); err != nil {
		return nil, fmt.Errorf("first: %w", err)
	}
	if d.Second, err = d.pod(l.Second); err != nil {
		return nil, fmt.Errorf("second: %w", err)
	}
	return d, nil
}

func parseHex(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of 64 bits in hexadecimal", s)
	}
	return n, nil
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

func (d *Decision) parseColumns(pods map[string][]json.RawMessage, count int) error {
	texts := make([][]json.RawMessage, len(columns))
	read := 0
	for i := range columns {
		name := columns[i].name
		values, ok := pods[name]
		if !ok {
			continue
		}
		read++
		if n := len(values); n != count && n != 1 {
			return fmt.Errorf("column %s has %d values; want %d, or one for all", name, n, count)
		}
		texts[i] = values
	}
	if read != len(pods) {
		return fmt.Errorf("some of %d columns are not known to this version of warmpath", len(pods))
	}
	d.Candidates = make([]candidate, count)
	all := make([]struct {
		pod   podstate.Pod
		stats podstate.Stats
	}, count)
	for i := range d.Candidates {
		c := &d.Candidates[i]
		c.Pod, c.Stats = &all[i].pod, &all[i].stats
		for k := range columns {
			col, values := &columns[k], texts[k]
			if len(values) == 0 {
				continue
			}
			value := values[min(i, len(values)-1)]
			if col.field != 0 {
				if string(value) == "null" {
					continue
				}
				c.Stats.Known |= col.field
			}
			if err := parseValue(value, col.of(c)); err != nil {
				return fmt.Errorf("column %s: %w", col.name, err)
			}
		}
		if !c.Pod.Spec.Addr.IsValid() { // scorers count on one
			return fmt.Errorf("pod %d has no address", i)
		}
		c.Pod.Addr = c.Pod.Spec.Addr.String()
	}
	return nil
}

// parseValue reads what appendValue wrote.
func parseValue(text []byte, p any) (err error) {
	switch p := p.(type) {
	case *float64:
		*p, err = strconv.ParseFloat(string(bytes.Trim(text, `"`)), 64)
	case *int:
		*p, err = strconv.Atoi(string(text))
	case *uint64:
		*p, err = strconv.ParseUint(string(text), 10, 64)
	case *time.Time:
		if string(text) != `""` {
			err = json.Unmarshal(text, p)
		}
	case *time.Duration:
		var s string
		if err = json.Unmarshal(text, &s); err == nil {
			*p, err = time.ParseDuration(s)
		}
	case *adapters:
		err = json.Unmarshal(text, (*[]string)(p))
	default:
		err = json.Unmarshal(text, p)
	}
	return err
}
