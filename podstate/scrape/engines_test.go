package scrape

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// fixtureTime is when the fixtures were "read".
var fixtureTime = time.Unix(1796059400, 0)

// rowText shows the known fields of stats, in a fixed order.
func rowText(s *podstate.Stats) string {
	var b strings.Builder
	add := func(f podstate.Field, format string, args ...any) {
		if s.Has(f) {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	b.WriteString(s.Engine + ":")
	add(podstate.FieldRunning, "running=%g", s.Running)
	add(podstate.FieldWaiting, "waiting=%g", s.Waiting)
	add(podstate.FieldDeferred, "deferred=%g", s.Deferred)
	add(podstate.FieldKVUsage, "kv=%.4g", s.KVUsage)
	if s.KVPeak != s.KVUsage {
		add(podstate.FieldKVUsage, "peak=%.4g", s.KVPeak)
	}
	add(podstate.FieldKVTokens, "kvTokens=%d", s.KVTokens)
	add(podstate.FieldBlockTokens, "block=%d", s.BlockTokens)
	add(podstate.FieldMaxRunning, "max=%d", s.MaxRunning)
	add(podstate.FieldMaxModelLen, "len=%d", s.MaxModelLen)
	add(podstate.FieldPrefixHits, "prefix=%g/%g", s.PrefixHits, s.PrefixQueries)
	add(podstate.FieldPromptTokens, "in=%g", s.PromptTokens)
	add(podstate.FieldGenerationTokens, "out=%g", s.GenerationTokens)
	add(podstate.FieldPreemptions, "preempted=%g", s.Preemptions)
	add(podstate.FieldAsleep, "asleep=%t", s.Asleep)
	add(podstate.FieldAdapters, "adapters=%s", strings.Join(s.Adapters, "+"))
	add(podstate.FieldMaxAdapters, "slots=%d", s.MaxAdapters)
	add(podstate.FieldLoad, "load=%g", s.Load)
	add(podstate.FieldPrefillTokens, "prefill=%g", s.PrefillTokens)
	return b.String()
}

// Every engine and version: what is detected and what is read. A fixture holds
// the series as that version writes them, in a few families of the many.
func TestEngines(t *testing.T) {
	tests := []struct{ fixture, want string }{
		{"vllm-0.5", "vllm: running=12 waiting=4 kv=0.625 kvTokens=115200 block=16 in=1.5e+10 out=88000 preempted=3"},
		{"vllm-0.8", "vllm: running=5 waiting=0 kv=0.25 block=16 prefix=400/1000 in=64000 out=32000"},
		{"vllm-0.9", "vllm: running=5 waiting=2 kv=0.25 kvTokens=65536 block=16 prefix=400/1000"},
		{"vllm-0.11-pids", "vllm: running=6 waiting=2 kv=0.5"},
		{"vllm-0.32", "vllm: running=4 waiting=10 deferred=3 kv=0.00391 kvTokens=2097152 block=128 prefix=3968/12000 in=12000 out=600 preempted=7 asleep=false adapters=ad0+ad1 slots=2"},
		{"vllm-0.32-dp2", "vllm: running=3 waiting=1 kv=0.5 peak=0.9 kvTokens=2200 block=128 in=150 asleep=false"},
		{"vllm-asleep", "vllm: running=0 waiting=0 asleep=true"},
		{"vllm-api-servers", "vllm: kvTokens=2097152 block=128 in=0 asleep=false"},
		{"llm-d-inference-sim", "vllm: running=2 waiting=0 kv=0.5 kvTokens=16384 block=16 adapters=a+b slots=4"},
		{"openmetrics", "vllm: running=4 waiting=1 in=12000"},
		{"broken-lines", "vllm: running=4 out=8"},
		{"sglang-0.4", "sglang: running=162 waiting=2826 kv=0.28 in=8e+06 out=7.5e+06"},
		{"sglang-0.5.10", "sglang: running=3 waiting=3 kv=0.25 kvTokens=430839 block=1 prefix=100/500 in=500 out=32"},
		{"sglang-0.5.23", "sglang: running=4 waiting=5 kv=0.5 kvTokens=20000 block=1 len=8192 prefix=99/1500 in=1500 out=42 preempted=6 slots=8"},
		{"sglang-dp2-priority", "sglang: running=7 waiting=3 kv=0.5 peak=0.75"},
		{"sglang-prefill", "sglang: running=1 waiting=9 kv=0.125"},
		{"trtllm-1.2", "trtllm: running=7 waiting=2 kv=0.375 kvTokens=32000 block=32 max=2048 len=131072 prefix=300/900 in=900 out=100"},
		{"triton-trtllm", "triton-trtllm: running=6 waiting=3 kv=0.25 kvTokens=25600 block=64 max=512"},
		{"triton-vllm", "triton: waiting=4 in=10 out=16"},
		{"tgi-3.3", "tgi: running=16 waiting=9 kv=0.25 kvTokens=128000 in=410000 out=99000"},
		{"llamacpp-2024", "llamacpp: running=2 waiting=1 kv=0.5 in=250 out=90"},
		{"llamacpp-b11549", "llamacpp: running=4 waiting=6 prefix=1000/4000 in=4000 out=512"},
		{"lmdeploy-0.10", "lmdeploy: running=8 waiting=5 kv=0.75 prefix=50/100 in=100 out=60"},
		{"nim-1.2", "nim: running=1 waiting=0 kv=0.25 max=64 in=109 out=174"},
		{"dynamo-vllm", "dynamo: running=3 waiting=1 kv=0.3 kvTokens=65536 block=16"},
		{"dynamo-trtllm", "dynamo: running=3 waiting=1 kv=0.3"},
		{"ray-2.32", "ray: running=5 waiting=1 kv=0.5 peak=0.75"},
		{"ray-2.50", "ray: running=4 waiting=2 kv=0.5"},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		seen[tt.fixture+".prom"] = true
		t.Run(tt.fixture, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", tt.fixture+".prom"))
			if err != nil {
				t.Fatal(err)
			}
			e := detect(text, "/metrics")
			if e == nil {
				t.Fatal("no engine detected")
			}
			var s podstate.Stats
			readerOf(e.name).read(text, fixtureTime, &s)
			if got := rowText(&s); got != tt.want {
				t.Errorf("\ngot  %s\nwant %s", got, tt.want)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.prom")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !seen[filepath.Base(f)] {
			t.Errorf("%s is in no row", f)
		}
	}
}

// Fields are unknown, not zero, when an engine says what cannot be.
func TestImpossibleValuesAreNotKnown(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"a usage of percent under a name of shares", "vllm:kv_cache_usage_perc 57\n", "vllm:"},
		{"a usage a little above 1 is full", "vllm:kv_cache_usage_perc 1.0000001\n", "vllm: kv=1"},
		{"a negative rate", "vllm:num_requests_running -1\n", "vllm:"},
		{"an infinite queue", "vllm:num_requests_waiting +Inf\n", "vllm:"},
		{"a blank of 64 bits", "vllm:num_requests_waiting 9223372036854775794\n", "vllm:"},
		{"blocks of size 0", "vllm:cache_config_info{block_size=\"0\",num_gpu_blocks=\"7\"} 1\n", "vllm:"},
		{"sizes that are words", "vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"auto\",kv_cache_size_tokens=\"\"} 1\n", "vllm:"},
		{"queries without hits", "vllm:prefix_cache_queries_total 7\n", "vllm:"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s podstate.Stats
			readerOf("vllm").read([]byte(tt.text), fixtureTime, &s)
			if got := rowText(&s); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestEpochGrowsWhenCountersStartAgain(t *testing.T) {
	tests := []struct {
		name   string
		texts  []string
		epochs []int
	}{
		{"counters that grow", []string{"vllm:prompt_tokens_total 5\n", "vllm:prompt_tokens_total 9\n"}, []int{0, 0}},
		{"a counter that falls", []string{"vllm:prompt_tokens_total 5\n", "vllm:prompt_tokens_total 4\n", "vllm:prompt_tokens_total 6\n"}, []int{0, 1, 1}},
		{"a counter that is absent for a while", []string{"vllm:generation_tokens_total 5\n", "\n", "vllm:generation_tokens_total 4\n"}, []int{0, 0, 1}},
		{"another start time, though the counter is ahead", []string{
			"process_start_time_seconds 1.7e9\nvllm:prompt_tokens_total 5\n", "process_start_time_seconds 1.8e9\nvllm:prompt_tokens_total 9\n"}, []int{0, 1}},
		{"a start time that appears", []string{"vllm:prompt_tokens_total 5\n", "process_start_time_seconds 1.8e9\nvllm:prompt_tokens_total 9\n"}, []int{0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := readerOf("vllm")
			for i, text := range tt.texts {
				var s podstate.Stats
				if r.read([]byte(text), fixtureTime, &s); s.Epoch != tt.epochs[i] {
					t.Errorf("epoch %d after reading %d, want %d", s.Epoch, i, tt.epochs[i])
				}
			}
		})
	}
}

func TestMappingComesBeforeTheEnginesOwnSeries(t *testing.T) {
	rows, err := parseMapping(map[string]string{
		"running": "my_running", "kvPercent": `gpu_cache{kind="used"}`, "waiting": `my_queue{stage="decode",}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	const text = "my_running 3\nvllm:num_requests_running 1\nvllm:generation_tokens_total 8\n" +
		"gpu_cache{kind=\"free\"} 60\ngpu_cache{kind=\"used\"} 40\nmy_queue{stage=\"prefill\"} 9\nmy_queue{stage=\"decode\"} 2\n"
	for engine, want := range map[string]string{
		"vllm":    "vllm: running=3 waiting=2 kv=0.4 out=8",
		"generic": "generic: running=3 waiting=2 kv=0.4",
	} {
		var s podstate.Stats
		readerOf(engine, rows...).read([]byte(text), fixtureTime, &s)
		if got := rowText(&s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestHeadersOf(t *testing.T) {
	for name, want := range map[string]Headers{
		"vllm": HeadersAccepted, "llamacpp": HeadersSlot, "sglang": HeadersFirstToken, "tgi": HeadersUnknown, "auto": HeadersUnknown, "": HeadersUnknown, "x": HeadersUnknown,
	} {
		if got := HeadersOf(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestCatalogueIsSound(t *testing.T) {
	for _, e := range engines {
		if len(e.rows) == 0 && e.name != "generic" || !strings.HasPrefix(e.path, "/") || e.prefix == "" && e.name != "generic" {
			t.Errorf("engine %q is incomplete", e.name)
		}
		found := false
		for _, r := range e.rows {
			found = found || strings.HasPrefix(r.name, e.prefix)
			if r.name == "" || r.where != "" && !strings.Contains(r.where, "=") {
				t.Errorf("engine %q: row %+v", e.name, r)
			}
		}
		if !found && e.name != "generic" {
			t.Errorf("engine %q is detected by %q, which none of its series has", e.name, e.prefix)
		}
	}
	if len(quantityNames) != int(quantities) || quantityNames[startTime] != "startTime" || quantityNames[maxModelLen] != "maxModelLen" {
		t.Error("the names of the quantities are out of step")
	}
}
