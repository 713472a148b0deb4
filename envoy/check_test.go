package envoy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/proto/configpb"
)

func TestCheckFindsNothingInOurOwn(t *testing.T) {
	for name, tt := range bootstraps {
		text, err := Bootstrap(tt.cfg, tt.target)
		if err != nil {
			t.Fatal(err)
		}
		findings, err := CheckConfig(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			t.Errorf("%s:%d: %s", name, f.Line, f.Text)
		}
	}
}

// Each row spoils the generated bootstrap in one way, which must be found where
// it is, and nothing else.
func TestCheckFindsTraps(t *testing.T) {
	const duplex = "FULL_DUPLEX_STREAMED"
	for name, tt := range map[string]struct {
		mode     string
		old, new string
		want     string // in the text
		line     string // on the line that is named; empty: new
	}{
		"trailers of responses":      {"", "response_trailer_mode: SEND", "response_trailer_mode: SKIP", "set processing_mode.response_trailer_mode: SEND", ""},
		"trailers of requests":       {"", "request_trailer_mode: SEND", "request_trailer_mode: DEFAULT", "request_trailer_mode: SEND", ""},
		"no trailer mode":            {"", "response_trailer_mode: SEND", "", "response_trailer_mode: SEND", "request_header_mode"},
		"no body":                    {"", "request_body_mode: BUFFERED", "request_body_mode: NONE", "neither the model nor the prompt", ""},
		"short timeout":              {"", "message_timeout: 75s", "message_timeout: 0.5s", "500ms", ""},
		"no timeout":                 {"", "              message_timeout: 75s ", "              # ", "200ms", "ext_proc.v3.ExternalProcessor"},
		"no override":                {"", "allow_mode_override: true", "allow_mode_override: false", "WebSocket", ""},
		"retries of the gRPC stream": {"", "{envoy_grpc: {cluster_name: warmpath}}   #", "{envoy_grpc: {cluster_name: warmpath}, retry_policy: {num_retries: 3}}   #", "never get an answer", "retry_policy: {num"},
		"no rules":                   {"", "mutation_rules:", "mutation_rulez:", "no mutation_rules", "ext_proc.v3.ExternalProcessor"},
		"rules that are too strict":  {"", "|retry-after)$", ")$", "retry-after", "disallow_all: true"},
		"served address":             {"", "[upstream.address, ", "[", "upstream.address", "response_attributes"},
		"header source": {"", "- metadata: {key: warmpath, path: [{key: x-gateway-destination-endpoint}]}",
			"- header: x-other", "which a client can send", ""},
		"two sources": {"", "- metadata: {key: warmpath, path: [{key: x-gateway-destination-endpoint}]}",
			"- header: x-gateway-destination-endpoint\n            - metadata: {key: warmpath}", "keep one", "- metadata: {key: warmpath}"},
		"metadata that may not be written": {"", "receiving_namespaces: {untyped: [warmpath, envoy.lb]}", "receiving_namespaces: {untyped: [envoy.lb]}", "receiving_namespaces", "- metadata:"},
		"idle connections":                 {"", "idle_timeout: 4s", "idle_timeout: 60s", "1m0s", ""},
		"camelCase":                        {"", "idle_timeout: 4s", "idleTimeout: 5s", "5s", ""},
		"route timeout":                    {"", "timeout: 0s ", "timeout: 30s ", "cuts longer answers", ""},
		"duplex with retries":              {duplex, "filter: warmpath\n", "filter: other\n", "twice", "retry_on"},
		"pods with few connections":        {"", "circuit_breakers:\n      thresholds", "breakers:\n      thresholds", "1,024", "name: pods"},
		"a pick that nobody takes":         {"", "override_host.v3.OverrideHost", "other.v3.Other", "balances it by itself", "name: pods"},
		"HTTP/1 to warmpath":               {"", "http2_protocol_options: {max_concurrent_streams: 1000, connection_keepalive", "http_protocol_options: {connection_keepalive", "HTTP/2", "name: warmpath"},
		"no health check":                  {"", "health_checks:", "checks:", "grpc_health_check", "name: warmpath"},
		"nobody asks warmpath":             {"", "ext_proc.v3.ExternalProcessor", "ext_proc.v3.Other", "does not ask warmpath", "# Envoy"},
		"ORIGINAL_DST by header": {"", "  clusters:\n", "  clusters:\n  - {name: direct, connect_timeout: 1s, circuit_breakers: {}, original_dst_lb_config: {use_http_header: true}, " +
			"typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {common_http_protocol_options: {idle_timeout: 4s}}}}\n", "any address", "name: direct"},
	} {
		t.Run(name, func(t *testing.T) {
			good, err := Bootstrap(&configpb.GatewayConfig{Envoy: &configpb.Envoy{BodyMode: tt.mode}}, Target{})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(good), tt.old) {
				t.Fatalf("the bootstrap has no %q", tt.old)
			}
			bad := strings.Replace(string(good), tt.old, tt.new, 1)
			findings, err := CheckConfig([]byte(bad))
			if err != nil {
				t.Fatal(err)
			}
			if len(findings) != 1 || !strings.Contains(findings[0].Text, tt.want) {
				t.Fatalf("%d findings, want one with %q: %v", len(findings), tt.want, findings)
			}
			line := strings.Split(bad, "\n")[max(1, findings[0].Line)-1]
			if tt.line == "" {
				tt.line = tt.new
			}
			if !strings.Contains(line, strings.TrimSpace(tt.line)) {
				t.Errorf("it points to line %d, %q; want the one with %q", findings[0].Line, line, tt.line)
			}
		})
	}
}

func TestCheckRejectsWhatIsNoYAML(t *testing.T) {
	if _, err := CheckConfig([]byte("a: [")); err == nil {
		t.Error("no error")
	}
	findings, err := CheckConfig(nil)
	if err != nil || len(findings) != 1 {
		t.Errorf("an empty file: %v, %v; want one finding", findings, err)
	}
}

// Whatever a file holds, the check ends, and points into the file.
func FuzzCheckConfig(f *testing.F) {
	f.Add("a: &a {b: *a}")
	f.Add(`filters:
- {"@type": t/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor, grpcService: {envoyGrpc: {clusterName: w}}, processing_mode: {request_body_mode: BUFFERED}, mutation_rules: {disallow_all: true}}
--- # a second document
clusters:
- {name: p, connect_timeout: 1s, load_balancing_policy: {"@type": t/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost, override_host_sources: [{header: h}, {metadata: {key: m}}]}}
- {name: w, load_assignment: {}}
routes: [{match: {prefix: /}, route: {cluster: p, timeout: 1s, retry_policy: {}}}]
`)
	f.Fuzz(func(t *testing.T, text string) {
		findings, err := CheckConfig([]byte(text))
		if err != nil && findings != nil {
			t.Fatal("findings and an error")
		}
		for _, finding := range findings {
			if finding.Text == "" || finding.Line < 0 || finding.Line > strings.Count(text, "\n")+1 {
				t.Fatal(fmt.Sprint(finding))
			}
		}
	})
}
