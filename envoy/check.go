package envoy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// Finding is something in an Envoy configuration that will hurt.
type Finding struct {
	Line int    // 1 is the first; 0: the file as a whole
	Text string // what is wrong, what it leads to, and what to write instead
}

// CheckConfig looks for known traps in an Envoy configuration that a user wrote:
// a bootstrap, or a part of one, in YAML or JSON. It knows the traps only; what
// else may be wrong, `envoy --mode validate` says. The error is for a file that
// is not YAML.
func CheckConfig(text []byte) ([]Finding, error) {
	c := &checker{stripped: map[string]bool{}, pods: map[string]bool{}, pickers: map[string]bool{}, namespaces: map[string]bool{}}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var n yaml.Node
		if err := d.Decode(&n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("envoy configuration: %w", err)
		}
		c.collect(&n)
	}
	if len(c.filters) == 0 {
		return []Finding{{0, "no ext_proc filter: this Envoy does not ask warmpath; `warmpath bootstrap` prints one that does"}}, nil
	}
	for _, f := range c.filters {
		c.filter(f)
	}
	for _, s := range c.sources {
		if c.pickers[s.cluster] {
			continue // chooses a replica of warmpath, by what no client can set
		}
		c.pods[s.cluster] = s.cluster != ""
		c.source(s.node)
	}
	if len(c.pods) == 0 {
		c.unsteered()
	}
	for _, cl := range c.clusters {
		c.cluster(cl)
	}
	for _, r := range c.routes {
		c.route(r)
	}
	slices.SortStableFunc(c.findings, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	return c.findings, nil
}

// checker holds the parts of a configuration that matter, and what was found.
type checker struct {
	filters    []node // ext_proc
	sources    []source
	clusters   []node
	routes     []node
	stripped   map[string]bool // headers that are removed early
	pods       map[string]bool // names of clusters with a destination from warmpath
	pickers    map[string]bool // names of clusters with warmpath
	duplex     bool
	namespaces map[string]bool // that warmpath may write
	findings   []Finding
}

// source is an override_host policy, or a cluster that is told the address.
type source struct {
	node
	cluster string // name
}

func (c *checker) found(at node, format string, args ...any) {
	c.findings = append(c.findings, Finding{at.Line, fmt.Sprintf(format, args...)})
}

const destination = "x-gateway-destination-endpoint"

// collect walks a document once and sorts out what the rules look at.
func (c *checker) collect(root *yaml.Node) {
	walk(node{root}, "", func(n node, cluster string) {
		switch n.typeName() {
		case "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor":
			picker := n.text("grpc_service", "envoy_grpc", "cluster_name")
			c.pickers[picker] = picker != ""
			if n.text("observability_mode") == "true" {
				return // it only looks on
			}
			c.filters = append(c.filters, n)
			c.duplex = c.duplex || n.text("processing_mode", "request_body_mode") == "FULL_DUPLEX_STREAMED"
			for _, ns := range n.get("metadata_options", "receiving_namespaces", "untyped").items() {
				c.namespaces[ns.Value] = true
			}
		case "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation":
			for _, m := range n.get("mutations").items() {
				c.stripped[m.text("remove")] = true
			}
		case "envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost":
			c.sources = append(c.sources, source{n, cluster})
		}
		if n.get("connect_timeout").ok() || n.get("load_assignment").ok() || n.get("eds_cluster_config").ok() {
			c.clusters = append(c.clusters, n)
		}
		if n.get("original_dst_lb_config").ok() {
			c.sources = append(c.sources, source{n, n.text("name")})
		}
		if n.get("match").ok() && n.get("route", "cluster").ok() {
			c.routes = append(c.routes, n)
		}
	})
}

// filter holds the rules of the ext_proc filter.
func (c *checker) filter(f node) {
	mode := f.get("processing_mode")
	at := mode.or(f)
	if mode.text("response_trailer_mode") != "SEND" {
		c.found(mode.get("response_trailer_mode").or(at), "response_trailer_mode is not SEND: Envoy may end its stream to warmpath long before the response ends, and the pod counts as free too early; set processing_mode.response_trailer_mode: SEND")
	}
	if mode.text("request_trailer_mode") != "SEND" {
		c.found(mode.get("request_trailer_mode").or(at), "request_trailer_mode is not SEND: nothing is picked for a request with trailers and no body; set processing_mode.request_trailer_mode: SEND")
	}
	body := mode.text("request_body_mode")
	switch body {
	case "", "NONE":
		c.found(mode.get("request_body_mode").or(at), "request_body_mode is NONE: warmpath sees neither the model nor the prompt; set processing_mode.request_body_mode: BUFFERED or FULL_DUPLEX_STREAMED")
	case "BUFFERED":
		if t := f.get("message_timeout"); t.duration(200*time.Millisecond) < 60*time.Second {
			c.found(t.or(f), "message_timeout is %v: a request that waits longer in warmpath's queue ends with 504, or unpicked; set message_timeout: 75s", t.duration(200*time.Millisecond))
		}
		if f.text("allow_mode_override") != "true" {
			c.found(f.get("allow_mode_override").or(f), "allow_mode_override is off: WebSocket upgrades hang, as Envoy waits for the end of their body; set allow_mode_override: true")
		}
	}
	if p := f.get("grpc_service", "retry_policy"); p.ok() {
		c.found(p, "grpc_service.retry_policy: with it some requests never get an answer when a replica of warmpath ends; remove it, and give the cluster of warmpath a gRPC health check")
	}
	if rules := f.get("mutation_rules"); !rules.ok() {
		c.found(f, `no mutation_rules: whoever answers as warmpath may set any header, also :path and authorization; set mutation_rules: {disallow_all: true, allow_expression: {regex: "^(x-gateway-.*|content-type|content-length|retry-after)$"}}`)
	} else if rules.text("disallow_all") == "true" {
		allowed, err := regexp.Compile("^(?:" + rules.text("allow_expression", "regex") + ")$")
		for _, h := range []string{destination, "content-type", "content-length", "retry-after"} {
			if err == nil && !allowed.MatchString(h) {
				c.found(rules, "mutation_rules do not let warmpath set %s; let allow_expression match x-gateway-.*, content-type, content-length and retry-after", h)
			}
		}
	}
	if !slices.ContainsFunc(f.get("response_attributes").items(), func(n node) bool { return n.Value == "upstream.address" }) {
		c.found(f.get("response_attributes").or(f), "response_attributes lacks upstream.address: after a retry warmpath charges the wrong pod; set response_attributes: [upstream.address, upstream.request_attempt_count]")
	}
}

