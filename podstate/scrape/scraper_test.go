package scrape

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/warmpath/warmpath/podstate"
)

func TestScraperScrapesEachPodAtItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{Engine: "tgi"}, podA)
		f.set(podA, text("tgi_batch_current_size 3\ntgi_queue_size 0\n"))
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		asked, times := f.take("/metrics")
		if n := len(asked); n < 9 || n > 12 {
			t.Errorf("%d scrapes in 10 s at an interval of 1 s", n)
		}
		for i := 1; i < len(times); i++ {
			if d := times[i].Sub(times[i-1]); d < 875*time.Millisecond || d > 1125*time.Millisecond {
				t.Errorf("%v between two scrapes, want 1 s, more or less a tenth and half a beat", d)
			}
		}
		if s := f.stats(0); s.Running != 3 || !s.Has(podstate.FieldWaiting) || s.Engine != "tgi" || s.Every != time.Second {
			t.Errorf("stats %+v", s)
		}
		f.stop()
	})
}

func TestScraperFollowsMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{Engine: "tgi"}, podA)
		f.set(podA, text("tgi_batch_current_size 1\n"))
		f.set(podB, text("tgi_batch_current_size 2\n"))
		time.Sleep(2 * time.Second)
		f.setPods(podA, podB)
		time.Sleep(2 * time.Second)
		if a, b := f.stats(0), f.stats(1); a.Running != 1 || b.Running != 2 {
			t.Errorf("running %v and %v, want 1 and 2", a.Running, b.Running)
		}
		f.setPods()
		synctest.Wait()
		f.take("/metrics")
		time.Sleep(5 * time.Second)
		if asked, _ := f.take("/metrics"); len(asked) > 0 {
			t.Errorf("pods that have left were asked %d times", len(asked))
		}
		f.stop()
	})
}

func TestScraperBacksOffAndLogsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{Engine: "tgi"}, podA)
		time.Sleep(time.Minute)
		synctest.Wait()
		failed := counter(t, f.metrics, "unreachable")
		if failed < 60/5.5 || failed > 60/4+4 {
			t.Errorf("%v attempts in a minute, want about one in 5 s", failed)
		}
		if n := strings.Count(f.logs.String(), "\n"); n != 1 || !strings.Contains(f.logs.String(), "connection refused") {
			t.Errorf("log of a pod that stays away: %q", f.logs)
		}
		f.set(podA, text("tgi_batch_current_size 1\n"))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if !f.stats(0).Has(podstate.FieldRunning) || strings.Count(f.logs.String(), "\n") != 2 {
			t.Errorf("the pod has come back; log %q", f.logs)
		}
		f.stop()
	})
}

func counter(t *testing.T, m *Metrics, outcome string) float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m.results)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.Metric {
			for _, l := range series.Label {
				if l.GetName() == "outcome" && l.GetValue() == outcome {
					return series.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

func TestScraperTellsWhetherThePortIsOpen(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"a closed port", Config{}, podstate.OutDown},
		{"a closed port of its own for metrics says nothing", Config{Port: 9400}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, tt.cfg, podA, podB)
				f.set(podB, text("tgi_batch_current_size 1\n"))
				time.Sleep(10 * time.Second)
				if got := f.table.Snapshot(time.Now())[0].Health.Out; got != tt.want {
					t.Errorf("out %q, want %q", got, tt.want)
				}
				f.set(podA, http.NotFound) // SGLang without --enable-metrics
				time.Sleep(10 * time.Second)
				if got := f.table.Snapshot(time.Now())[0].Health.Out; got != "" {
					t.Errorf("out %q after the port has answered", got)
				}
				f.stop()
			})
		})
	}
}

func TestScraperMarksWhatTheScrapeCannotSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{Engine: "tgi"}, podA)
		inside := make(chan struct{})
		f.set(podA, func(w http.ResponseWriter, _ *http.Request) {
			<-inside
			fmt.Fprint(w, "tgi_batch_current_size 1\n")
		})
		time.Sleep(time.Second) // the scrape has begun
		synctest.Wait()
		first := func([]podstate.Candidate) (int, int) { return 0, -1 }
		r, err := f.table.PickAndReserve(&podstate.Ask{Now: time.Now(), Tokens: 10}, first)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release(time.Now())
		close(inside)
		synctest.Wait()
		if c := f.table.Snapshot(time.Now())[0]; c.Stats.Running != 1 || c.Unseen != 1 {
			t.Errorf("running %v, unseen %d; the request was sent after the scrape had begun", c.Stats.Running, c.Unseen)
		}
		time.Sleep(1500 * time.Millisecond)
		if c := f.table.Snapshot(time.Now())[0]; c.Unseen != 0 {
			t.Errorf("unseen %d after the next scrape", c.Unseen)
		}
		f.stop()
	})
}

func TestMetricsAreClean(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	table := podstate.NewTable()
	m.watch("p", table)
	m.observe("p", "ok", time.Millisecond, 1, 0)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	if len(families) != 5 {
		t.Errorf("%d families, want 5", len(families))
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.Contains(string(readme), "`"+f.GetName()+"{") {
			t.Errorf("%s is not in the README", f.GetName())
		}
	}
	m.forget("p", podstate.NewTable())
	if n := len(gather(t, reg)); n != 5 {
		t.Errorf("forgetting an older table of the same name left %d families, want 5", n)
	}
	m.forget("p", table)
	if n := len(gather(t, reg)); n != 0 {
		t.Errorf("a forgotten pool left %d families", n)
	}
}

func gather(t *testing.T, reg prometheus.Gatherer) (names []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}

func TestNewRejects(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"an unknown engine", Config{Engine: "vlm"}, `unknown engine "vlm"; known engines: auto, dynamo`},
		{"a short interval", Config{Interval: time.Millisecond}, "scrape interval 1ms is too short; at least 10ms"},
		{"a relative path", Config{Path: "metrics"}, `scrape path "metrics" does not begin with /`},
		{"an unknown quantity", Config{Mapping: map[string]string{"queue": "x"}}, `unknown quantity "queue"; known: running, waiting`},
		{"a broken series", Config{Mapping: map[string]string{"waiting": "x{y=1}"}}, `mapping of waiting: "x{y=1}" is not a series`},
		{"no series", Config{Mapping: map[string]string{"waiting": ""}}, "mapping of waiting has no series"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.cfg, nil, nil, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
