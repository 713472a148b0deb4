package scrape

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

func TestLoRA(t *testing.T) {
	now := time.Unix(1796059400, 0)
	// series is one of the gauge: running adapters and value.
	type series struct {
		names string
		value float64
	}
	const t0 = 1796059000.0
	tests := []struct {
		name     string
		readings [][]series
		want     []string // after the last; nil: not known
	}{
		{"absent is not known", [][]series{{}}, nil},
		{"the newest counts, wherever it stands", [][]series{{{"a", t0 + 1}, {"b,c", t0 + 3}, {"", t0 + 2}}}, []string{"b", "c"}},
		{"none are running", [][]series{{{"a", t0}, {"", t0 + 1}}}, []string{}},
		{"ties of whole seconds are united", [][]series{{{"a", t0}, {"b,a", t0}, {"c", t0 - 1}}}, []string{"a", "b"}},
		{"blanks and empty names", [][]series{{{" a , ,b,", t0}}}, []string{"a", "b"}},
		{"an old combination returns", [][]series{{{"a", t0}, {"b", t0 + 1}}, {{"a", t0 + 2}, {"b", t0 + 1}}}, []string{"a"}},
		{"a frozen gauge keeps its meaning", [][]series{{{"a", t0}}, {{"a", t0}}}, []string{"a"}},
		// Two API servers: the times of a combination that both know are added.
		{"a sum is no time; at first its mean counts", [][]series{{{"a", 2 * (t0 + 5)}, {"b", t0 + 1}}}, []string{"a"}},
		{"with sums, what has changed is present", [][]series{
			{{"a", 2 * t0}, {"b", t0}, {"c", t0 + 9}},
			{{"a", 2*t0 + 4}, {"b", t0 + 8}, {"c", t0 + 9}},
		}, []string{"a", "b"}},
		{"with sums, a new series is present", [][]series{{{"a", 2 * t0}}, {{"a", 2 * t0}, {"b", t0}}}, []string{"b"}},
		{"with sums, the order of the text may change", [][]series{
			{{"a", 2 * t0}, {"b", t0}, {"c", t0 + 1}},
			{{"c", t0 + 1}, {"b", t0 + 8}, {"a", 2 * t0}},
		}, []string{"b"}},
		{"with sums, nothing changed: as before", [][]series{
			{{"a", 2 * t0}, {"b", t0}}, {{"a", 2*t0 + 1}, {"b", t0}}, {{"a", 2*t0 + 1}, {"b", t0}},
		}, []string{"a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := readerOf("vllm")
			var s podstate.Stats
			for _, reading := range tt.readings {
				var b strings.Builder
				for _, x := range reading {
					// vLLM 0.32 writes the same list into both labels.
					fmt.Fprintf(&b, "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=%q,waiting_lora_adapters=%q} %.17g\n", x.names, x.names, x.value)
				}
				s = podstate.Stats{}
				r.read([]byte(b.String()), now, &s)
			}
			if s.Has(podstate.FieldAdapters) != (tt.want != nil) || !slices.Equal(s.Adapters, tt.want) {
				t.Errorf("known %t, adapters %q; want %q", s.Has(podstate.FieldAdapters), s.Adapters, tt.want)
			}
		})
	}
}

// A pod never forgets a combination: thousands are ordinary after a week.
func BenchmarkLoRAPermutations(b *testing.B) {
	var text strings.Builder
	text.WriteString(vllmText(1))
	for i := range 2000 {
		fmt.Fprintf(&text, "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"adapter-%d,adapter-%d,adapter-%d\",waiting_lora_adapters=\"\"} %d.5\n",
			i%10, i/10%10, i/100, 1796000000+i)
	}
	r := readerOf("vllm")
	var s podstate.Stats
	now := time.Unix(1796059400, 0)
	data := []byte(text.String())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		r.read(data, now, &s)
	}
}
