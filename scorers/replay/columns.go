package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

type (
	candidate = podstate.Candidate
	field     = podstate.Field
)

// column is one value of all candidates of a decision. of returns a pointer to
// it, so that one table serves writing and reading.
type column struct {
	name  string
	field field // of Stats, that must be known for the value to mean anything; 0: none
	of    func(*candidate) any
}

// columns are everything that a scorer can see of a pod, but for labels and UID
// of Spec, which no scorer reads.
var columns = []column{
	{"name", 0, func(c *candidate) any { return &c.Pod.Spec.Name }},
	{"addr", 0, func(c *candidate) any { return &c.Pod.Spec.Addr }},
	{"slot", 0, func(c *candidate) any { return &c.Pod.Slot }},

	{"cached", 0, func(c *candidate) any { return &c.Cached }},
	{"retention", 0, func(c *candidate) any { return &c.Retention }},
	{"adapter", 0, func(c *candidate) any { return &c.Adapter }},
	{"adapterWait", 0, func(c *candidate) any { return &c.AdapterWait }},
	{"requests", 0, func(c *candidate) any { return &c.Charge.Requests }},
	{"ahead", 0, func(c *candidate) any { return &c.Charge.Ahead }},
	{"held", 0, func(c *candidate) any { return &c.Charge.Held }},
	{"trust", 0, func(c *candidate) any { return &c.Trust }},
	{"unseen", 0, func(c *candidate) any { return &c.Unseen }},
	{"foreign", 0, func(c *candidate) any { return &c.Foreign }},
	{"wait", 0, func(c *candidate) any { return &c.Wait }},
	{"util", 0, func(c *candidate) any { return &c.Util }},
	{"stay", 0, func(c *candidate) any { return &c.Stay }},
	{"fill", 0, func(c *candidate) any { return &c.Fill }},
	{"base", 0, func(c *candidate) any { return &c.Speed.Base }},
	{"token", 0, func(c *candidate) any { return &c.Speed.Token }},
	{"square", 0, func(c *candidate) any { return &c.Speed.Square }},
	{"out", 0, func(c *candidate) any { return &c.Health.Out }},
	{"ramp", 0, func(c *candidate) any { return &c.Health.Ramp }},
	{"last", 0, func(c *candidate) any { return &c.Last }},
	{"lastCold", 0, func(c *candidate) any { return &c.LastCold }},
	{"answered", 0, func(c *candidate) any { return &c.Answered }},

	{"age", 0, func(c *candidate) any { return &c.Age }},
	{"at", 0, func(c *candidate) any { return &c.Stats.At }},
	{"every", 0, func(c *candidate) any { return &c.Stats.Every }},
	{"epoch", 0, func(c *candidate) any { return &c.Stats.Epoch }},
	{"engine", 0, func(c *candidate) any { return &c.Stats.Engine }},
	{"running", podstate.FieldRunning, func(c *candidate) any { return &c.Stats.Running }},
	{"waiting", podstate.FieldWaiting, func(c *candidate) any { return &c.Stats.Waiting }},
	{"deferred", podstate.FieldDeferred, func(c *candidate) any { return &c.Stats.Deferred }},
	{"kvUsage", podstate.FieldKVUsage, func(c *candidate) any { return &c.Stats.KVUsage }},
	{"kvPeak", podstate.FieldKVUsage, func(c *candidate) any { return &c.Stats.KVPeak }},
	{"kvTokens", podstate.FieldKVTokens, func(c *candidate) any { return &c.Stats.KVTokens }},
	{"blockTokens", podstate.FieldBlockTokens, func(c *candidate) any { return &c.Stats.BlockTokens }},
	{"maxRunning", podstate.FieldMaxRunning, func(c *candidate) any { return &c.Stats.MaxRunning }},
	{"maxModelLen", podstate.FieldMaxModelLen, func(c *candidate) any { return &c.Stats.MaxModelLen }},
	{"load", podstate.FieldLoad, func(c *candidate) any { return &c.Stats.Load }},
	{"loadAt", podstate.FieldLoad, func(c *candidate) any { return &c.Stats.LoadAt }},
	{"prefillTokens", podstate.FieldPrefillTokens, func(c *candidate) any { return &c.Stats.PrefillTokens }},
	{"models", podstate.FieldModels, func(c *candidate) any { return &c.Stats.Models }},
	{"loadable", podstate.FieldModels, func(c *candidate) any { return (*adapters)(&c.Stats.Loadable) }},
	{"adapters", podstate.FieldAdapters, func(c *candidate) any { return (*adapters)(&c.Stats.Adapters) }},
	{"maxAdapters", podstate.FieldMaxAdapters, func(c *candidate) any { return &c.Stats.MaxAdapters }},
	{"prefixQueries", podstate.FieldPrefixHits, func(c *candidate) any { return &c.Stats.PrefixQueries }},
	{"prefixHits", podstate.FieldPrefixHits, func(c *candidate) any { return &c.Stats.PrefixHits }},
	{"promptTokens", podstate.FieldPromptTokens, func(c *candidate) any { return &c.Stats.PromptTokens }},
	{"generationTokens", podstate.FieldGenerationTokens, func(c *candidate) any { return &c.Stats.GenerationTokens }},
	{"preemptions", podstate.FieldPreemptions, func(c *candidate) any { return &c.Stats.Preemptions }},
	{"asleep", podstate.FieldAsleep, func(c *candidate) any { return &c.Stats.Asleep }},
}

