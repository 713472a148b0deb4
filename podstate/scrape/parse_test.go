package scrape

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prom2json"

	"github.com/warmpath/warmpath/podstate"
)

// scanAll lists the wanted samples as text: name, labels in order, value.
func scanAll(text string, wanted ...string) (samples []string, bad int) {
	var s scanner
	s.reset(newNames(wanted), []byte(text))
	for s.next() {
		line := wanted[s.series]
		for _, l := range s.labels {
			line += fmt.Sprintf(" %s=%q", l.name, l.value)
		}
		samples = append(samples, line+" "+strconv.FormatFloat(s.value, 'g', -1, 64))
	}
	return samples, s.bad
}

func TestScanner(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
		bad        int
	}{
		{"a sample without labels", "a 1\n", []string{"a 1"}, 0},
		{"labels keep their order", `a{y="1",x="2"} 3` + "\n", []string{`a y="1" x="2" 3`}, 0},
		{"a name is matched whole", "ab 1\na_b 2\naa 3\n:a 4\n", nil, 0},
		{"the last newline may be missing", "a 1\na 2", []string{"a 1", "a 2"}, 0},
		{"lines may end in CRLF", "a 1\r\na{x=\"y\"} 2\r\n", []string{"a 1", `a x="y" 2`}, 0},
		{"comments are skipped", "# HELP a x\n# TYPE a info\n#a 1\n# EOF\n", nil, 0},
		{"blanks are allowed where the format allows them", "\t a \t{ x = \"y\" , } \t1\n", []string{`a x="y" 1`}, 0},
		{"an empty label set", "a{} 1\n", []string{"a 1"}, 0},
		{"a timestamp is ignored", "a 1 1395066363000\na 2 1395066363.5\n", []string{"a 1", "a 2"}, 0},
		{"an exemplar is ignored", "a 1 # {trace_id=\"x\"} 0.5\n", []string{"a 1"}, 0},
		{"an exemplar after labels is ignored", `a{x="y"} 1 1.5 # {t="}"} 0.5 2` + "\n", []string{`a x="y" 1`}, 0},
		{"escapes in label values", `a{x="\\ \" \n",y="}"} 1` + "\n", []string{`a x="\\ \" \n" y="}" 1`}, 0},
		{"quotes escaped before a comma", `a{x="\",y=\"",y="z"} 1` + "\n", []string{`a x="\",y=\"" y="z" 1`}, 0},
		{"special values are passed on", "a NaN\na +Inf\na -Inf\na inf\n", []string{"a NaN", "a +Inf", "a -Inf", "a +Inf"}, 0},
		{"exponents of three digits", "a 1.5e+010\n", []string{"a 1.5e+10"}, 0},
		{"a value after the labels without a blank", `a{x="y"}1` + "\n", []string{`a x="y" 1`}, 0},
		{"-nan costs its own line only", "a -nan\na 1\n", []string{"a 1"}, 1},
		{"a missing value costs its own line only", "a\na{} \na 1\n", []string{"a 1"}, 2},
		{"broken labels cost their own line only", "a{x} 1\na{x=y} 1\na{x=\"y} 1\na{x=\"y\" 1\na{=\"y\"} 1\na{x=\"\\q\"} 1\na 1\n", []string{"a 1"}, 6},
		{"a broken line that nobody wants costs nothing", "b{{{ -nan\na 1\n", []string{"a 1"}, 0},
		{"empty lines", "\n\n  \na 1\n\n", []string{"a 1"}, 0},
		{"no text", "", nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, bad := scanAll(tt.text, "a")
			if !slices.Equal(got, tt.want) || bad != tt.bad {
				t.Errorf("got %q and %d bad lines, want %q and %d", got, bad, tt.want, tt.bad)
			}
		})
	}
}

