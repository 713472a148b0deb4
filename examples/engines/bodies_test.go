package engines_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/examples/rig"
)

func TestTheExampleStarts(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), warmpath, "check", "--config", "warmpath.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A gateway may look at bodies, but must not touch them.
func TestBodiesPassByteByByte(t *testing.T) {
	s := start(t, 0, 0)
	// Between Envoy and the engine, all bodies are taken down.
	type exchange struct{ request, response *strings.Builder }
	taken := make(chan exchange, 10)
	target := &url.URL{Scheme: "http", Host: s.Addr}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	tape := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			proxy.ServeHTTP(w, r)
			return
		}
		e := exchange{new(strings.Builder), new(strings.Builder)}
		r.Body = readCloser{io.TeeReader(r.Body, e.request), r.Body}
		recorder := *proxy
		recorder.ModifyResponse = func(resp *http.Response) error {
			resp.Body = readCloser{io.TeeReader(resp.Body, e.response), resp.Body}
			return nil
		}
		recorder.ServeHTTP(w, r)
		taken <- e
	}))
	t.Cleanup(tape.Close)
	r := startRig(t, rig.Options{Servers: []string{tape.Listener.Addr().String()}, Warmpath: warmpath})

	for _, c := range []struct {
		name string
		body []byte
	}{
		{"whole answer", chat("m", "the value of", 20, false)},
		{"stream", chat("m", "the value of", 20, true)},
		{"what the engine refuses", chat("m", digits(5000), 1, false)},
		{"odd spaces and an unknown field", []byte("{ \"x\" :1e3,\n\t\"messages\":[{\"role\":\"user\",\"content\":\"\\u0061\"}] ,\"max_tokens\":3,\"model\":\"m\"}\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, body := try(t, "http://"+r.Warmpath+"/v1/chat/completions", c.body)
			e := <-taken
			if e.request.String() != string(c.body) {
				t.Errorf("the engine got\n%s\nof\n%s", e.request, c.body)
			}
			if e.response.String() != string(body) || len(body) == 0 {
				t.Errorf("the client got\n%s\nof\n%s", body, e.response)
			}
		})
	}
}

type readCloser struct {
	io.Reader
	io.Closer
}
