package discovery

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/podstate"
)

func TestReadFile(t *testing.T) {
	tests := []struct {
		name, content string
		want          []string // addresses
		err           string
	}{
		{"YAML in the form of llm-d", "endpoints:\n- name: pod-0\n  address: 10.0.0.1\n  port: \"8000\"\n  labels: {gpu: H100}\n", []string{"10.0.0.1:8000"}, ""},
		{"JSON", `{"endpoints": [{"address": "10.0.0.2", "port": 8000}, "10.0.0.1:8000"]}`, []string{"10.0.0.1:8000", "10.0.0.2:8000"}, ""},
		{"JSON with tabs", "{\n\t\"endpoints\": [\n\t\t\"10.0.0.1:8000\"\n\t]\n}", []string{"10.0.0.1:8000"}, ""},
		{"a bare list", "- 10.0.0.2:1\n- \"[fd00::1]:1\"\n- 10.0.0.1:1\n", []string{"10.0.0.1:1", "10.0.0.2:1", "[fd00::1]:1"}, ""},
		{"no pods, on purpose", "endpoints: []\n", []string{}, ""},
		{"an empty file", "", nil, "f: no list of endpoints"},
		{"a list that is missing", "endpoints:\n", nil, "f: no list of endpoints"},
		{"another key", "pods: []\n", nil, `f: unknown field "pods"; known: endpoints`},
		{"a broken entry in YAML is named by line", "endpoints:\n- 10.0.0.1:1\n# a comment\n- gpu:1\n", nil, `f:4: endpoint's address "gpu"`},
		{"a broken entry in JSON is named by index", `["10.0.0.1:1", "gpu:1"]`, nil, `f: index 1: endpoint's address "gpu"`},
		{"an address twice", "- 10.0.0.1:1\n- 10.0.0.1:1\n", nil, "f:2: endpoint 10.0.0.1:1 is also at index 0"},
		{"neither YAML nor JSON", "endpoints: [", nil, "f: yaml: line 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("f", []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			specs, err := ReadFile("f")
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil || !slices.Equal(addresses(specs), tt.want) || specs == nil {
				t.Errorf("got %v %v, want %v", addresses(specs), err, tt.want)
			}
		})
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "missing")); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}

func addresses(specs []podstate.Spec) (list []string) {
	for _, s := range specs {
		list = append(list, s.Addr.String())
	}
	return list
}

// running is a Discoverer under test.
type running struct {
	t    *testing.T
	out  chan []podstate.Spec
	logs *lockedBuffer
}

func run(t *testing.T, d Discoverer, logs *lockedBuffer) *running {
	r := &running{t: t, out: make(chan []podstate.Spec), logs: logs}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, r.out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// patience is a bound for failing only.
const patience = time.Minute

// wants waits for the next list.
func (r *running) wants(addrs ...string) {
	r.t.Helper()
	select {
	case specs := <-r.out:
		if got := addresses(specs); !slices.Equal(got, addrs) {
			r.t.Fatalf("got %v, want %v", got, addrs)
		}
	case <-time.After(patience):
		r.t.Fatalf("no list; want %v; log:\n%s", addrs, r.logs)
	}
}

// logged waits until a line with the text has been logged n times.
func (r *running) logged(text string, n int) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); strings.Count(r.logs.String(), text) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%q is not logged %d times:\n%s", text, n, r.logs)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newLog() (*slog.Logger, *lockedBuffer) {
	b := &lockedBuffer{}
	return slog.New(slog.NewTextHandler(b, nil)), b
}

func write(t *testing.T, path string, addrs ...string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("endpoints: ["+strings.Join(addrs, ", ")+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace is write so that nobody sees the file half written.
func replace(t *testing.T, path string, addrs ...string) {
	t.Helper()
	write(t, path+".new", addrs...)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestFileIsReadAgainWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pods.yaml")
	write(t, path, "10.0.0.1:1")
	log, logs := newLog()
	r := run(t, NewFile(path, log), logs)
	r.wants("10.0.0.1:1")

	write(t, path, "10.0.0.2:1") // in place
	r.wants("10.0.0.2:1")

	replace(t, path, "10.0.0.3:1")
	r.wants("10.0.0.3:1")

	// Broken and missing files keep the list; the next good one counts.
	before := strings.Count(logs.String(), "level=ERROR")
	replace(t, path, "10.0.0.4:1", "gpu:1")
	r.logged(`pods.yaml:1: endpoint's address \"gpu\"`, 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r.logged("no such file", 1)
	replace(t, path, "10.0.0.5:1")
	r.wants("10.0.0.5:1")
	if n := strings.Count(logs.String(), "level=ERROR") - before; n != 2 {
		t.Errorf("%d errors logged, want one for each state:\n%s", n, logs)
	}
}

// Kubernetes mounts a config map as a symlink into ..data, which is itself a
// symlink that is replaced.
func TestFileFollowsAMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(i int, addr string) {
		folder := filepath.Join(dir, fmt.Sprintf("..v%d", i))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, "pods.yaml"), addr)
		tmp := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(filepath.Base(folder), tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version(1, "10.0.0.1:1")
	path := filepath.Join(dir, "pods.yaml")
	if err := os.Symlink(filepath.Join("..data", "pods.yaml"), path); err != nil {
		t.Fatal(err)
	}
	log, logs := newLog()
	r := run(t, NewFile(path, log), logs)
	r.wants("10.0.0.1:1")
	version(2, "10.0.0.2:1")
	r.wants("10.0.0.2:1")
}

func TestStaticSendsItsListOnce(t *testing.T) {
	specs, err := ParseEndpoints([]any{"10.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	_, logs := newLog()
	run(t, Static(specs), logs).wants("10.0.0.1:1")
}
