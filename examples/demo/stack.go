package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/examples/simpod"
	"github.com/warmpath/warmpath/scorers/sim/engine"
)

const model = "llama-8b"

// stack is all that the demo runs.
type stack struct {
	dir   string
	pods  []*simpod.Server
	child *exec.Cmd // warmpath serve
	admin string    // of warmpath
	smart *envoy.Process
	plain *envoy.Process
}

func startStack(ctx context.Context, o options) (*stack, error) {
	s := &stack{}
	if err := s.start(ctx, o); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stack) start(ctx context.Context, o options) (err error) {
	if s.dir, err = os.MkdirTemp("", "warmpath-demo-"); err != nil {
		return err
	}
	if err = s.startPods(); err != nil {
		return err
	}
	if o.warmpath == "" {
		o.warmpath = filepath.Join(s.dir, "warmpath")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.warmpath, "github.com/warmpath/warmpath")
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build warmpath: %w\n%s", err, text)
		}
	}
	config := filepath.Join(s.dir, "warmpath.yaml")
	if err = s.writeConfig(config, o.listen); err != nil {
		return err
	}
	if err = s.startWarmpath(ctx, o.warmpath, config); err != nil {
		return err
	}
	bootstrap, err := output(ctx, o.warmpath, "bootstrap", "--config", config)
	if err != nil {
		return err
	}
	if s.smart, err = envoy.Start(ctx, envoy.Options{Bootstrap: bootstrap, Workers: 1}); err != nil {
		return err
	}
	var text bytes.Buffer
	if err = roundRobin.Execute(&text, s.hosts()); err != nil {
		return err
	}
	if s.plain, err = envoy.Start(ctx, envoy.Options{Bootstrap: text.Bytes(), Workers: 1}); err != nil {
		return err
	}
	return nil
}

// startPods starts two fast servers and two slow ones.
func (s *stack) startPods() error {
	for _, gpu := range []string{"h100-8b", "h100-8b", "a10g-8b", "a10g-8b"} {
		e, err := engine.Preset(gpu)
		if err != nil {
			return err
		}
		p, err := simpod.Start(simpod.Config{Addr: "127.0.0.1:0", Model: model, Engine: e, StreamInterval: 10})
		if err != nil {
			return err
		}
		s.pods = append(s.pods, p)
	}
	return nil
}

// host is a pod as the two configurations name it.
type host struct{ Name, Address, Port string }

func (s *stack) hosts() (list []host) {
	for i, p := range s.pods {
		address, port, _ := strings.Cut(p.Addr, ":")
		list = append(list, host{fmt.Sprintf("pod-%d", i), address, port})
	}
	return list
}

var gateway = template.Must(template.New("").Parse(`apiVersion: warmpath/v1
kind: GatewayConfig
server:
  grpc: {address: "{{.GRPC}}", tls: {mode: "off"}}
  health: {address: "{{.Health}}"}
  admin: {address: "{{.Admin}}"}
pools:
- name: demo
  models: [{{.Model}}]
  discovery:
    static:
{{- range .Hosts}}
    - {name: {{.Name}}, address: {{.Address}}, port: "{{.Port}}"}
{{- end}}
defaultPool: demo
envoy: {listen: "{{.Listen}}", admin: "127.0.0.1:0"}
`))

// roundRobin is an Envoy with the same pods and nothing else.
var roundRobin = template.Must(template.New("").Parse(`admin:
  address: {socket_address: {address: 127.0.0.1, port_value: 0}}
static_resources:
  listeners:
  - name: plain
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: plain
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route: {cluster: pods, timeout: 0s}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: pods
    type: STATIC
    connect_timeout: 1s
    lb_policy: ROUND_ROBIN
    circuit_breakers: {thresholds: [{max_connections: 100000, max_requests: 100000, max_pending_requests: 100000}]}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        common_http_protocol_options: {idle_timeout: 4s}
        explicit_http_config: {http_protocol_options: {}}
    load_assignment:
      cluster_name: pods
      endpoints:
      - lb_endpoints:
{{- range .}}
        - endpoint: {address: {socket_address: {address: {{.Address}}, port_value: {{.Port}}}}}
{{- end}}
`))

func (s *stack) writeConfig(path, listen string) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	s.admin = ports[2]
	var text bytes.Buffer
	if err := gateway.Execute(&text, map[string]any{
		"GRPC": ports[0], "Health": ports[1], "Admin": ports[2], "Model": model, "Hosts": s.hosts(), "Listen": listen,
	}); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o600)
}

// freePorts finds loopback addresses that nobody uses now.
func freePorts(n int) (list []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		list = append(list, l.Addr().String())
	}
	return list, nil
}

func (s *stack) startWarmpath(ctx context.Context, binary, config string) error {
	var log bytes.Buffer
	s.child = exec.CommandContext(ctx, binary, "serve", "--config", config)
	s.child.Stdout, s.child.Stderr = &log, &log
	s.child.Cancel = func() error { return s.child.Process.Signal(syscall.SIGTERM) }
	s.child.WaitDelay = 10 * time.Second
	if err := s.child.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := poll(ctx, func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/healthz", nil)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	if err != nil {
		s.stopWarmpath() // the log may be read only when nobody writes it
		return fmt.Errorf("warmpath did not become ready: %w\n%s", err, log.Bytes())
	}
	return nil
}

func (s *stack) stopWarmpath() {
	if s.child != nil && s.child.Process != nil {
		s.child.Process.Signal(syscall.SIGTERM)
		s.child.Wait()
	}
	s.child = nil
}

// poll tries until it works.
func poll(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	text, err := exec.CommandContext(ctx, name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return text, err
}

func (s *stack) resetCaches() {
	for _, p := range s.pods {
		p.ResetCache()
	}
}

// served counts the first tokens of each pod.
func (s *stack) served() (n []int) {
	for _, p := range s.pods {
		n = append(n, p.FirstTokens())
	}
	return n
}

// settle waits until no pod works any more.
func (s *stack) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll(ctx, func() bool {
		for _, p := range s.pods {
			if r := p.Report(); r.Running+r.Waiting > 0 {
				return false
			}
		}
		return true
	})
}

func (s *stack) close() {
	for _, e := range []*envoy.Process{s.smart, s.plain} {
		if e != nil {
			e.Stop()
		}
	}
	s.stopWarmpath()
	for _, p := range s.pods {
		p.Close()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}
