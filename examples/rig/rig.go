// Package rig runs simulated model servers, warmpath as its own process, and
// real Envoys in front, all on loopback.
package rig

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

// Model is the name under which the pods serve.
const Model = "llama-8b"

// patience is for what takes less than a second, on a machine with too much to do.
const patience = time.Minute

// Options say what to run.
type Options struct {
	Pods     []engine.Config // one for each simulated pod
	Servers  []string        // host:port of real pods, which run already and go on after Close
	Warmpath string          // binary; empty: build it from this module
	Listen   string          // of the Envoy that asks warmpath; empty: any free port
	Profile  string          // empty: the default
	Scrape   time.Duration   // 0: the default
}

// Rig is all that runs.
type Rig struct {
	Pods       []*simpod.Server
	Admin      string // warmpath's, host:port
	Warmpath   string // the Envoy that asks warmpath, host:port
	RoundRobin string // an Envoy that deals the same pods out in turn, host:port

	dir     string
	servers []string
	child   *exec.Cmd     // warmpath serve
	ended   chan struct{} // closed when child has ended
	envoys  []*envoy.Process
}

// Start starts all, or nothing.
func Start(ctx context.Context, o Options) (*Rig, error) {
	r := &Rig{servers: o.Servers}
	if err := r.start(ctx, o); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Rig) start(ctx context.Context, o Options) (err error) {
	if r.dir, err = os.MkdirTemp("", "warmpath-rig-"); err != nil {
		return err
	}
	for _, e := range o.Pods {
		// Ten tokens in an event make a busy pod cheap; the first comes alone.
		p, err := simpod.Start(simpod.Config{Addr: "127.0.0.1:0", Model: Model, Engine: e, StreamInterval: 10})
		if err != nil {
			return err
		}
		r.Pods = append(r.Pods, p)
	}
	if o.Warmpath == "" {
		o.Warmpath = filepath.Join(r.dir, "warmpath")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.Warmpath, "github.com/warmpath/warmpath")
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build warmpath: %w\n%s", err, text)
		}
	}
	config := filepath.Join(r.dir, "warmpath.yaml")
	for err = errTaken; errors.Is(err, errTaken); {
		if err := r.writeConfig(config, o); err != nil {
			return err
		}
		err = r.startWarmpath(ctx, o.Warmpath, config)
	}
	if err != nil {
		return err
	}
	bootstrap, err := output(ctx, o.Warmpath, "bootstrap", "--config", config)
	if err != nil {
		return err
	}
	if r.Warmpath, err = r.startEnvoy(ctx, bootstrap); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := roundRobin.Execute(&text, r.hosts()); err != nil {
		return err
	}
	r.RoundRobin, err = r.startEnvoy(ctx, text.Bytes())
	return err
}

func (r *Rig) startEnvoy(ctx context.Context, bootstrap []byte) (listen string, err error) {
	e, err := envoy.Start(ctx, envoy.Options{Bootstrap: bootstrap, Workers: 1})
	if err != nil {
		return "", err
	}
	r.envoys = append(r.envoys, e)
	// Envoy may serve before it has heard of the pods: it waits for 5 s only.
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const stat = "cluster.pods.membership_total"
	want := fmt.Sprintf("%s: %d", stat, len(r.hosts()))
	err = poll(ctx, func() bool {
		text, err := e.Get(ctx, "/stats?filter=^"+stat+"$")
		return err == nil && strings.TrimSpace(text) == want
	})
	if err != nil {
		return "", fmt.Errorf("envoy does not know all pods: %w", err)
	}
	return e.Listen, nil
}

// host is a pod as the two configurations name it.
type host struct{ Name, Address, Port string }

func (r *Rig) hosts() (list []host) {
	for i, p := range r.Pods {
		address, port, _ := strings.Cut(p.Addr, ":")
		list = append(list, host{fmt.Sprintf("pod-%d", i), address, port})
	}
	for i, addr := range r.servers {
		address, port, _ := strings.Cut(addr, ":")
		list = append(list, host{fmt.Sprintf("server-%d", i), address, port})
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
{{- if .Profile}}
  profile: {{.Profile}}
{{- end}}
{{- if .Scrape}}
  scrape: {interval: {{.Scrape}}}
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

func (r *Rig) writeConfig(path string, o Options) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	r.Admin = ports[2]
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	var text bytes.Buffer
	if err := gateway.Execute(&text, map[string]any{
		"GRPC": ports[0], "Health": ports[1], "Admin": ports[2], "Model": Model, "Hosts": r.hosts(),
		"Listen": o.Listen, "Profile": o.Profile, "Scrape": o.Scrape,
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

// errTaken says that somebody else has taken a port since it was chosen.
var errTaken = errors.New("a port is in use")

// startWarmpath runs warmpath and waits until it is healthy.
func (r *Rig) startWarmpath(ctx context.Context, binary, config string) error {
	var log bytes.Buffer
	r.child = exec.CommandContext(ctx, binary, "serve", "--config", config)
	r.child.Stdout, r.child.Stderr = &log, &log
	r.child.SysProcAttr = envoy.ChildAttr()
	r.child.Cancel = func() error { return r.child.Process.Signal(syscall.SIGTERM) }
	r.child.WaitDelay = 10 * time.Second
	if err := r.child.Start(); err != nil {
		return err
	}
	r.ended = make(chan struct{})
	go func(child *exec.Cmd, ended chan struct{}) {
		child.Wait() // how it ended is in the log
		close(ended)
	}(r.child, r.ended)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := poll(ctx, func() bool {
		select {
		case <-r.ended:
			cancel()
			return false
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Admin+"/healthz", nil)
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
		r.stopWarmpath() // the log may be read only when nobody writes it
		if bytes.Contains(log.Bytes(), []byte(" is in use;")) {
			return errTaken
		}
		return fmt.Errorf("warmpath did not become ready: %w\n%s", err, log.Bytes())
	}
	return nil
}

func (r *Rig) stopWarmpath() {
	if r.child != nil && r.child.Process != nil {
		r.child.Process.Signal(syscall.SIGTERM)
		<-r.ended
	}
	r.child = nil
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

// ResetCaches makes the pods forget all prompts.
func (r *Rig) ResetCaches() {
	for _, p := range r.Pods {
		p.ResetCache()
	}
}

// Served counts the first tokens of each pod.
func (r *Rig) Served() (n []int) {
	for _, p := range r.Pods {
		n = append(n, p.FirstTokens())
	}
	return n
}

// Settle waits until no pod works any more, a minute at most.
func (r *Rig) Settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll(ctx, func() bool {
		for _, p := range r.Pods {
			if rep := p.Report(); rep.Running+rep.Waiting > 0 {
				return false
			}
		}
		return true
	})
}

// Close ends all.
func (r *Rig) Close() {
	for _, e := range r.envoys {
		e.Stop()
	}
	r.stopWarmpath()
	for _, p := range r.Pods {
		p.Close()
	}
	if r.dir != "" {
		os.RemoveAll(r.dir)
	}
}