// adapters are names of LoRA adapters. What an adapter is called may tell whom
// it is for, so they can be hidden.
type adapters []string

// absent is what a column that is missing says of every pod.
func absent() *candidate { return &candidate{Pod: new(podstate.Pod), Stats: new(podstate.Stats)} }

// appendColumns adds the columns that say more than nothing.
func appendColumns(b []byte, cands []candidate, hide func(string) string) []byte {
	var nothing []byte
	none := absent()
	for i := range columns {
		col := &columns[i]
		start := len(b)
		b = append(append(append(b, '"'), col.name...), `":[`...)
		first, end, same := len(b), len(b), true // of the first value; whether all are equal
		for k := range cands {
			at := len(b)
			b = col.append(b, &cands[k], hide)
			if k == 0 {
				end = len(b)
			}
			same = same && bytes.Equal(b[first:end], b[at:])
			b = append(b, ',')
		}
		if same {
			if nothing = col.append(nothing[:0], none, nil); len(cands) == 0 || bytes.Equal(b[first:end], nothing) {
				b = b[:start]
				continue
			}
			b = b[:end+1]
		}
		b[len(b)-1] = ']'
		b = append(b, ',')
	}
	return bytes.TrimSuffix(b, []byte(","))
}

// append adds the value of one candidate.
func (col *column) append(b []byte, c *candidate, hide func(string) string) []byte {
	if !c.Stats.Has(col.field) {
		return append(b, "null"...)
	}
	switch p := col.of(c).(type) { // what most columns are, without the cost of reflection
	case *float64:
		if math.IsInf(*p, 0) || math.IsNaN(*p) { // JSON has no numbers for these
			return fmt.Appendf(b, `"%v"`, *p)
		}
		return strconv.AppendFloat(b, *p, 'g', -1, 64)
	case *int:
		return strconv.AppendInt(b, int64(*p), 10)
	case *uint64:
		return strconv.AppendUint(b, *p, 10)
	case *bool:
		return strconv.AppendBool(b, *p)
	case *time.Time:
		return append(p.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
	case *adapters:
		names := *p
		if hide != nil && names != nil {
			names = make(adapters, len(*p))
			for i, name := range *p {
				names[i] = hide(name)
			}
		}
		return appendJSON(b, names)
	default:
		return appendJSON(b, p)
	}
}

func appendJSON(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // of plain values, of which the floating-point ones are finite
		panic("BUG: " + err.Error())
	}
	return append(b, text...)
}

// parseColumns reads what appendColumns wrote of so many candidates.
func parseColumns(pods map[string][]json.RawMessage, count int) ([]candidate, error) {
	cands := make([]candidate, count)
	for i := range cands {
		cands[i] = *absent()
	}
	for k := range columns {
		col := &columns[k]
		values, ok := pods[col.name]
		if !ok {
			continue
		}
		delete(pods, col.name)
		if n := len(values); n != count && n != 1 {
			return nil, fmt.Errorf("column %s has %d values; want %d, or one for all", col.name, n, count)
		}
		for i := range cands {
			value := values[min(i, len(values)-1)]
			if col.field != 0 && string(value) == "null" {
				continue
			}
			cands[i].Stats.Known |= col.field
			if err := parseValue(value, col.of(&cands[i])); err != nil {
				return nil, fmt.Errorf("column %s: %w", col.name, err)
			}
		}
	}
	for name := range pods {
		return nil, fmt.Errorf("column %s is not known to this version of warmpath", name)
	}
	for i := range cands {
		pod := cands[i].Pod
		if !pod.Spec.Addr.IsValid() { // scorers count on one
			return nil, fmt.Errorf("pod %d has no address", i)
		}
		pod.Addr = pod.Spec.Addr.String()
	}
	return cands, nil
}

func parseValue(text []byte, p any) (err error) {
	if x, ok := p.(*float64); ok {
		*x, err = strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
		return err
	}
	return json.Unmarshal(text, p)
}
