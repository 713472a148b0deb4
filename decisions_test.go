package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/warmpath/warmpath/extproc/openai"
	"github.com/warmpath/warmpath/podstate/prefix"
)

// call runs a command in this process.
func call(t *testing.T, args ...string) (text string, code int) {
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, &stdout, &stderr)
	return stdout.String() + stderr.String(), code
}

// scraped reports whether all pods have said something.
func (g *gateway) scraped() bool {
	return !slices.ContainsFunc(g.pods(), func(p podView) bool { return len(p.Reported) == 0 })
}

// A process decides and logs; two others explain and replay.
func TestDecisionsAreLoggedExplainedAndReplayed(t *testing.T) {
	busy, idle := fakePod(t, 50), fakePod(t, 0)
	dir := t.TempDir()
	file := filepath.Join(dir, "decisions.jsonl")
	g := startGateway(t, fmt.Sprintf("  decisionLog: {file: %q}\npools:\n- {name: p, models: [m], profile: hyperpod, scrape: {interval: 20s}, discovery: {static: [%q, %q]}}\n", file, busy, idle))
	g.eventually("scraped", g.scraped)
	conn := g.dial(g.grpc)
	const n = 20
	for i := range n {
		_, pod := g.ask(conn, fmt.Sprintf(`{"model": "m", "stream": true, "messages": [{"role": "user", "content": "a secret question %d"}]}`, i%3))
		if pod != busy && pod != idle {
			t.Fatalf("picked %q", pod)
		}
	}

	warmpath := func(args ...string) (string, int) { return call(t, args...) }
	text, code := warmpath("explain", "last", "--admin", g.admin)
	if code != 0 || !regexp.MustCompile(`(?s)^decision [0-9a-f]{16} of .*, pool p, profile hyperpod\n.*prefix×3.*first.*second`).MatchString(text) {
		t.Errorf("explain: exit code %d: %s", code, text)
	}
	if text, code := warmpath("explain", "ffff", "--admin", g.admin); code != 1 || !strings.Contains(text, `404 Not Found: no decision "ffff" is kept`) {
		t.Errorf("explain of an unknown decision: exit code %d: %s", code, text)
	}

	g.cmd.Process.Signal(syscall.SIGTERM)
	if code := ended(t, g.cmd); code != 0 {
		t.Fatalf("exit code %d: %s", code, g.stderr)
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

func TestLogsThatTellNothing(t *testing.T) {
	dir := t.TempDir()
	empty, torn := filepath.Join(dir, "empty"), filepath.Join(dir, "torn")
	for file, text := range map[string]string{empty: "", torn: `{"id":"1`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		rule string
		args []string
		code int
		want string
	}{
		{"an empty log is no success", []string{"replay", empty}, 1, "the log holds no decisions"},
		{"what is not found may be what cannot be read", []string{"explain", "--file", torn, "1"}, 1, "line 1: want a line of a log of decisions, whole"},
		{"rows do not take the log's place", []string{"replay", "--csv", filepath.Join(dir, ".", "torn"), torn}, 2, "is the log, which would be lost"},
		{"a folder is no log", []string{"explain", "--file", dir, "last"}, 1, "is a directory"},
		{"no ID is no list", []string{"explain", "--admin", "127.0.0.1:1", ""}, 2, "the ID is empty"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if text, code := call(t, tt.args...); code != tt.code || !strings.Contains(text, tt.want) {
				t.Errorf("exit code %d, want %d and %q: %s", code, tt.code, tt.want, text)
			}
		})
	}
}

// Nobody may be served, and told that, before the end.
func TestServeWithALogThatCannotBeOpened(t *testing.T) {
	cmd, _, stderr := command(t, "serve", "--config", writeConfig(t, freePorts(t, 3), fmt.Sprintf(
		"  decisionLog: {file: %s}\npools: [{name: a, models: [m], discovery: {static: [\"127.0.0.1:1\"]}}]", strings.Repeat("x", 300))))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if exit := ended(t, cmd); exit != 1 || !strings.HasPrefix(stderr.String(), "warmpath serve: server.decisionLog: open ") {
		t.Errorf("exit code %d, want 1 and nothing but why: %s", exit, stderr)
	}
}

func TestExplainGivesTheToken(t *testing.T) {
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer right" {
			http.Error(w, "no decision is kept", http.StatusNotFound)
		} else {
			http.Error(w, "wrong token", http.StatusUnauthorized)
		}
	}))
	defer guarded.Close()
	if text, code := call(t, "explain", "last", "--admin", guarded.URL); code != 1 || !strings.Contains(text, "wrong token; --token gives it\n") {
		t.Errorf("without it: exit code %d: %s", code, text)
	}
	if text, code := call(t, "explain", "last", "--admin", guarded.URL, "--token", "right"); code != 1 || !strings.HasSuffix(text, "no decision is kept\n") {
		t.Errorf("with it: exit code %d: %s", code, text)
	}
}

