package scrape

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// A server that answers every path in the same way is no model server, and tells
// nothing about itself.
func TestForeignServersAreNoEngine(t *testing.T) {
	foreign := []struct{ name, kind, body string }{
		{"nothing", "text/plain", ""},
		{"a page", "text/html; charset=utf-8", "<!DOCTYPE html>\n<html><body>\nvllm: welcome\n</body></html>\n"},
		{"an object", "application/json", "{}"},
		{"an object as text", "text/plain", "{}\n"},
		{"a list", "application/json", "[]"},
		{"a word", "text/plain", "ok"},
		{"words that engines' names begin", "text/plain", "trtllm is up\ntgi_router 3.3.1\nsglang: ready\ndynamo_component_ {\nray_vllm\n"},
		{"series of something else", "text/plain", "go_goroutines 7\nnum_requests_served_total 5\nrequest_latency_seconds_sum 1\n"},
	}
	for _, tt := range foreign {
		t.Run(tt.name, func(t *testing.T) {
			h := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.kind)
				fmt.Fprint(w, tt.body)
			}
			synctest.Test(t, func(t *testing.T) {
				for _, mapping := range []map[string]string{nil, {"running": "my_running"}} {
					f := newFleet(t, Config{Mapping: mapping}, podA)
					f.set(podA, h)
					time.Sleep(10 * time.Second)
					if s := f.stats(0); s.Engine != "" || s.Known != 0 {
						t.Errorf("engine %q, known %b", s.Engine, s.Known)
					}
					if !strings.Contains(f.logs.String(), "no known series in the answer: /metrics sent ") || counter(t, f.metrics, "empty") == 0 {
						t.Errorf("log %s", f.logs)
					}
					f.stop()
				}
				for _, engine := range EngineNames()[1:] {
					f := newFleet(t, Config{Engine: engine}, podA)
					f.set(podA, h)
					time.Sleep(10 * time.Second)
					if s := f.stats(0); s.Engine != engine || s.Known != 0 {
						t.Errorf("of %s known %b", engine, s.Known)
					}
					f.stop()
				}
			})
			for _, engine := range []string{Auto, "vllm"} {
				text, err := inspect(t, http.HandlerFunc(h), Config{Engine: engine})
				if said := fmt.Sprint(text, err); !strings.Contains(said, "no known series") || !strings.Contains(said, "/metrics sent ") {
					t.Errorf("inspect as %s: %s", engine, said)
				}
			}
		})
	}
}

func TestMappedSeriesAreASignOfTheGenericEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{Mapping: map[string]string{"running": "my_running"}}, podA)
		f.set(podA, text("my_running 3\n"))
		time.Sleep(time.Second)
		if s := f.stats(0); s.Engine != "generic" || s.Running != 3 {
			t.Errorf("stats %+v", s)
		}
		f.stop()
	})
}

func TestReadingIsBounded(t *testing.T) {
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	tests := []struct {
		name, text string
		tooLarge   bool
		bad        int
		want       string
	}{
		{"as many ranks as there may be", lines(maxParts, "vllm:num_requests_running{engine=\"%d\"} 1\n"), false, 0, "vllm: running=1024"},
		{"a rank more", lines(maxParts+1, "vllm:num_requests_running{engine=\"%d\"} 1\n"), true, 0, ":"},
		{"any number of the same rank", lines(5*maxParts, "vllm:num_requests_running{pid=\"%d\"} 1\n"), false, 0, "vllm: running=1"},
		{"a line of too many labels", "vllm:num_requests_running{" + lines(maxLabels+1, "l%d=\"\",") + "} 1\nvllm:num_requests_waiting 2\n", false, 1, "vllm: waiting=2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s podstate.Stats
			bad, err := readerOf("vllm").read([]byte(tt.text), fixtureTime, &s)
			if errors.Is(err, errTooLarge) != tt.tooLarge || bad != tt.bad || rowText(&s) != tt.want {
				t.Errorf("%d bad lines, error %v, %s", bad, err, rowText(&s))
			}
		})
	}
	t.Run("names of adapters", func(t *testing.T) {
		var s podstate.Stats
		series := "vllm:lora_requests_info{running_lora_adapters=\"" + lines(5*maxNames, "a%d,") + "\"} 1\n"
		if _, err := readerOf("vllm").read([]byte(series), fixtureTime, &s); err != nil || len(s.Adapters) != maxNames {
			t.Errorf("%d adapters, %v", len(s.Adapters), err)
		}
	})
}

// However a server spends the time of a scrape, it ends.
func TestScrapesAreBoundedInTime(t *testing.T) {
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    time.Duration
	}{
		{"a byte now and then", func(w http.ResponseWriter, _ *http.Request) {
			for err := error(nil); err == nil; {
				_, err = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(500 * time.Millisecond)
			}
		}, timeout},
		{"one slow redirect after the other", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(timeout - 100*time.Millisecond)
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, scrapeTime},
		{"one slow refusal after the other", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(timeout - 100*time.Millisecond)
			http.NotFound(w, r)
		}, scrapeTime},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeNet{}
				f.set(podA, tt.handler)
				target := newFakeTarget(t, f, Config{})
				start := time.Now()
				_, err := target.scrape(t.Context(), start)
				if took := time.Since(start); took != tt.want || outcome(err) != "timeout" {
					t.Errorf("took %v, want %v; %v", took, tt.want, err)
				}
				target.close()
				time.Sleep(time.Minute) // until the server has noticed
			})
		})
	}
}
