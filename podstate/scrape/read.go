package scrape

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// program is an engine's rows made ready for reading. Pods share it.
type program struct {
	engine *engine
	rows   []row
	wants  []condition // of the row with the same index
	names  *names
	bySer  [][]int           // rows by index of the series in names
	byIs   [quantities][]int // rows by quantity
}

// condition is a row's where, taken apart.
type condition struct {
	label, value string
	not          bool
}

// compile prepares an engine. Rows of extra come before the engine's own.
func compile(e *engine, extra []row) *program {
	p := &program{engine: e, rows: slices.Concat(extra, e.rows)}
	var list []string
	for i, r := range p.rows {
		label, value, _ := strings.Cut(r.where, "=")
		label, not := strings.CutSuffix(label, "!")
		p.wants = append(p.wants, condition{label, value, not})
		series := slices.Index(list, r.name)
		if series < 0 {
			series = len(list)
			list = append(list, r.name)
			p.bySer = append(p.bySer, nil)
		}
		p.bySer[series] = append(p.bySer[series], i)
		p.byIs[r.is] = append(p.byIs[r.is], i)
	}
	p.names = newNames(list)
	return p
}

// reader turns the expositions of one pod into stats. It allocates nothing but
// what it hands out. It is not safe for concurrent use.
type reader struct {
	prog *program
	scan scanner
	acc  [][]part // by row

	lora                           lora
	lastPrompt, lastGen, lastStart float64
	epoch                          int
}

// part is one summand of a row: the largest value among the series that agree
// in all of sumLabels.
type part struct {
	key   uint64 // of the values of sumLabels
	value float64
}

func newReader(p *program) *reader {
	return &reader{prog: p, acc: make([][]part, len(p.rows))}
}

var hashSeed = maphash.MakeSeed()

// maxParts bounds the summands of a quantity, which are searched one by one: the
// ranks of the largest deployments are hundreds.
const maxParts = 1024

// read fills stats with what the exposition says, and reports how many wanted
// lines could not be read. Other fields of stats are left alone.
func (r *reader) read(text []byte, now time.Time, stats *podstate.Stats) (bad int, err error) {
	for i := range r.acc {
		r.acc[i] = r.acc[i][:0]
	}
	r.lora.begin()
	r.scan.reset(r.prog.names, text)
	for r.scan.next() {
		if !r.sample() {
			return r.scan.bad, fmt.Errorf("%w: more than %d ranks or models in %s; scrape the engine itself and not what collects from many",
				errTooLarge, maxParts, r.prog.names.list[r.scan.series])
		}
	}
	r.fill(now, stats)
	return r.scan.bad, nil
}

// sample takes in the present sample, and reports false if it is one too many.
func (r *reader) sample() bool {
	if string(r.scan.label("priority")) != "" {
		return true // a share of the series with priority="", which is the total
	}
	var key uint64
	for _, l := range r.scan.labels {
		for i, name := range sumLabels {
			if string(l.name) == name {
				key += maphash.Bytes(hashSeed, l.value) * uint64(2*i+1)
			}
		}
	}
	for _, i := range r.prog.bySer[r.scan.series] {
		row, want := &r.prog.rows[i], &r.prog.wants[i]
		if want.label != "" && (string(r.scan.label(want.label)) == want.value) == want.not {
			continue
		}
		if row.is == adapters {
			r.lora.add(r.scan.value, r.scan.label("running_lora_adapters"))
			r.acc[i] = append(r.acc[i][:0], part{}) // it is present
			continue
		}
		v := r.scan.value
		if row.label != "" {
			var err error
			if v, err = strconv.ParseFloat(string(r.scan.label(row.label)), 64); err != nil {
				continue // absent or "None": not known
			}
		}
		if math.IsNaN(v) || v < 0 || v > 1e15 { // idle, switched off, or "blank" in some engine's words
			continue
		}
		at := slices.IndexFunc(r.acc[i], func(p part) bool { return p.key == key })
		switch {
		case at >= 0:
			r.acc[i][at].value = max(r.acc[i][at].value, v)
		case len(r.acc[i]) == maxParts:
			return false
		default:
			r.acc[i] = append(r.acc[i], part{key, v})
		}
	}
	return true
}

// whole is a quantity of the whole pod.
type whole struct {
	sum, peak float64
	parts     int // 0: not reported
}

func (r *reader) whole(q quantity) (w whole) {
	for _, i := range r.prog.byIs[q] {
		if len(r.acc[i]) == 0 || w.parts > 0 && !r.prog.rows[i].plus {
			continue
		}
		for _, p := range r.acc[i] {
			w.sum += p.value
			w.peak = max(w.peak, p.value)
		}
		w.parts += len(r.acc[i])
	}
	return w
}

