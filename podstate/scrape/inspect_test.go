package scrape

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/warmpath/warmpath/podstate"
)

// inspect is Inspect in virtual time.
func inspect(t *testing.T, h http.Handler, cfg Config) (text string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{}
		f.set(podA, h.ServeHTTP)
		target := newFakeTarget(t, f, cfg)
		defer target.close()
		r, failed := target.report(t.Context(), "http://"+podA)
		if err = failed; err != nil {
			return
		}
		var b strings.Builder
		if _, err := r.WriteTo(&b); err != nil {
			t.Error(err)
		}
		text = b.String()
	})
	return text, err
}

func TestInspectShowsWhatIsReadAndWhatIsMissing(t *testing.T) {
	named := "vllm:num_requests_running{engine=\"0\"} 4\nvllm:num_requests_waiting{engine=\"0\"} 1\n" +
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n"
	text, err := inspect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/metrics/" && r.URL.Query().Has("name[]"):
			fmt.Fprint(w, named)
		case r.URL.Path == "/metrics":
			fmt.Fprint(w, vllmText(1))
		case r.URL.Path == "/v1/models":
			fmt.Fprint(w, `{"data":[{"id":"base","max_model_len":8192},{"id":"ad0","parent":"base"}]}`)
		case r.URL.Path == "/load":
			fmt.Fprint(w, `{"server_load":0}`)
		default:
			http.NotFound(w, r)
		}
	}), Config{})
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		"is vllm", "/metrics/ for the wanted series only",
		"running 4 requests vllm:num_requests_running",
		"kvTokens 1600 tokens vllm:cache_config_info num_gpu_blocks",
		"maxModelLen 8192 tokens /v1/models", "models base /v1/models", "loadable ad0 /v1/models",
		"NOT REPORTED WHAT THAT COSTS", "load the load is as old as an engine step", "maxRunning little",
		"note: load: /load has not been above 0; it counts only with --enable-server-load-tracking",
		"note: response headers mean accepted",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// columns of a table are two blanks apart.
var columns = regexp.MustCompile(`  +`)

func TestInspectNamesTheSourceOfEachField(t *testing.T) {
	tests := []struct {
		name  string
		pages pages
		want  map[string]string
	}{
		{"SGLang", pages{"/metrics": sglangMetrics + "sglang:cached_tokens_total{cache_source=\"total\"} 1\nsglang:num_grammar_queue_reqs 0\n", "/v1/loads": loads(1, 0, 0, 7)},
			map[string]string{"running": "/v1/loads", "kvUsage": "/v1/loads", "promptTokens": "sglang:prompt_tokens_total",
				"prefixHits": "sglang:cached_tokens_total{cache_source=total} + sglang:prompt_tokens_total"}},
		{"an older SGLang", pages{"/metrics": sglangMetrics + "sglang:num_grammar_queue_reqs 0\nsglang:cache_config_info{page_size=\"1\",num_pages=\"9\"} 1\n"},
			map[string]string{"running": "sglang:num_running_reqs", "waiting": "sglang:num_queue_reqs + sglang:num_grammar_queue_reqs",
				"kvTokens": "sglang:cache_config_info num_pages", "load": ""}},
		{"llama.cpp", pages{"/metrics": "llamacpp:requests_deferred 0\n", "/slots": `[{"n_ctx":4096}]`},
			map[string]string{"running": "/slots", "waiting": "llamacpp:requests_deferred", "maxModelLen": "/slots"}},
		{"TGI", pages{"/metrics": "tgi_queue_size 0\ntgi_batch_current_max_tokens 1\ntgi_batch_max_total_tokens 2\n", "/info": `{"model_id":"m","max_total_tokens":9}`},
			map[string]string{"kvUsage": "tgi_batch_current_max_tokens", "kvTokens": "tgi_batch_max_total_tokens", "maxModelLen": "/info", "models": "/info"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := inspect(t, tt.pages, Config{})
			if err != nil {
				t.Fatal(err)
			}
			sources := map[string]string{}
			for line := range strings.Lines(text) {
				if row := columns.Split(strings.TrimSpace(line), -1); len(row) == 3 {
					sources[row[0]] = row[2]
				}
			}
			for name, want := range tt.want {
				if sources[name] != want {
					t.Errorf("%s is from %q, want %q\n%s", name, sources[name], want, text)
				}
			}
		})
	}
}

func TestInspectFailsWithAdvice(t *testing.T) {
	unauthorized := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 401) })
	tests := []struct {
		name    string
		handler http.Handler
		want    string
	}{
		{"a page", text("<!DOCTYPE html>\n<html>"), "no known series in the answer: /metrics sent 22 bytes of text/html that begin with \"<!DOCTYPE html>\\n<html>\"; metrics may be"},
		{"an empty page", text(""), "no known series in the answer: /metrics sent nothing; metrics may be"},
		{"no metrics", pages{}, "answered status 404; metrics may be switched off (SGLang needs --enable-metrics"},
		{"metrics of something else", pages{"/metrics": "go_goroutines 7\n"}, "no known series in the answer"},
		{"no answer", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
			"timeout; a request may take 2s, and all of a scrape 5s; the pod is busy or stuck"},
		{"a key is wanted", unauthorized, "answered status 401; it wants a token"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := inspect(t, tt.handler, Config{}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	for _, bad := range []string{"", "ftp://a:1", "http://", "http://u:p@h:1", "http://h:1/metrics?x", "http://[::1"} {
		if _, err := Inspect(t.Context(), bad, Config{}); err == nil || !strings.Contains(err.Error(), "URL") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// What is not HTTP may be a giant.
func TestInspectCutsGarbage(t *testing.T) {
	giant := strings.Repeat("garbage", 10_000)
	for name, sent := range map[string]string{
		"another protocol":      giant + "\n",
		"a header that is none": "HTTP/1.1 200 OK\r\n" + giant + "\r\n\r\n",
		"a media type":          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: " + giant + "\r\n\r\nhi",
		"a detour":              "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://elsewhere/" + giant + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer c.Close()
						_, _ = http.ReadRequest(bufio.NewReader(c))
						_, _ = io.WriteString(c, sent)
					}()
				}
			}()
			if _, err := Inspect(t.Context(), l.Addr().String(), Config{}); err == nil || len(err.Error()) > 600 {
				t.Errorf("%.1000v", err)
			}
		})
	}
}

func TestInspectByScraper(t *testing.T) {
	s := httptest.NewServer(pages{"/metrics": "tgi_queue_size 5\n"})
	defer s.Close()
	scraper, err := New(Config{Engine: "tgi"}, podstate.NewTable(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := scraper.Inspect(t.Context(), netip.MustParseAddrPort(s.Listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if _, err := r.WriteTo(&text); err != nil || !strings.Contains(text.String(), "5 requests  tgi_queue_size") {
		t.Errorf("report %s, %v", &text, err)
	}
}

func TestParseURL(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1:8000": "http://10.0.0.1:8000", "http://pod:8000/": "http://pod:8000", "https://pod": "https://pod:443",
		"pod": "http://pod:80", "http://[fd00::1]:8000/v1/metrics": "http://[fd00::1]:8000/v1/metrics",
	} {
		if u, err := parseURL(in); err != nil || u.String() != want {
			t.Errorf("%q: %v %v, want %s", in, u, err, want)
		}
	}
}
