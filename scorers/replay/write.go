package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// Append adds the decision to b as one line of JSON, with its line feed. Names
// of adapters pass through hide, unless that is nil: it must give equal names
// equal words, and different ones different words.
//
//	{"id":"00c0ffee00c0ffee","time":"…","pool":"llama-8b","profile":"latency",
//	 "tokens":812,"output":200,"key":"2e5","prompt":"…","first":1,"second":0,
//	 "count":2,"pods":{"addr":["10.0.0.1:8000","10.0.0.2:8000"],"ramp":[1],…}}
//
// pods has a column for each value, in the order of the candidates. A column of
// one element holds for all pods; null is a value that is not known; a column
// that is missing is zero, or not known, for all.
func (d *Decision) Append(b []byte, hide func(string) string) []byte {
	if hide == nil {
		hide = shown
	}
	b = append(b, `{"id":"`...)
	b = append(b, d.ID()...)
	b = append(b, `","time":"`...)
	b = d.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	b = appendString(append(b, `","pool":`...), d.Pool)
	b = appendString(append(b, `,"profile":`...), d.Profile)
	if len(d.Weights) > 0 {
		b = appendJSON(append(b, `,"weights":`...), d.Weights)
	}
	r := &d.Request
	b = strconv.AppendInt(append(b, `,"tokens":`...), int64(r.Tokens), 10)
	b = strconv.AppendInt(append(b, `,"output":`...), int64(r.Output), 10)
	if r.Adapter != "" {
		b = appendString(append(b, `,"adapter":`...), hide(r.Adapter))
	}
	if r.Key != 0 {
		b = fmt.Appendf(b, `,"key":"%x"`, r.Key)
	}
	if d.Prompt != 0 {
		b = fmt.Appendf(b, `,"prompt":"%016x"`, d.Prompt)
	}
	if r.Subset != nil {
		b = appendList(append(b, `,"subset":`...), r.Subset, shown)
	}
	if r.Rung != 0 {
		b = strconv.AppendInt(append(b, `,"rung":`...), int64(r.Rung), 10)
	}
	if r.Refusal != "" {
		b = appendString(append(b, `,"refusal":`...), r.Refusal)
	}
	if i := d.index(d.First); i >= 0 {
		b = strconv.AppendInt(append(b, `,"first":`...), int64(i), 10)
	}
	if i := d.index(d.Second); i >= 0 {
		b = strconv.AppendInt(append(b, `,"second":`...), int64(i), 10)
	}
	b = strconv.AppendInt(append(b, `,"count":`...), int64(len(d.Candidates)), 10)
	b = append(b, `,"pods":{`...)
	for i := range columns {
		b = d.appendColumn(b, &columns[i], hide)
	}
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	return append(b, "}}\n"...)
}

func shown(s string) string { return s }

// appendColumn adds a column and a comma, or nothing if the column is empty.
func (d *Decision) appendColumn(b []byte, col *column, hide func(string) string) []byte {
	start := len(b)
	b = append(b, '"')
	b = append(b, col.name...)
	b = append(b, `":[`...)
	first := len(b)
	end := first // of the first value
	same, zero := true, true
	for i := range d.Candidates {
		c := &d.Candidates[i]
		at := len(b)
		if c.Stats.Has(col.field) {
			var isZero bool
			b, isZero = appendValue(b, col.of(c), hide)
			zero = zero && isZero && col.field == 0
		} else {
			b = append(b, "null"...)
		}
		if i == 0 {
			end = len(b)
		}
		same = same && bytes.Equal(b[first:end], b[at:])
		b = append(b, ',')
	}
	switch {
	case len(d.Candidates) == 0, same && zero, same && string(b[first:end]) == "null":
		return b[:start]
	case same:
		b = b[:end]
	default:
		b = b[:len(b)-1]
	}
	return append(b, "],"...)
}

// appendValue adds what p points to, and says whether it is zero.
func appendValue(b []byte, p any, hide func(string) string) (_ []byte, zero bool) {
	switch p := p.(type) {
	case *float64:
		return appendFloat(b, *p), math.Float64bits(*p) == 0
	case *int:
		return strconv.AppendInt(b, int64(*p), 10), *p == 0
	case *uint64:
		return strconv.AppendUint(b, *p, 10), *p == 0
	case *podstate.AdapterState:
		return strconv.AppendUint(b, uint64(*p), 10), *p == 0
	case *bool:
		return strconv.AppendBool(b, *p), !*p
	case *string:
		return appendString(b, *p), *p == ""
	case *netip.AddrPort:
		return appendString(b, p.String()), false
	case *time.Duration:
		return appendString(b, p.String()), *p == 0
	case *time.Time:
		if p.IsZero() {
			return append(b, `""`...), true
		}
		b = append(b, '"')
		b = p.UTC().AppendFormat(b, time.RFC3339Nano)
		return append(b, '"'), false
	case *[]string:
		return appendList(b, *p, shown), false
	case *adapters:
		return appendList(b, *p, hide), false
	}
	panic(fmt.Sprintf("BUG: a column of %T", p))
}

// appendFloat writes the shortest text that is read as the same number, and as a
// string what JSON has no number for.
func appendFloat(b []byte, x float64) []byte {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		b = append(b, '"')
		b = strconv.AppendFloat(b, x, 'g', -1, 64)
		return append(b, '"')
	}
	return strconv.AppendFloat(b, x, 'g', -1, 64)
}

func appendList(b []byte, list []string, hide func(string) string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, hide(s))
	}
	return append(b, ']')
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendJSON(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendJSON(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // of strings, and of weights, which are finite
		panic("BUG: " + err.Error())
	}
	return append(b, text...)
}
