package envoy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/envoy"
)

// idleBootstrap is an Envoy without warmpath and without pods.
const idleBootstrap = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: idle
    address: {socket_address: {address: 0.0.0.0, port_value: 0}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: idle
          route_config:
            virtual_hosts:
            - {name: idle, domains: ["*"], routes: [{match: {prefix: /}, direct_response: {status: 200, body: {inline_string: ok}}}]}
          http_filters:
          - name: router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
`

func listening(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func TestStartServesAndStops(t *testing.T) {
	p, err := envoy.Start(t.Context(), envoy.Options{Bootstrap: []byte(idleBootstrap), Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	resp, err := newClient(t, false).Get("http://" + p.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(text) != "ok" {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
	if text, err := os.ReadFile(p.LogPath()); err != nil || !strings.Contains(string(text), "starting") {
		t.Errorf("the log: %.100q, %v", text, err)
	}
	p.Stop()
	p.Stop()
	<-p.Done()
	if listening(p.Listen) {
		t.Error("it still listens")
	}
	if _, err := os.Stat(p.LogPath()); err == nil {
		t.Error("the temporary log is still there")
	}
}

func TestEnvoyEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	log := filepath.Join(t.TempDir(), "envoy.log")
	p, err := envoy.Start(ctx, envoy.Options{Bootstrap: []byte(idleBootstrap), Workers: 1, LogPath: log})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-p.Done()
	p.Stop() // waits until all is done
	if _, err := os.Stat(log); err != nil {
		t.Errorf("the log that was asked for: %v", err)
	}
}

func TestEnvoyEndsWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can tie a child to its parent")
	}
	c := startChild(t, "envoy")
	if !listening(c.addr) {
		t.Fatalf("no Envoy at %s", c.addr)
	}
	c.kill()
	waitFor(t, "Envoy to end", func() bool { return !listening(c.addr) })
}

func TestStartSaysWhyNot(t *testing.T) {
	lis, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	_, taken, _ := net.SplitHostPort(lis.Addr().String())

	for name, tt := range map[string]struct {
		options envoy.Options
		want    string
	}{
		"a bootstrap that Envoy refuses": {envoy.Options{Bootstrap: []byte("static_resources: {listenerz: []}")}, "listenerz"},
		"a port in use":                  {envoy.Options{Bootstrap: []byte(strings.Replace(idleBootstrap, "0.0.0.0, port_value: 0", "0.0.0.0, port_value: "+taken, 1))}, taken},
		"no binary":                      {envoy.Options{Binary: "no-such-envoy"}, "no-such-envoy"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := envoy.Start(t.Context(), tt.options)
			if err == nil {
				p.Stop()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	t.Setenv("ENVOY", filepath.Join(t.TempDir(), "none"))
	if path, err := envoy.Find(); err == nil {
		t.Errorf("$ENVOY names nothing, but Find returns %s", path)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ENVOY", self)
	if path, err := envoy.Find(); err != nil || path != self {
		t.Errorf("%q, %v; want $ENVOY", path, err)
	}
	t.Setenv("ENVOY", "")
	t.Setenv("PATH", t.TempDir())
	t.Chdir(t.TempDir())
	if path, err := envoy.Find(); err == nil || !strings.Contains(err.Error(), "make envoy") {
		t.Errorf("%q, %v; want an error that names the way out", path, err)
	}
}
