package scrape

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

// pages serves fixed answers by path; other paths are 404.
type pages map[string]string

func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, ok := p[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	fmt.Fprint(w, body)
}

// vllmPages is a vLLM that runs so many requests.
func vllmPages(running int, load string) pages {
	metrics := fmt.Sprintf("vllm:num_requests_running %d\nvllm:num_requests_waiting 0\n", running)
	return pages{"/metrics": metrics, "/metrics/": metrics, "/load": load}
}

func TestVLLMLoadIsTrustedOnceItHasBeenAboveZero(t *testing.T) {
	type step struct {
		running int
		load    string // answer of /load
		want    string // "unknown", or the load
	}
	const on, off = `{"server_load":3}`, `{"server_load":0}`
	tests := []struct {
		name  string
		steps []step
		asked bool // still asked at the end
	}{
		{"an idle server tells nothing yet", []step{{0, off, "unknown"}, {0, off, "unknown"}, {0, off, "unknown"}, {0, off, "unknown"}, {0, off, "unknown"}}, true},
		{"a value makes the next zero true", []step{{0, off, "unknown"}, {2, on, "3"}, {0, off, "0"}}, true},
		{"a value counts before the gauges move", []step{{0, on, "3"}}, true},
		{"zero beside a running batch is a switch that is off", []step{{2, off, "unknown"}, {2, off, "unknown"}, {2, off, "unknown"}, {2, off, "unknown"}}, false},
		{"a gauge that is late is no lie", []step{{2, on, "3"}, {2, off, "0"}, {0, off, "0"}, {2, on, "3"}}, true},
		{"a restart without the switch is found out", []step{{2, on, "3"}, {2, off, "0"}, {2, off, "0"}, {2, off, "unknown"}, {2, off, "unknown"}}, false},
		{"nonsense is unknown", []step{{1, `{"server_load":"many"}`, "unknown"}, {1, `{}`, "unknown"}, {1, `{"server_load":-1}`, "unknown"}, {1, `<html>`, "unknown"}}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeNet{}
				target := newFakeTarget(t, f, Config{Engine: "vllm"})
				for i, s := range tt.steps {
					f.set(podA, vllmPages(s.running, s.load).ServeHTTP)
					stats, err := target.scrape(t.Context(), time.Now())
					if err != nil {
						t.Fatal(err)
					}
					got := "unknown"
					if stats.Has(podstate.FieldLoad) {
						got = fmt.Sprint(stats.Load)
					}
					if got != s.want {
						t.Errorf("step %d: load %s, want %s", i, got, s.want)
					}
				}
				f.take("")
				if _, err := target.scrape(t.Context(), time.Now()); err != nil {
					t.Fatal(err)
				}
				if asked, _ := f.take("/load"); (len(asked) > 0) != tt.asked {
					t.Errorf("asked again: %t, want %t", len(asked) > 0, tt.asked)
				}
				target.close()
			})
		})
	}
}

func newFakeTarget(t *testing.T, f *fakeNet, cfg Config) *target {
	t.Helper()
	s, err := New(cfg, podstate.NewTable(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.cfg.dial = f.dial
	return newTarget(&s.cfg, podA)
}

// scrapeOnce is the first scrape of a pod.
func scrapeOnce(t *testing.T, engine string, h http.Handler) (s *podstate.Stats) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{}
		f.set(podA, h.ServeHTTP)
		target := newFakeTarget(t, f, Config{Engine: engine})
		defer target.close()
		var err error
		if s, err = target.scrape(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	})
	return s
}

const sglangMetrics = "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:token_usage 0\nsglang:prompt_tokens_total 5\n"

// loads is an answer of /v1/loads with one rank for each stamp.
func loads(running, waiting, uncached int, stamps ...float64) string {
	var ranks []string
	for i, stamp := range stamps {
		ranks = append(ranks, fmt.Sprintf(`{"dp_rank":%d,"timestamp":%f,"num_running_reqs":%d,"num_waiting_reqs":%d,`+
			`"num_waiting_uncached_tokens":%d,"token_usage":%g,"max_total_num_tokens":20000,"max_running_requests":4}`,
			i, stamp, running, waiting, uncached, 0.25*float64(i+1)))
	}
	return `{"timestamp":"2026-01-01T00:00:00Z","dp_rank_count":1,"loads":[` + strings.Join(ranks, ",") + `]}`
}

func TestSGLangLoadsBeatTheGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{}
		target := newFakeTarget(t, f, Config{Engine: "sglang"})
		defer target.close()
		f.set(podA, pages{"/metrics": sglangMetrics, "/v1/loads": loads(4, 5, 736, 100.25, 100.5)}.ServeHTTP)
		s, err := target.scrape(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		const want = "sglang: running=8 waiting=10 kv=0.375 peak=0.5 kvTokens=40000 max=8 in=5 load=18 prefill=1472"
		if got := rowText(s); got != want {
			t.Errorf("\ngot  %s\nwant %s", got, want)
		}

		// Within the floor only the loads are asked for.
		f.take("")
		time.Sleep(200 * time.Millisecond)
		f.set(podA, pages{"/metrics": sglangMetrics, "/v1/loads": loads(1, 0, 0, 101)}.ServeHTTP)
		s, err = target.scrape(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if asked, _ := f.take(""); len(asked) != 1 || asked[0] != "/v1/loads?include=core" {
			t.Errorf("asked %q", asked)
		}
		if s.Running != 1 || s.PromptTokens != 5 || !s.At.Equal(time.Now()) {
			t.Errorf("stats %+v", s)
		}

		// A long step: the server repeats what was before it.
		time.Sleep(time.Second)
		if s, err = target.scrape(t.Context(), time.Now()); err != nil || s != nil {
			t.Errorf("a repetition is news: %+v, %v", s, err)
		}
		if asked, _ := f.take("/metrics"); len(asked) != 1 {
			t.Errorf("the metrics were asked %d times after the floor", len(asked))
		}
		f.set(podA, pages{"/metrics": sglangMetrics, "/v1/loads": loads(2, 0, 0, 109)}.ServeHTTP)
		if s, err = target.scrape(t.Context(), time.Now()); err != nil || s == nil || s.Running != 2 {
			t.Errorf("after the step: %+v, %v", s, err)
		}
	})
}

