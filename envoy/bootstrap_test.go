package envoy

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/proto/configpb"
)

var update = flag.Bool("update", false, "write the golden files anew")

// bootstraps are configs whose bootstrap is kept as a golden file, which is also
// how a reader sees what the template makes.
var bootstraps = map[string]struct {
	cfg    *configpb.GatewayConfig
	target Target
}{
	"default": {&configpb.GatewayConfig{Pools: []*configpb.Pool{{Name: "a"}}}, Target{}},
	"no-tap": {&configpb.GatewayConfig{
		Pools: []*configpb.Pool{{Name: "a", Observe: &configpb.Observe{FirstToken: "off"}}},
	}, Target{}},
	"usage-trailers": {&configpb.GatewayConfig{
		Pools: []*configpb.Pool{{Name: "a", Observe: &configpb.Observe{FirstToken: "off", Usage: "trailers"}}},
	}, Target{}},
	"fail-closed-tls": {&configpb.GatewayConfig{
		Server: &configpb.Server{Grpc: &configpb.GRPC{Address: "10.1.2.3:9100", Tls: &configpb.TLS{Mode: "on"}}},
		Envoy:  &configpb.Envoy{Listen: "[::]:80", Admin: "127.0.0.1:0", FailOpen: new(bool)},
	}, Target{Pickers: []string{"warmpath.llm.svc:9002", "10.1.2.4:9100"}}},
	"envoy-1.36": {&configpb.GatewayConfig{Pools: []*configpb.Pool{{Name: "a"}}}, Target{Version: "1.36.4"}},
	"duplex": {&configpb.GatewayConfig{
		Server: &configpb.Server{Grpc: &configpb.GRPC{Address: "[::]:9002"}},
		Pools:  []*configpb.Pool{{Name: "a", Observe: &configpb.Observe{FirstToken: "off"}}, {Name: "b"}},
		Envoy:  &configpb.Envoy{BodyMode: "FULL_DUPLEX_STREAMED"},
	}, Target{Version: "v1.38"}},
}

func TestBootstrapGolden(t *testing.T) {
	for name, tt := range bootstraps {
		t.Run(name, func(t *testing.T) {
			got, err := Bootstrap(tt.cfg, tt.target)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("the bootstrap differs from %s; if it should, run go test ./envoy -run Golden -update", path)
			}
		})
	}
}

// VersionAtHand is that of the Envoy that tests use.
func VersionAtHand(t testing.TB) string {
	t.Helper()
	binary, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, "--version").Output() // …/envoy  version: commit/1.40.0/Clean/RELEASE/BoringSSL
	if err != nil {
		t.Fatal(err)
	}
	_, words, _ := strings.Cut(string(out), "version: ")
	parts := strings.Split(words, "/")
	if len(parts) < 2 {
		t.Fatalf("%s --version says %q", binary, out)
	}
	return parts[1]
}

// Envoy itself must take what Bootstrap makes, without a warning.
func TestBootstrapIsAcceptedByEnvoy(t *testing.T) {
	binary, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	newest, err := minorVersion(VersionAtHand(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range bootstraps {
		if minor, _ := minorVersion(tt.target.Version); minor > newest {
			tt.target.Version = VersionAtHand(t)
		}
		t.Run(name, func(t *testing.T) {
			got, err := Bootstrap(tt.cfg, tt.target)
			if err != nil && name == "usage-trailers" && newest < 40 {
				return // Bootstrap says that this Envoy cannot
			}
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "bootstrap.yaml")
			if err := os.WriteFile(path, got, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(binary, "--mode", "validate", "-l", "warning", "-c", path).CombinedOutput()
			// This filter is work in progress, says Envoy.
			complaint := slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
				return strings.Contains(line, "[warning]") && !strings.Contains(line, "ai_protocol_manager")
			})
			if err != nil || complaint {
				t.Fatalf("%s: %v\n%.2000s", binary, err, out)
			}
		})
	}
}

func TestBootstrapMistakes(t *testing.T) {
	envoy := func(e *configpb.Envoy) *configpb.GatewayConfig { return &configpb.GatewayConfig{Envoy: e} }
	for name, tt := range map[string]struct {
		cfg    *configpb.GatewayConfig
		target Target
		want   []string // words of the message
	}{
		"an Envoy that is too old": {&configpb.GatewayConfig{}, Target{Version: "1.35.2"}, []string{`"1.35.2"`, "1.36 to 1.40"}},
		"an Envoy that is too new": {&configpb.GatewayConfig{}, Target{Version: "1.41"}, []string{`"1.41"`, "takes the bootstrap of 1.40"}},
		"what an Envoy does not have": {&configpb.GatewayConfig{Pools: []*configpb.Pool{{Name: "a", Observe: &configpb.Observe{Usage: "trailers"}}}},
			Target{Version: "1.39"}, []string{`pool "a"`, "trailers", "1.40", "1.39"}},
		"a version that is none":  {&configpb.GatewayConfig{}, Target{Version: "latest"}, []string{`"latest"`, "1.36"}},
		"an unknown body mode":    {envoy(&configpb.Envoy{BodyMode: "STREAMED"}), Target{}, []string{`envoy.bodyMode "STREAMED"`, "BUFFERED"}},
		"a name to listen on":     {envoy(&configpb.Envoy{Listen: "localhost:80"}), Target{}, []string{`envoy.listen "localhost:80"`, "0.0.0.0:8080"}},
		"a port that is none":     {envoy(&configpb.Envoy{Admin: "127.0.0.1:http"}), Target{}, []string{`envoy.admin "127.0.0.1:http"`, `"http"`}},
		"a picker without a port": {&configpb.GatewayConfig{}, Target{Pickers: []string{"warmpath"}}, []string{`picker address "warmpath"`, "host:port"}},
		"a picker that breaks out of its quotes": {&configpb.GatewayConfig{}, Target{Pickers: []string{"a\", port_value: 1}}}\nevil: \"x:9002"}},
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := Bootstrap(tt.cfg, tt.target)
			if tt.want == nil {
				if err == nil && strings.Contains(string(out), "\nevil") {
					t.Fatal("the text of an address became structure")
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
}

func TestValidateFindsWhatEnvoyWouldRefuse(t *testing.T) {
	good, err := Bootstrap(&configpb.GatewayConfig{}, Target{})
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string][2]string{
		"an unknown field":                   {"stat_prefix: llm", "stat_prefixes: llm"},
		"a field rule":                       {"stat_prefix: llm", "stat_prefix: ''"},
		"a field rule inside a typed config": {"max_active_downstream_connections: 50000", "max_active_downstream_connections: 0"},
		"a key that stands twice":            {"stat_prefix: llm", "stat_prefix: llm\n          stat_prefix: llm"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(string(good), edit[0], edit[1], 1)
			if bad == string(good) {
				t.Fatalf("%q is not in the bootstrap", edit[0])
			}
			if err := validate([]byte(bad)); err == nil {
				t.Fatal("not found")
			}
		})
	}
}
