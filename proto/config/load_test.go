package config

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/warmpath/warmpath/proto/configpb"
)

var known = Known{
	Profiles: []string{"latency", "throughput", "hyperpod", "epp"},
	Scorers:  []string{"queue", "kvCache", "running", "prefix", "loraAffinity"},
	Engines:  []string{"auto", "vllm", "sglang", "llamacpp"},
}

// Each testdata/*.bad.yaml says in comments what must be said about it:
//
//	# want: LINE: path: text
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".bad.yaml"), func(t *testing.T) {
			var want []string
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if w, ok := strings.CutPrefix(line, "# want: "); ok {
					want = append(want, strings.TrimSuffix(w, "\n"))
				}
			}
			_, err = Load(file, known)
			var ms Mistakes
			if !errors.As(err, &ms) {
				t.Fatalf("error %v is not a list of mistakes", err)
			}
			got := strings.ReplaceAll(ms.Error(), file+": ", "")
			got = strings.ReplaceAll(got, file+":", "")
			if got != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
		})
	}
}

func TestLoad(t *testing.T) {
	c, err := Load("testdata/full.yaml", known)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Pools) != 3 || c.DefaultPool != "llama-8b" || c.Pools[0].Weights["prefix"] != 3 {
		t.Errorf("got %v", c)
	}
	if got := c.Pools[0].Discovery.Static[1].GetStringValue(); got != "10.0.0.2:8000" {
		t.Errorf("static address %q", got)
	}
	if got := c.Pools[1].Discovery.Static[0].GetStructValue().Fields["labels"].GetStructValue().Fields["gpu"].GetStringValue(); got != "H100" {
		t.Errorf("label %q", got)
	}
	if c.Pools[0].Scrape.Tls != nil || c.Pools[2].Scrape.Tls == nil {
		t.Error("tls: {} means HTTPS, no tls means HTTP")
	}
	if got := Interval(c.Pools[0]); got != time.Second {
		t.Errorf("interval %v", got)
	}
	if got, want := c.Pools[2].Discovery.File, filepath.Join("testdata", "endpoints.yaml"); got != want {
		t.Errorf("discovery file %q, want %q: relative to the configuration", got, want)
	}
}

func TestLoadJSON(t *testing.T) {
	c, err := Load("testdata/full.json", known)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Pools[0].Models[0]; got != "meta-llama/Llama-3.1-8B-Instruct" {
		t.Errorf("model %q", got)
	}
	if got := c.Pools[0].Models[1]; got != "\U0001F999 \\/ \"\u00e9" {
		t.Errorf("model %q", got)
	}
	if got := c.Server.Admin.AdminToken; got != "s3cret" {
		t.Errorf("token %q", got)
	}
}

func TestLine(t *testing.T) {
	for field, want := range map[string]int{
		"pools[0].scrape":                    5, // stands
		"pools[0].discovery.dns":             4, // only what is around it does
		"pools[1]":                           6,
		"pools[1].discovery.static[0].label": 10,
		"envoy":                              0,
	} {
		if got := Line("testdata/lines.yaml", field); got != want {
			t.Errorf("%s: line %d, want %d", field, got, want)
		}
	}
	if got := Line("testdata/nowhere.yaml", "pools"); got != 0 {
		t.Errorf("of a file that is not there: line %d", got)
	}
}

func TestLoadMissingFile(t *testing.T) {
	_, err := Load("testdata/nowhere.yaml", known)
	if err == nil || err.Error() != "testdata/nowhere.yaml: the configuration cannot be read: no such file or directory" {
		t.Errorf("error %v", err)
	}
}

func TestDefaults(t *testing.T) {
	c, err := Parse("c.yaml", []byte(`pools: [{name: a, models: [m], discovery: {static: ["10.0.0.1:8000"]}}]`), known)
	if err != nil {
		t.Fatal(err)
	}
	want := &configpb.GatewayConfig{}
	err = protojson.Unmarshal([]byte(`{
		"apiVersion": "warmpath/v1", "kind": "GatewayConfig",
		"server": {"grpc": {"address": ":9002", "tls": {"mode": "auto"}}, "health": {"address": ":9003"}, "admin": {"address": ":9090"}},
		"pools": [{"name": "a", "models": ["m"], "engine": "auto", "discovery": {"static": ["10.0.0.1:8000"]},
			"scrape": {"interval": "1s"}, "profile": "latency",
			"observe": {"firstToken": "auto", "usage": "auto", "cpuBudget": 0.05}}],
		"envoy": {"listen": "0.0.0.0:8080", "admin": "127.0.0.1:9901", "bodyMode": "BUFFERED", "failOpen": true}
	}`), want)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(c, want) {
		t.Errorf("got  %v\nwant %v", c, want)
	}
}

func TestDefaultsOfADecisionLog(t *testing.T) {
	c, err := Parse("testdata/c.yaml", []byte(`{server: {decisionLog: {file: log}}, pools: [{name: a, models: [m], discovery: {static: ["10.0.0.1:8000"]}}]}`), known)
	if err != nil {
		t.Fatal(err)
	}
	want := &configpb.DecisionLog{File: filepath.Join("testdata", "log"), Sample: 1, MaxMegabytes: 512}
	if !proto.Equal(c.Server.DecisionLog, want) {
		t.Errorf("got %v, want %v", c.Server.DecisionLog, want)
	}
}

func TestFalseIsNotTheDefault(t *testing.T) {
	c, err := Parse("c.yaml", []byte(`{envoy: {failOpen: false}, pools: [{name: a, models: [m], discovery: {dns: "a.b:80"}}]}`), known)
	if err != nil {
		t.Fatal(err)
	}
	if c.Envoy.GetFailOpen() {
		t.Error("failOpen: false was read as true")
	}
}

// What has been loaded and is written as JSON is loaded as the same.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.*")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("/nowhere/c.yaml", data, known)
		if err != nil {
			if strings.Contains(err.Error(), "BUG") || strings.Contains(err.Error(), "proto:") {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		text, err := protojson.Marshal(c)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		again, err := Parse("/nowhere/c.yaml", text, known)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !proto.Equal(c, again) {
			t.Errorf("got  %v\nwant %v", again, c)
		}
	})
}

// Whoever writes a number that is none is told what it may be.
func TestIntegersHaveLimits(t *testing.T) {
	n := 0
	var walk func(d protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		for i := range d.Fields().Len() {
			fd := d.Fields().Get(i)
			if m := fd.Message(); m != nil && m.ParentFile() == d.ParentFile() && !fd.IsMap() {
				walk(m)
			} else if fd.Kind() == protoreflect.Int32Kind {
				n++
				if least, most := bounds(fd); least < 0 || most == math.MaxInt32 {
					t.Errorf("%s: %d to %d are the limits of its type", fd.FullName(), least, most)
				}
			}
		}
	}
	walk((&configpb.GatewayConfig{}).ProtoReflect().Descriptor())
	if n < 3 {
		t.Errorf("%d integers; want port, targetPort and maxMegabytes at least", n)
	}
}

func TestEdits(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"queue", "queue", 0}, {"queu", "queue", 1}, {"qeuue", "queue", 2}, {"kitten", "sitting", 3}} {
		if got := edits(tt.a, tt.b); got != tt.want {
			t.Errorf("edits(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := edits(tt.b, tt.a); got != tt.want {
			t.Errorf("edits(%q, %q) = %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}
