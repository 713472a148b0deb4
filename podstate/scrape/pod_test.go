package scrape

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

const smallVLLM = "vllm:num_requests_running{engine=\"0\"} 2.0\nvllm:num_requests_waiting{engine=\"0\"} 0.0\n"

func TestVLLMIsAskedForNamedSeries(t *testing.T) {
	full := vllmText(1)
	isNamed := func(path string) bool { return strings.HasPrefix(path, "/metrics/?name[]=vllm:num_requests_running&") }
	tests := []struct {
		name    string
		handler func(w http.ResponseWriter, r *http.Request)
		// of the requests after the first two, which are the first contact
		allNamed, allPlain bool
	}{
		{"and stays with it", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("name[]") {
				fmt.Fprint(w, smallVLLM)
				return
			}
			fmt.Fprint(w, full)
		}, true, false},
		{"also when it ignores them and sends all", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, full) }, true, false},
		{"an empty answer means plain for ever", func(w http.ResponseWriter, r *http.Request) {
			if !r.URL.Query().Has("name[]") {
				fmt.Fprint(w, full)
			}
		}, false, true},
		{"404 means plain for ever", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				http.NotFound(w, r)
				return
			}
			fmt.Fprint(w, full)
		}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, Config{}, podA)
				f.set(podA, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/load" {
						http.NotFound(w, r)
						return
					}
					tt.handler(w, r)
				})
				time.Sleep(10 * time.Second)
				synctest.Wait()
				asked, _ := f.take("/metrics")
				if len(asked) < 9 || asked[0] != "/metrics" || !isNamed(asked[1]) {
					t.Fatalf("asked %d times, first %.40q", len(asked), asked)
				}
				for _, path := range asked[2:] {
					if tt.allNamed && !isNamed(path) || tt.allPlain && path != "/metrics" {
						t.Errorf("asked %.40q", path)
					}
				}
				if s := f.stats(0); s.Engine != "vllm" || !s.Has(podstate.FieldRunning|podstate.FieldWaiting) {
					t.Errorf("stats %+v", s)
				}
				if n := counter(t, f.metrics, "ok"); n < 9 {
					t.Errorf("%v good scrapes", n)
				}
				f.stop()
			})
		})
	}
}

func TestEngineIsFoundWhereverItsMetricsAre(t *testing.T) {
	at := func(where, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != where {
				http.NotFound(w, r)
				return
			}
			fmt.Fprint(w, text)
		}
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		engine  string
	}{
		{"nim at /v1/metrics", at("/v1/metrics", "num_requests_running 1\n"), "nim"},
		{"trtllm beside its destructive JSON", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `[{"numActiveRequests":3}]`)
				return
			}
			at("/prometheus/metrics", "trtllm_num_requests_running 1\n")(w, r)
		}, "trtllm"},
		{"the first trtllm without prefix", at("/prometheus/metrics", "e2e_request_latency_seconds_count{engine_type=\"undefined\"} 1\n"), "trtllm"},
		{"after a redirect", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				http.Redirect(w, r, "/metrics/", http.StatusTemporaryRedirect)
				return
			}
			at("/metrics/", "tgi_batch_current_size 1\n")(w, r)
		}, "tgi"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, Config{}, podA)
				f.set(podA, tt.handler)
				time.Sleep(time.Second / 2)
				if s := f.stats(0); s.Engine != tt.engine {
					t.Errorf("engine %q, want %q; log %s", s.Engine, tt.engine, f.logs)
				}
				f.take("")
				time.Sleep(2200 * time.Millisecond)
				synctest.Wait()
				asked, _ := f.take("")
				slices.Sort(asked)
				if got := slices.Compact(asked); len(got) != 1 {
					t.Errorf("once known, the pod is asked at %q", got)
				}
				f.stop()
			})
		})
	}
}

func TestEngineIsDetectedAgainWhenItsSeriesVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{}, podA)
		f.set(podA, text("tgi_batch_current_size 7\n"))
		time.Sleep(2 * time.Second)
		before := f.stats(0)
		f.set(podA, text("lmdeploy:num_requests_running 1\n"))
		time.Sleep(10 * time.Second)
		after := f.stats(0)
		if before.Engine != "tgi" || after.Engine != "lmdeploy" || after.Epoch <= before.Epoch {
			t.Errorf("engine %s then %s, epoch %d then %d", before.Engine, after.Engine, before.Epoch, after.Epoch)
		}
		f.stop()
	})
}

func TestSilentEngineIsDetectedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Config{}, podA)
		f.set(podA, text("vllm:engine_version 1\n")) // of several processes, before the first request
		time.Sleep(100 * time.Second)
		synctest.Wait()
		asked, _ := f.take("/metrics")
		if len(asked) < 90 || counter(t, f.metrics, "empty") < 90 {
			t.Errorf("%d scrapes in 100 s; a silent pod is no failure", len(asked))
		}
		if c := f.table.Snapshot(time.Now())[0]; c.Age > 2 || c.Stats.Engine != "vllm" || c.Stats.Epoch != 0 {
			t.Errorf("stats %+v of age %v", c.Stats, c.Age)
		}
		f.stop()
	})
}