// prom2jsonValues reads a text with expfmt and prom2json and lists the values of
// a series, sorted. ok is false when they reject the text.
func prom2jsonValues(text []byte) (values func(name string) []string, ok bool) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, false
	}
	return func(name string) (list []string) {
		mf := families[name]
		if mf == nil {
			return nil
		}
		switch mf.GetType() {
		case dto.MetricType_COUNTER, dto.MetricType_GAUGE, dto.MetricType_UNTYPED:
		default: // a sample that bears the name of a histogram is not one of its series
			return nil
		}
		for _, m := range prom2json.NewFamily(mf).Metrics {
			m := m.(prom2json.Metric)
			line := m.Value
			for _, label := range slices.Sorted(mapKeys(m.Labels)) {
				line += fmt.Sprintf(" %s=%q", label, m.Labels[label])
			}
			list = append(list, line)
		}
		slices.Sort(list)
		return list
	}, true
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// scannerValues lists the same with the scanner.
func scannerValues(text []byte, name string) (list []string) {
	var s scanner
	s.reset(newNames([]string{name}), text)
	for s.next() {
		line := fmt.Sprint(s.value)
		labels := slices.SortedFunc(slices.Values(s.labels), func(a, b label) int { return bytes.Compare(a.name, b.name) })
		for _, l := range labels {
			line += fmt.Sprintf(" %s=%q", l.name, l.value)
		}
		list = append(list, line)
	}
	slices.Sort(list)
	return list
}

// quotedName finds names in quotes, which expfmt reads and the scanner does not.
var quotedName = regexp.MustCompile(`(?m)^[^#{\n]*"|^\s*\{|[{,][^="}\n]*"`)

// histogramOf finds types under which a plain sample is not a series.
var histogramOf = regexp.MustCompile(`(?i)TYPE[ \t].*(histogram|summary)`)

// FuzzScanner: whatever expfmt accepts, the scanner reads alike; and a line put
// into a text, however broken, takes no other line with it.
func FuzzScanner(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.prom")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			f.Add(text, []byte("a{x=\"y"))
		}
	}
	for _, seed := range []string{
		"a 1\n", "a{x=\"y\",z=\"\\n\\\\\\\"\"} -1e3 123\n", "# TYPE a counter\na NaN\na{} Inf\n", "a{x=\"}\"}.5\n\ta +1\n",
		"a{x = \"y\" ,} 1\n", "# HELP a b\\n\n# comment\na{le=\"1\"} 2\n", "a+1\na-1\n",
	} {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, text, broken []byte) {
		want, ok := prom2jsonValues(text)
		for _, name := range []string{"a", "vllm:num_requests_waiting"} { // short names switch the heads off
			if !ok || quotedName.Match(text) || histogramOf.Match(text) {
				break
			}
			if got, want := scannerValues(text, name), want(name); !slices.Equal(got, want) {
				t.Fatalf("scanner %q\nexpfmt  %q\ntext %q", got, want, text)
			}
		}
		got := scannerValues(text, "a")
		if bytes.ContainsRune(broken, '\n') {
			return
		}
		mixed := slices.Concat([]byte("a 7\n"), broken, []byte("\n"), text)
		after := scannerValues(mixed, "a")
		if extra := len(after) - len(got); extra < 1 || extra > 2 {
			t.Fatalf("one line changed the number of samples by %d; text %q", extra, mixed)
		}
	})
}

func BenchmarkReadVLLM(b *testing.B) {
	for _, engines := range []int{1, 8} {
		text := []byte(vllmText(engines))
		r := readerOf("vllm")
		var stats podstate.Stats
		now := time.Now()
		if r.read(text, now, &stats); stats.Running != float64(engines*3+engines*(engines-1)/2) {
			b.Fatalf("running %v", stats.Running)
		}
		expfmtTime := math.Inf(1)
		for range 5 {
			start := time.Now()
			parser := expfmt.NewTextParser(model.UTF8Validation)
			if _, err := parser.TextToMetricFamilies(strings.NewReader(string(text))); err != nil {
				b.Fatal(err)
			}
			expfmtTime = min(expfmtTime, float64(time.Since(start).Nanoseconds()))
		}
		b.Run(fmt.Sprintf("engines=%d", engines), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				r.read(text, now, &stats)
			}
			perOp := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			b.ReportMetric(perOp/1e3, "µs/scrape")
			b.ReportMetric(float64(len(text))/1e3, "KB")
			b.ReportMetric(perOp/expfmtTime, "x-expfmt")
		})
	}
}