// source holds the rules of what takes the pick.
func (c *checker) source(s node) {
	sources := s.get("override_host_sources").items()
	if len(sources) > 1 {
		c.found(sources[1], "two override_host_sources: Envoy tries the pods of the first and then the same ones of the second; keep one")
	}
	for _, src := range sources {
		if h := src.text("header"); h != "" && !c.stripped[h] {
			c.found(src, "the pick comes from the header %s, which a client can send and which steers whenever warmpath does not answer; take it from metadata {key: warmpath, path: [{key: %s}]}, or remove the header in early_header_mutation_extensions", h, destination)
		}
		if ns := src.text("metadata", "key"); ns != "" && !c.namespaces[ns] {
			c.found(src, "the pick comes from the metadata %s, which warmpath may not write; list it in metadata_options.receiving_namespaces.untyped of the ext_proc filter", ns)
		}
	}
	if o := s.get("original_dst_lb_config"); o.text("use_http_header") == "true" {
		h := cmp.Or(o.text("http_header_name"), "x-envoy-original-dst-host")
		if !c.stripped[h] {
			c.found(o, "the destination comes from the header %s, with which a client reaches any address when warmpath does not answer; remove it in early_header_mutation_extensions", h)
		}
	}
}

// unsteered finds the clusters that requests go to, where none takes the pick. A
// file that shows no such cluster may be a part of a configuration.
func (c *checker) unsteered() {
	for _, cl := range c.clusters {
		name := cl.text("name")
		if slices.ContainsFunc(c.routes, func(r node) bool { return r.text("route", "cluster") == name }) {
			c.found(cl, "cluster %s does not go where warmpath says: Envoy balances it by itself; give it the load_balancing_policy override_host with metadata {key: warmpath, path: [{key: %s}]}, or route to the cluster pods that `warmpath bootstrap` prints", name, destination)
		}
	}
}

// cluster holds the rules of the clusters of pods and of warmpath.
func (c *checker) cluster(cl node) {
	name := cl.text("name")
	if !c.pods[name] && !c.pickers[name] {
		return
	}
	if !cl.get("circuit_breakers").ok() {
		c.found(cl, "cluster %s has no circuit_breakers: above 1,024 requests at a time, which all last as long as their responses, the rest fail; raise max_connections, max_pending_requests and max_requests", name)
	}
	if c.pickers[name] && !cl.get("health_checks").ok() {
		c.found(cl, "cluster %s has no health_checks: a replica of warmpath that is being replaced gets requests to its last moment; add grpc_health_check: {service_name: envoy.service.ext_proc.v3.ExternalProcessor}", name)
	}
	options := cl.get("typed_extension_protocol_options", "envoy.extensions.upstreams.http.v3.HttpProtocolOptions")
	if c.pickers[name] && !cl.get("http2_protocol_options").ok() && !options.get("explicit_http_config", "http2_protocol_options").ok() && !options.get("auto_config").ok() {
		c.found(cl, "cluster %s speaks HTTP/1, and gRPC needs HTTP/2; set explicit_http_config: {http2_protocol_options: {}}", name)
	}
	if c.pods[name] {
		idle := options.get("common_http_protocol_options", "idle_timeout")
		if d := idle.duration(time.Hour); d == 0 || d >= 5*time.Second {
			c.found(idle.or(cl), "idle_timeout of cluster %s is %v: model servers close idle connections after 5s, and a request that is sent at that moment fails; set common_http_protocol_options: {idle_timeout: 4s}", name, d)
		}
	}
}

// route holds the rules of routes to pods.
func (c *checker) route(r node) {
	to := r.get("route")
	if !c.pods[to.text("cluster")] {
		return
	}
	if t := to.get("timeout"); t.duration(15*time.Second) != 0 {
		c.found(t.or(to), "the route's timeout is %v, which cuts longer answers; set timeout: 0s", t.duration(15*time.Second))
	}
	if p := to.get("retry_policy"); p.ok() && c.duplex && !c.trailersKeptOut() {
		c.found(p, "retry_policy with FULL_DUPLEX_STREAMED: Envoy sends the body of a request with trailers twice; put a route without retries before it, for requests whose dynamic metadata say {warmpath: {request-trailers: \"true\"}}, and leave route_cache_action at DEFAULT")
	}
}

// trailersKeptOut reports whether some route is for requests with trailers.
func (c *checker) trailersKeptOut() bool {
	return slices.ContainsFunc(c.routes, func(r node) bool {
		return slices.ContainsFunc(r.get("match", "dynamic_metadata").items(), func(m node) bool { return m.text("filter") == "warmpath" })
	})
}