// Replicas choose the same of equal pods, though each hides in its log what it
// chose by.
func TestReplicasWithLogsBreakTiesAlike(t *testing.T) {
	pods := []string{fakePod(t, 0), fakePod(t, 0), fakePod(t, 0), fakePod(t, 0)}
	const n = 32
	var chosen [3][]string
	for replica := range chosen {
		server, file := "", ""
		if replica > 0 { // the first logs nothing
			file = filepath.Join(t.TempDir(), "decisions.jsonl")
			server = fmt.Sprintf("  decisionLog: {file: %q}\n", file)
		}
		g := startGateway(t, fmt.Sprintf("%spools:\n- {name: p, models: [m], scrape: {interval: 20s}, discovery: {static: [%q, %q, %q, %q]}}\n",
			server, pods[0], pods[1], pods[2], pods[3]))
		g.eventually("scraped", g.scraped)
		conn := g.dial(g.grpc)
		var hashes []uint64
		for i := range n {
			body := fmt.Sprintf(`{"model": "m", "messages": [{"role": "user", "content": "%d%s"}]}`, i, strings.Repeat(" a question", 100))
			stream, pod := g.ask(conn, body)
			chosen[replica] = append(chosen[replica], pod)
			stream.CloseSend()
			g.eventually("released", func() bool { return g.inFlight() == 0 })
			var r openai.Request
			if err := r.Scan(openai.Chat, []byte(body)); err != nil {
				t.Fatal(err)
			}
			for _, b := range prefix.Chain(nil, prefix.Seed("m", "", ""), []byte(body), r.Prompt) {
				hashes = append(hashes, b.Hash)
			}
		}
		if replica == 0 {
			continue
		}
		var log []byte
		g.eventually("logged", func() bool {
			log, _ = os.ReadFile(file)
			return bytes.Count(log, []byte("\n")) == n
		})
		if text, code := call(t, "replay", file, "--profile", "chwbl"); code != 0 || !strings.Contains(text, fmt.Sprintf("reproduced  %d\n", n)) {
			t.Errorf("replay: exit code %d: %s", code, text)
		}
		if len(hashes) < n {
			t.Fatalf("%d hashes", len(hashes))
		}
		for _, h := range hashes {
			if bytes.Contains(log, fmt.Appendf(nil, "%x", h)) || bytes.Contains(log, fmt.Append(nil, h)) {
				t.Errorf("the hash %x is in the log", h)
			}
		}
	}
	if used := slices.Compact(slices.Sorted(slices.Values(chosen[0]))); len(used) < 3 || !slices.Equal(chosen[0], chosen[1]) || !slices.Equal(chosen[0], chosen[2]) {
		t.Errorf("replicas chose otherwise, or without ties:\n%v\n%v\n%v", chosen[0], chosen[1], chosen[2])
	}
}
