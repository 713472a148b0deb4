package engines_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/warmpath/warmpath/examples/engines"
	"github.com/warmpath/warmpath/examples/rig"
)

// warmpath is the binary, which TestMain builds.
var warmpath string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "warmpath-engines-")
	if err != nil {
		log.Fatal(err)
	}
	warmpath = filepath.Join(dir, "warmpath")
	if text, err := exec.Command("go", "build", "-o", warmpath, "github.com/warmpath/warmpath").CombinedOutput(); err != nil {
		log.Fatalf("build warmpath: %v\n%s", err, text)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// fleet is llama.cpp's servers behind warmpath and a real Envoy.
type fleet struct {
	*rig.Rig
	servers []*engines.Server
}

// newFleet starts so many servers. Each answers with its own name as model,
// server-0 and so on, which warmpath calls it by, too.
func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{}
	var addrs []string
	for i := range n {
		s := start(t, i, 0)
		f.servers = append(f.servers, s)
		addrs = append(addrs, s.Addr)
	}
	f.Rig = startRig(t, rig.Options{Servers: addrs, Warmpath: warmpath})
	eventually(t, "warmpath has read all servers", func() bool {
		for _, p := range pods(t, f.Admin) {
			if len(p.Reported) == 0 {
				return false
			}
		}
		return true
	})
	return f
}

// start runs server i at a port, or a free one.
func start(t *testing.T, i, port int) *engines.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	s, err := engines.StartLlamaCpp(ctx, engines.Options{
		Script: "llamacpp.py", Port: port, Args: []string{"--alias", fmt.Sprintf("server-%d", i)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("server %d has printed:\n%s", i, s.Log())
		}
		s.Close()
	})
	return s
}

func startRig(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	r, err := rig.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}
