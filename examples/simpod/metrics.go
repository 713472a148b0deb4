package simpod

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/scorers/sim/engine"
)

// metrics serves vLLM's two forms: the exact path gives everything, the path
// with a slash only the samples that name[] asks for, if it asks.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if !s.metricsFault(r) {
		return
	}
	e := exposition{labels: fmt.Sprintf(`engine="0",model_name=%q`, s.cfg.Model)}
	version := "1.0.0"
	if r.URL.Path != "/metrics" {
		e.only = r.URL.Query()["name[]"]
		version = "0.0.4"
	}
	s.mu.Lock()
	rep, lora, ttft := s.engine.Report(), slices.Clone(s.lora.list), s.ttft
	s.mu.Unlock()
	asleep := 0.0
	switch *s.fault.Load() {
	case FaultLie:
		rep = engine.Report{}
	case FaultSleep:
		asleep = 1
	}
	s.expose(&e, rep, asleep)
	for _, l := range lora {
		e.sample("gauge", "vllm:lora_requests_info", fmt.Sprintf(`max_lora="%d",running_lora_adapters="%s",waiting_lora_adapters="%s"`,
			s.cfg.Engine.AdapterSlots, l.names, l.names), l.seen)
	}
	ttft.expose(&e)
	w.Header().Set("Content-Type", "text/plain; version="+version+"; charset=utf-8")
	w.Write(e.buf.Bytes())
}

func (s *Server) expose(e *exposition, rep engine.Report, asleep float64) {
	c := s.cfg.Engine
	blocks := c.KVTokens / c.BlockTokens
	e.gauge("vllm:num_requests_running", "", float64(rep.Running))
	e.gauge("vllm:num_requests_waiting", "", float64(rep.Waiting))
	e.gauge("vllm:num_requests_waiting_by_reason", `,reason="capacity"`, float64(rep.Waiting-rep.Deferred))
	e.gauge("vllm:num_requests_waiting_by_reason", `,reason="deferred"`, float64(rep.Deferred))
	e.gauge("vllm:kv_cache_usage_perc", "", rep.KVUsage)
	e.gauge("vllm:engine_sleep_state", `,sleep_state="awake"`, 1-asleep)
	e.gauge("vllm:engine_sleep_state", `,sleep_state="weights_offloaded"`, asleep)
	e.counter("vllm:prefix_cache_queries", rep.PrefixQueries)
	e.counter("vllm:prefix_cache_hits", rep.PrefixHits)
	e.counter("vllm:prompt_tokens", rep.PromptTokens)
	e.counter("vllm:generation_tokens", rep.GenerationTokens)
	e.counter("vllm:num_preemptions", rep.Preemptions)
	e.sample("gauge", "vllm:cache_config_info", fmt.Sprintf(`block_size="%d",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="%d",num_gpu_blocks="%d"`,
		c.BlockTokens, blocks*c.BlockTokens, blocks), 1)
	e.sample("gauge", "process_start_time_seconds", "", float64(s.started.UnixMilli())/1000)
}

// exposition writes the text format.
type exposition struct {
	buf    bytes.Buffer
	labels string   // of every engine family
	only   []string // sample names; nil is all
	family string   // the last one that was announced
}

func (e *exposition) gauge(name, more string, v float64) {
	e.sample("gauge", name, e.labels+more, v)
}

func (e *exposition) counter(family string, v int) {
	e.add("counter", family, family+"_total", e.labels, float64(v))
}

func (e *exposition) sample(kind, name, labels string, v float64) {
	e.add(kind, name, name, labels, v)
}

func (e *exposition) add(kind, family, name, labels string, v float64) {
	if e.only != nil && !slices.Contains(e.only, name) {
		return
	}
	if e.family != family {
		e.family = family
		if kind == "counter" { // the text format names the family as the sample
			family = name
		}
		fmt.Fprintf(&e.buf, "# HELP %s Simulated.\n# TYPE %s %s\n", family, family, kind)
	}
	e.buf.WriteString(name)
	if labels != "" {
		e.buf.WriteString("{" + labels + "}")
	}
	e.buf.WriteByte(' ')
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0" // as Python prints floats
	}
	e.buf.WriteString(text + "\n")
}

// loraSeries remembers every set of adapters that ran at once. vLLM never
// removes a series: the one with the newest value is current.
type loraSeries struct {
	list []loraSet
}

type loraSet struct {
	names string
	seen  float64 // unix seconds
}

func (l *loraSeries) update(adapters []string, now time.Time) {
	if len(adapters) == 0 && len(l.list) == 0 {
		return
	}
	names := strings.Join(adapters, ",")
	seen := float64(now.UnixMicro()) / 1e6
	if i := slices.IndexFunc(l.list, func(x loraSet) bool { return x.names == names }); i >= 0 {
		l.list[i].seen = seen
		return
	}
	l.list = append(l.list, loraSet{names, seen})
}

// ttftBounds are vLLM's, seconds.
var ttftBounds = [...]float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}

// histogram is time to first token as the server saw it.
type histogram struct {
	count [len(ttftBounds) + 1]int
	sum   float64
}

func (h *histogram) add(v float64) {
	i, _ := slices.BinarySearch(ttftBounds[:], v)
	h.count[i]++
	h.sum += v
}

func (h *histogram) expose(e *exposition) {
	const family = "vllm:time_to_first_token_seconds"
	n := 0
	for i, c := range h.count {
		n += c
		le := "+Inf"
		if i < len(ttftBounds) {
			le = strconv.FormatFloat(ttftBounds[i], 'g', -1, 64)
		}
		e.add("histogram", family, family+"_bucket", e.labels+`,le="`+le+`"`, float64(n))
	}
	e.add("histogram", family, family+"_count", e.labels, float64(n))
	e.add("histogram", family, family+"_sum", e.labels, h.sum)
}
