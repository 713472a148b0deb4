package replay

import (
	"encoding/csv"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

// two is a decision between a pod that waits for long and one that is free, and
// has nothing cached.
func two() *Decision {
	speed := podstate.Speed{Base: 0.5, Token: 0.001}
	d := &Decision{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Pool: "p", Profile: "hyperpod", Weights: map[string]float64{"prefix": 1},
		Request: scorers.Request{Tokens: 1000, Output: 10, Seed: 255},
		Candidates: []podstate.Candidate{
			{Pod: pod(0), Wait: 7, Cached: 900, Speed: speed, Age: math.Inf(1), Stats: &podstate.Stats{}, Health: podstate.Health{Ramp: 1}},
			{Pod: pod(1), Wait: 0, Cached: 0, Speed: speed, Age: 0.5, Stats: &podstate.Stats{Known: podstate.FieldWaiting, Waiting: 3}, Health: podstate.Health{Ramp: 1}},
		}}
	d.First, d.Second = d.Candidates[0].Pod, d.Candidates[1].Pod
	d.First.Spec.Name, d.Second.Spec.Name = "busy", "free"
	return d
}

func TestStudy(t *testing.T) {
	s, err := NewStudy([]string{"tokenLoad=1", "prefix=2"})
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	flush := s.WriteCSV(&rows)
	d := two()
	d.Candidates[0].Charge = podstate.Charge{Requests: 9, Ahead: 9000}
	s.Add(d)
	if err := flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.OK(); err != nil {
		t.Errorf("a choice that is as logged: %v", err)
	}
	var text strings.Builder
	if err := s.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	fields := strings.Join(strings.Fields(text.String()), " ")
	for _, want := range []string{
		"decisions 1, of p, among 2 pods, 2026-01-02 03:04:05 to ",
		"reproduced 1 ",
		"tokenLoad=1 1 100.0% -6.1 -6.1 -6.1 -6.1 -6.1 ", // 7 + 0.5 + 0.1 against 0.5 + 1
		"prefix=2 0 0.0% 0 - - - - - - - - 0",
	} {
		if !strings.Contains(fields, want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	table, err := csv.NewReader(strings.NewReader(rows.String())).ReadAll()
	if err != nil || len(table) != 4 {
		t.Fatalf("%v, %d rows: %s", err, len(table), &rows)
	}
	for i, want := range []struct {
		policy, pod, same string
		seconds           float64
	}{{"", "10.0.0.1:8000", "true", 7.6}, {"tokenLoad=1", "10.0.0.2:8000", "false", 1.5}, {"prefix=2", "10.0.0.1:8000", "true", 7.6}} {
		r := table[i+1]
		seconds, err := strconv.ParseFloat(r[9], 64)
		if r[0] != "00000000000000ff" || r[3] != "prefix=1" || r[6] != want.policy || r[7] != want.pod || r[8] != want.same || err != nil || math.Abs(seconds-want.seconds) > 1e-9 {
			t.Errorf("row %q, want %v", r, want)
		}
	}
}

func TestStudyTellsWhatIsNotAsLogged(t *testing.T) {
	run := func(change func(*Decision)) error {
		s, err := NewStudy(nil)
		if err != nil {
			t.Fatal(err)
		}
		d := two()
		change(d)
		s.Add(d)
		return s.OK()
	}
	for _, tt := range []struct {
		name   string
		change func(*Decision)
		want   string
	}{
		{"another first", func(d *Decision) { d.First, d.Second = d.Second, d.First }, "1 of 1 choices came out otherwise than logged, 00000000000000ff as the first"},
		{"another second", func(d *Decision) { d.Second = nil }, "1 of 1 choices"},
		{"a refusal", func(d *Decision) { d.First, d.Second = nil, nil; d.Request.Refusal = "no pod" }, "1 of 1 choices"},
		{"a value", func(d *Decision) { d.Candidates[1].Cached = 950 }, "1 of 1 choices"},
		{"a profile of another version", func(d *Decision) { d.Profile = "warp" }, `1 lines could not be replayed; decision 00000000000000ff: unknown profile "warp"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := run(tt.change); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	s, err := NewStudy(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.OK(); err == nil || !strings.Contains(err.Error(), "holds no decisions") {
		t.Errorf("of an empty log: %v", err)
	}
	s.Skip(errors.New("line 3: torn"))
	s.Skip(errors.New("line 4: torn"))
	if err := s.OK(); err == nil || err.Error() != "2 lines could not be replayed; line 3: torn" {
		t.Errorf("got %v", err)
	}
}

func TestARefusalIsNoTime(t *testing.T) {
	s, err := NewStudy([]string{"queue=1"})
	if err != nil {
		t.Fatal(err)
	}
	d := two()
	d.First, d.Second = nil, nil
	s.Add(d)
	if o := s.others[0]; o.differ != 1 || o.refused != 1 || len(o.later) != 0 {
		t.Errorf("got %+v", o)
	}
}

func TestUnknownPolicy(t *testing.T) {
	if _, err := NewStudy([]string{"latancy"}); err == nil || !strings.Contains(err.Error(), "latency") {
		t.Errorf("got %v", err)
	}
}

func TestExplain(t *testing.T) {
	d := two()
	d.Candidates[1].Health.Out = podstate.OutEjected
	d.Second = nil
	var text strings.Builder
	if err := d.Explain(&text); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	for i, want := range []string{
		"decision 00000000000000ff of 2026-01-02T03:04:05Z, pool p, profile prefix=1",
		"request of 1000 prompt tokens, 10 expected output; rung fresh",
		"",
		"pod address choice cost prefix×1 first token wait cached s/token requests unseen age trust running waiting kv adapter ramp",
		"busy 10.0.0.1:8000 first -0.9 0.9 7.6s 7s 900 0.001 0 0 never 0 ? ? ? 1",
		"free 10.0.0.2:8000 unhealthy: ejected 1.5s 0s 0 0.001 0 0 0.5s 0 ? 3 ? 1",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("line %d is\n%s\nwant\n%s", i+1, got, want)
		}
	}
}

func TestExplainRefusalAndUnknownProfile(t *testing.T) {
	d := two()
	d.First, d.Second, d.Profile = nil, nil, "warp"
	d.Request.Refusal, d.Request.Adapter, d.Request.Subset = scorers.RefusalSubset, "sql", []string{"10.0.0.9"}
	var text strings.Builder
	if err := d.Explain(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"adapter sql, only for 10.0.0.9;", "refused: empty subset\n", "without costs: unknown profile \"warp\"", "busy"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}
