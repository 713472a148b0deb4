package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process decides and logs; two others explain and replay.
func TestDecisionsAreLoggedExplainedAndReplayed(t *testing.T) {
	busy, idle := fakePod(t, 50), fakePod(t, 0)
	addrs := freePorts(t, 3)
	dir := t.TempDir()
	file := filepath.Join(dir, "decisions.jsonl")
	config := writeConfig(t, addrs, fmt.Sprintf("  decisionLog: {file: %q}\npools:\n- {name: p, models: [m], profile: hyperpod, scrape: {interval: 50ms}, discovery: {static: [%q, %q]}}\n", file, busy, idle))
	cmd, _, stderr := command(t, "serve", "--config", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, cmd: cmd, stderr: stderr, grpc: addrs[0], health: addrs[1], admin: addrs[2]}
	t.Cleanup(func() {
		if g.cmd.ProcessState == nil {
			g.cmd.Process.Kill()
			g.cmd.Wait()
		}
	})
	g.eventually("ready", func() bool { code, _ := g.get("/readyz"); return code == 200 })
	g.eventually("scraped", func() bool {
		for _, p := range g.pods() {
			if len(p.Reported) == 0 {
				return false
			}
		}
		return true
	})
	conn := g.dial(g.grpc)
	const n = 20
	for i := range n {
		_, pod := g.ask(conn, fmt.Sprintf(`{"model": "m", "stream": true, "messages": [{"role": "user", "content": "a secret question %d"}]}`, i%3))
		if pod != busy && pod != idle {
			t.Fatalf("picked %q", pod)
		}
	}

	warmpath := func(args ...string) (string, int) {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), args, &stdout, &stderr)
		return stdout.String() + stderr.String(), code
	}
	text, code := warmpath("explain", "last", "--admin", g.admin)
	if code != 0 || !regexp.MustCompile(`(?s)^decision [0-9a-f]{16} of .*, pool p, profile hyperpod\n.*prefix×3.*first.*second`).MatchString(text) {
		t.Errorf("explain: exit code %d: %s", code, text)
	}
	if text, code := warmpath("explain", "ffff", "--admin", g.admin); code != 1 || !strings.Contains(text, `404 Not Found: no decision "ffff" is kept`) {
		t.Errorf("explain of an unknown decision: exit code %d: %s", code, text)
	}

	cmd.Process.Signal(syscall.SIGTERM)
	if code := within(t, cmd, 30*time.Second); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	rows := filepath.Join(dir, "rows.csv")
	text, code = warmpath("replay", file, "--profile", "hyperpod,epp", "--profile", "queue=1,lru=1", "--csv", rows, "--simulate")
	if code != 0 || !strings.Contains(text, "simulated: the 20 requests to p on 2 pods") || !regexp.MustCompile(fmt.Sprintf(`^decisions   %d, of p, among 2 pods, .*\nreproduced  %d\n(?s:.*)hyperpod +0 +0\.0%%(?s:.*)queue=1,lru=1 `, n, n)).MatchString(text) {
		t.Errorf("replay: exit code %d: %s", code, text)
	}
	f, err := os.Open(rows)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if table, err := csv.NewReader(f).ReadAll(); err != nil || len(table) != 1+4*n {
		t.Errorf("%v, %d rows, want a head and four for each decision", err, len(table))
	}
	lines, err := os.ReadFile(file)
	if err != nil || bytes.Contains(lines, []byte("secret")) {
		t.Errorf("%v; or a prompt is in the log", err)
	}
	if text, code := warmpath("explain", "last", "--file", file); code != 0 || !strings.Contains(text, "pool p") {
		t.Errorf("explain from the log: exit code %d: %s", code, text)
	}

	// What was not chosen by these values is told.
	forged := bytes.Replace(lines, []byte(`"first":0,"second":1`), []byte(`"first":1,"second":0`), 1)
	if bytes.Equal(forged, lines) {
		forged = bytes.Replace(lines, []byte(`"first":1,"second":0`), []byte(`"first":0,"second":1`), 1)
	}
	if err := os.WriteFile(file, forged, 0o600); err != nil {
		t.Fatal(err)
	}
	text, code = warmpath("replay", file)
	if code != 1 || !strings.Contains(text, fmt.Sprintf("warmpath replay: 1 of %d choices came out otherwise than logged", n)) {
		t.Errorf("replay of a forged log: exit code %d: %s", code, text)
	}
}