func TestSGLangWithoutLoads(t *testing.T) {
	tests := []struct{ name, loads string }{
		{"an older version", ""},
		{"no ranks", `{"loads":[]}`},
		{"negative numbers", loads(-1, 0, 0, 1)},
		{"no JSON", `oops`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := pages{"/metrics": sglangMetrics}
			if tt.loads != "" {
				p["/v1/loads"] = tt.loads
			}
			const want = "sglang: running=0 waiting=0 kv=0 in=5"
			if got := rowText(scrapeOnce(t, "sglang", p)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestLlamaSlotsShowThePrefill(t *testing.T) {
	s := scrapeOnce(t, "llamacpp", pages{
		"/metrics": "llamacpp:requests_processing 1\nllamacpp:requests_deferred 3\n",
		"/slots": `[{"id":0,"n_ctx":4096,"is_processing":true,"n_prompt_tokens":2000,"n_prompt_tokens_processed":500,"n_prompt_tokens_cache":300,"next_token":[{"n_decoded":0}]},
			{"id":1,"n_ctx":4096,"is_processing":true,"n_prompt_tokens":60,"n_prompt_tokens_processed":10,"next_token":[{"n_decoded":50}]},
			{"id":2,"n_ctx":4096,"is_processing":true,"n_prompt_tokens":60,"n_prompt_tokens_processed":10,"next_token":{"n_decoded":50}},
			{"id":3,"n_ctx":4096,"is_processing":false,"n_prompt_tokens":900,"next_token":[]}]`,
	})
	const want = "llamacpp: running=3 waiting=3 max=4 len=4096 load=6 prefill=1200"
	if got := rowText(s); got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
}

func TestCards(t *testing.T) {
	const vllm = `{"object":"list","data":[
		{"id":"base","root":"org/base","parent":null,"max_model_len":8192},
		{"id":"alias","root":"org/base","parent":null,"max_model_len":8192},
		{"id":"ad0","root":"/adapters/0","parent":"base","max_model_len":null}]}`
	tests := []struct {
		name, engine, path, body string
		length                   int
		models, loadable         string
		known                    bool
	}{
		{"vLLM names models and adapters", "vllm", "/v1/models", vllm, 8192, "[base alias]", "[ad0]", true},
		{"LMDeploy names models only", "lmdeploy", "/v1/models", `{"data":[{"id":"internlm"}]}`, 0, "[internlm]", "[]", true},
		{"TGI has /info", "tgi", "/info", `{"model_id":"m","max_total_tokens":4096}`, 4096, "[m]", "[]", true},
		{"a pod that wants a key tells nothing", "vllm", "/other", "", 0, "[]", "[]", false},
		{"an empty list tells nothing", "vllm", "/v1/models", `{"data":[]}`, 0, "[]", "[]", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeNet{}
				target := newFakeTarget(t, f, Config{Engine: tt.engine})
				defer target.close()
				const metrics = "vllm:num_requests_running 1\nlmdeploy:num_requests_running 1\ntgi_batch_current_size 1\n"
				f.set(podA, pages{"/metrics": metrics, "/metrics/": metrics, tt.path: tt.body}.ServeHTTP)
				for range 50 { // seconds: the card is asked for twice
					s, err := target.scrape(t.Context(), time.Now())
					if err != nil {
						t.Fatal(err)
					}
					if s.MaxModelLen != tt.length || s.Has(podstate.FieldMaxModelLen) != (tt.length > 0) || s.Has(podstate.FieldModels) != tt.known ||
						fmt.Sprint(s.Models) != tt.models || fmt.Sprint(s.Loadable) != tt.loadable {
						t.Fatalf("length %d, models %v, loadable %v", s.MaxModelLen, s.Models, s.Loadable)
					}
					time.Sleep(time.Second)
				}
				if asked, _ := f.take(tt.path); len(asked) != 2 && tt.known {
					t.Errorf("asked %d times in 50 s, want 2", len(asked))
				}
			})
		})
	}
}

func TestAskingAtTwoPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{}
		target := newFakeTarget(t, f, Config{Engine: "vllm", Port: 9400, Path: "/m"})
		defer target.close()
		f.set("10.0.0.1:9400", pages{"/m": "vllm:num_requests_running 2\n"}.ServeHTTP)
		f.set(podA, pages{"/load": `{"server_load":4}`, "/v1/models": `{"data":[{"id":"x"}]}`}.ServeHTTP)
		s, err := target.scrape(t.Context(), time.Now())
		if err != nil || s.Running != 2 || s.Load != 4 || len(s.Models) != 1 {
			t.Errorf("stats %+v, %v", s, err)
		}
	})
}