func (r *reader) fill(now time.Time, s *podstate.Stats) {
	s.Engine = r.prog.engine.name
	float := func(q quantity, f podstate.Field, to *float64) {
		if w := r.whole(q); w.parts > 0 {
			*to = w.sum
			s.Known |= f
		}
	}
	// Of these each rank has its own, equal one.
	integer := func(q quantity, f podstate.Field, to *int) {
		if w := r.whole(q); w.parts > 0 && w.peak > 0 {
			*to = int(w.peak)
			s.Known |= f
		}
	}
	float(running, podstate.FieldRunning, &s.Running)
	float(waiting, podstate.FieldWaiting, &s.Waiting)
	float(deferred, podstate.FieldDeferred, &s.Deferred)
	float(promptTokens, podstate.FieldPromptTokens, &s.PromptTokens)
	float(genTokens, podstate.FieldGenerationTokens, &s.GenerationTokens)
	float(preemptions, podstate.FieldPreemptions, &s.Preemptions)
	integer(blockTokens, podstate.FieldBlockTokens, &s.BlockTokens)
	integer(maxModelLen, podstate.FieldMaxModelLen, &s.MaxModelLen)
	integer(maxAdapters, podstate.FieldMaxAdapters, &s.MaxAdapters)

	if w := r.whole(maxRunning); w.sum > 0 {
		s.MaxRunning = int(w.sum)
		s.Known |= podstate.FieldMaxRunning
	}
	if queries, hits := r.whole(prefixQueries), r.whole(prefixHits); queries.parts > 0 && hits.parts > 0 {
		s.PrefixQueries, s.PrefixHits = queries.sum, hits.sum
		s.Known |= podstate.FieldPrefixHits
	}
	if w := r.whole(awake); w.parts > 0 {
		s.Asleep = w.peak == 0
		s.Known |= podstate.FieldAsleep
	}
	if r.whole(adapters).parts > 0 {
		s.Adapters = r.lora.current(now)
		s.Known |= podstate.FieldAdapters
	}
	r.fillKV(s)
	s.Epoch = r.countEpoch(s)
}

// fillKV works out the use and the capacity of the KV cache from what there is.
func (r *reader) fillKV(s *podstate.Stats) {
	tokens, blocks := r.whole(kvTokens), r.whole(kvBlocks)
	switch {
	case tokens.sum > 0:
		s.KVTokens = int(tokens.sum)
	case blocks.sum > 0 && s.BlockTokens > 0:
		s.KVTokens = int(blocks.sum) * s.BlockTokens
	}
	if s.KVTokens > 0 {
		s.Known |= podstate.FieldKVTokens
	}

	mean, peak := math.NaN(), math.NaN()
	if w := r.whole(kvUsage); w.parts > 0 {
		mean, peak = w.sum/float64(w.parts), w.peak
	} else if w := r.whole(kvPercent); w.parts > 0 {
		mean, peak = w.sum/float64(w.parts)/100, w.peak/100
	} else if w := r.whole(kvUsedBlocks); w.parts > 0 && blocks.sum > 0 {
		mean = w.sum / blocks.sum
		peak = mean
	} else if w := r.whole(kvUsedTokens); w.parts > 0 && tokens.sum > 0 {
		mean = w.sum / tokens.sum
		peak = mean
	}
	// A share above one is rounding; far above it is another unit than we know.
	if peak <= 1.05 {
		s.KVUsage, s.KVPeak = min(mean, 1), min(peak, 1)
		s.Known |= podstate.FieldKVUsage
	}
}

// countEpoch notices a restart: a counter that falls, or another start time
// where there is one (servers of several processes have none).
func (r *reader) countEpoch(s *podstate.Stats) int {
	start := r.whole(startTime).peak
	again := s.Has(podstate.FieldPromptTokens) && s.PromptTokens < r.lastPrompt ||
		s.Has(podstate.FieldGenerationTokens) && s.GenerationTokens < r.lastGen ||
		start > 0 && r.lastStart > 0 && math.Abs(start-r.lastStart) > 1
	if again {
		r.epoch++
	}
	if s.Has(podstate.FieldPromptTokens) {
		r.lastPrompt = s.PromptTokens
	}
	if s.Has(podstate.FieldGenerationTokens) {
		r.lastGen = s.GenerationTokens
	}
	if start > 0 {
		r.lastStart = start
	}
	return r.epoch
}
