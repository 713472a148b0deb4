package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warmpath/warmpath/envoy"
)

// asCommand makes the test binary behave as warmpath, so that the process under
// test has the race detector in it.
const asCommand = "WARMPATH_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// command returns a process of warmpath that has not been started. What it
// prints goes to the two buffers.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = envoy.ChildAttr()
	cmd.WaitDelay = patience
	return cmd, stdout, stderr
}

// patience bounds what should happen soon, on a machine with too much to do.
const patience = time.Minute

// ended waits for the end of a process. It kills one that runs too long, whose exit
// code is then not 0.
func ended(t *testing.T, cmd *exec.Cmd) (exitCode int) {
	t.Helper()
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// freePorts returns addresses on which nobody listens. On Linux, where there are
// many, the host is one of this process alone, so that nobody else can take a port
// before it is used.
func freePorts(t *testing.T, n int) (addrs []string) {
	t.Helper()
	host := "127.0.0.1"
	if pid := os.Getpid(); runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+pid>>16%250, pid>>8%256, pid%256)
	}
	for range n {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // after all are chosen, so that they differ
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// writeConfig writes a configuration with these listeners, and the rest of it.
func writeConfig(t *testing.T, addrs []string, rest string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "warmpath.yaml")
	text := fmt.Sprintf("server:\n  grpc: {address: %q}\n  health: {address: %q}\n  admin: {address: %q}\n%s", addrs[0], addrs[1], addrs[2], rest)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandLine(t *testing.T) {
	const full = "proto/config/testdata/full.yaml"
	for _, tt := range []struct {
		name   string
		args   string
		exit   int
		stdout string // a pattern
		stderr string
	}{
		{"nothing is the help", "", 0, `^warmpath sends .*\n(?s:.*)serve`, `^$`},
		{"help", "--help", 0, `^warmpath sends`, `^$`},
		{"help of a command", "serve --help", 0, `^Usage: warmpath serve\n(?s:.*)--config FILE`, `^$`},
		{"version", "version", 0, `^warmpath \S+ .*go1\.\d+.*\n$`, `^$`},
		{"the documented config passes", "check --config " + full, 0, `^proto/config/testdata/full.yaml: ok: pools llama-8b, qwen, from-file\n$`, `^$`},
		{"and gives a bootstrap", "bootstrap --config " + full, 0, `(?s:.*)static_resources:`, `^$`},
		{"for an older Envoy too", "bootstrap --config examples/raw-envoy/warmpath.yaml --envoy-version 1.36", 0, `(?s:.*)static_resources:`, `^$`},
		{"an unknown Envoy", "bootstrap --config " + full + " --envoy-version 1.20", 2, `^$`, `^warmpath bootstrap: .*1\.20.*\n$`},
		{"an unknown flag of the simulator", "sim --nope", 2, `^$`, `^warmpath sim: wrong arguments: flag provided but not defined: -nope; see warmpath sim --help\n$`},
		{"an unknown scenario", "sim --scenario Z", 2, `^$`, `^warmpath sim: .*"Z"; known: A, .*\n$`},
		{"an unknown profile of the simulator", "sim --policy latancy", 2, `^$`, `^warmpath sim: .*"latancy"; known are .*\n$`},
		{"a profile among weights", "replay --profile throughput,queue=2 nowhere.jsonl", 2, `^$`, `^warmpath replay: .* profiles and weights go into separate flags; .*\n$`},
		{"an unknown command", "server", 2, `^$`, `^warmpath: unknown command "server"; commands: bootstrap, check, .*\n$`},
		{"an unknown flag", "serve --confg x", 2, `^$`, `^warmpath serve: unknown flag: --confg; see warmpath serve --help\n$`},
		{"a flag without its value", "serve --config", 2, `^$`, `^warmpath serve: flag needs an argument: --config; .*\n$`},
		{"nothing to inspect", "inspect", 2, `^$`, `^warmpath inspect: arguments \[\]; want 1: URL; .*\n$`},
		{"a pod that is not there", "inspect 127.0.0.1:1", 1, `^$`, `^warmpath inspect: .*refused.*\n$`},
		{"a pod of another protocol", "inspect ftp://x", 2, `^$`, `^warmpath inspect: "ftp://x" is not the URL of a server; .*\n$`},
		{"a pod without a host", "inspect http://", 2, `^$`, `^warmpath inspect: "http://" is not the URL .*\n$`},
		{"a pod of an unknown engine", "inspect --engine vlm 127.0.0.1:1", 2, `^$`, `^warmpath inspect: unknown engine "vlm".*\n$`},
		{"nothing to explain", "explain", 2, `^$`, `^warmpath explain: arguments \[\]; want 1: ID; .*\n$`},
		{"nobody to explain", "explain last --admin 127.0.0.1:1", 1, `^$`, `^warmpath explain: .*refused\n$`},
		{"a decision by another protocol", "explain last --admin ftp://x", 2, `^$`, `^warmpath explain: "ftp://x" is not the URL of a server; .*\n$`},
		{"no log to replay", "replay nowhere.jsonl", 1, `^$`, `^warmpath replay: open nowhere.jsonl: .*\n$`},
		{"an unknown profile to compare", "replay --profile latancy nowhere.jsonl", 2, `^$`, `^warmpath replay: .*"latancy"; known are .* latency, .*\n$`},
		{"an argument too many", "version now", 2, `^$`, `^warmpath version: arguments \["now"\]; takes flags only; .*\n$`},
		{"no config", "serve", 2, `^$`, `^warmpath serve: --config is missing.*\n$`},
		{"no such config", "serve --config nowhere.yaml", 2, `^$`, `^nowhere.yaml: the configuration cannot be read: no such file or directory\n$`},
		{"all mistakes at once", "check --config proto/config/testdata/model-twice.bad.yaml", 2, `^$`,
			`^(proto/config/testdata/model-twice.bad.yaml:\d+: pools\[\d\]\.(models|adapters)\[\d\]: .*\n){6}$`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			exit := run(t.Context(), strings.Fields(tt.args), &stdout, &stderr)
			if exit != tt.exit {
				t.Errorf("exit code %d, want %d", exit, tt.exit)
			}
			if !regexp.MustCompile(tt.stdout).Match(stdout.Bytes()) {
				t.Errorf("stdout %q does not match %s", stdout.String(), tt.stdout)
			}
			if !regexp.MustCompile(tt.stderr).Match(stderr.Bytes()) {
				t.Errorf("stderr %q does not match %s", stderr.String(), tt.stderr)
			}
		})
	}
}

func TestCheckLooksIntoEnvoysConfigurationToo(t *testing.T) {
	const full = "proto/config/testdata/full.yaml"
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	var bootstrap, stdout, stderr bytes.Buffer
	if exit := run(t.Context(), []string{"bootstrap", "--config", full}, &bootstrap, &stderr); exit != 0 {
		t.Fatal(stderr.String())
	}
	// Without a message_timeout Envoy waits for 200 ms only.
	broken := bytes.ReplaceAll(bootstrap.Bytes(), []byte("message_timeout"), []byte("max_message_timeout"))
	for name, text := range map[string][]byte{good: bootstrap.Bytes(), bad: broken} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if exit := run(t.Context(), []string{"check", "--config", full, "--envoy", good}, &stdout, &stderr); exit != 0 {
		t.Errorf("our own bootstrap: exit code %d: %s", exit, &stderr)
	}
	stderr.Reset()
	exit := run(t.Context(), []string{"check", "--config", "proto/config/testdata/no-pools.bad.yaml", "--envoy", bad}, &stdout, &stderr)
	lines := strings.Split(stderr.String(), "\n")
	if exit != 2 || !strings.HasPrefix(lines[0], "proto/config/testdata/no-pools.bad.yaml:2: ") || !strings.HasPrefix(lines[1], bad+":") {
		t.Errorf("exit code %d, want 2, and a line about each file: %s", exit, &stderr)
	}
}

// What the schema cannot know is found by building, in all pools at once.
func TestCheckNamesWhatCannotBeBuilt(t *testing.T) {
	path := writeConfig(t, freePorts(t, 3), `pools:
- {name: a, models: [m], discovery: {kubernetes: {inferencePool: ns/pool}}}
- name: b
  models: [n]
  discovery: {static: ["127.0.0.1:1"]}
  scrape: {series: {queue: q}}
`)
	for _, name := range []string{"check", "serve"} {
		var stdout, stderr bytes.Buffer
		exit := run(t.Context(), []string{name, "--config", path}, &stdout, &stderr)
		want := regexp.MustCompile(fmt.Sprintf(`^%[1]s:6: pools\[0\]\.discovery: .*\n%[1]s:10: pools\[1\]\.scrape: .*"queue".*\n$`, regexp.QuoteMeta(path)))
		if exit != 2 || !want.Match(stderr.Bytes()) {
			t.Errorf("%s: exit code %d:\n%s", name, exit, &stderr)
		}
	}
}

// hangupsMatter undoes it if the tests themselves run under nohup, for this process
// and those that it starts.
func hangupsMatter(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(c) })
}

func TestNohupIsObeyed(t *testing.T) {
	hangupsMatter(t)
	defer signal.Reset(syscall.SIGHUP)
	if !slices.Contains(ends(), os.Signal(syscall.SIGHUP)) {
		t.Error("a hangup does not end warmpath in peace")
	}
	signal.Ignore(syscall.SIGHUP) // as nohup does
	if slices.Contains(ends(), os.Signal(syscall.SIGHUP)) {
		t.Error("a hangup ends warmpath under nohup")
	}
}

func TestHelpNamesAllCommands(t *testing.T) {
	for name := range commands() {
		if !strings.Contains(usage, "\n  "+name+" ") {
			t.Errorf("the help does not mention %q", name)
		}
	}
}

// The examples are what users copy.
func TestExamples(t *testing.T) {
	configs, err := filepath.Glob("examples/*/warmpath.yaml")
	if err != nil || len(configs) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, c := range configs {
		for _, name := range []string{"check", "bootstrap"} {
			var stdout, stderr bytes.Buffer
			if exit := run(t.Context(), []string{name, "--config", c}, &stdout, &stderr); exit != 0 {
				t.Errorf("%s of %s: exit code %d: %s", name, c, exit, stderr.String())
			}
		}
	}
}

func TestServeRefusesABadConfig(t *testing.T) {
	cmd, stdout, stderr := command(t, "serve", "--config", "proto/config/testdata/both-kinds.bad.yaml")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if exit := ended(t, cmd); exit != 2 {
		t.Errorf("exit code %d, want 2", exit)
	}
	want, err := os.ReadFile("proto/config/testdata/both-kinds.bad.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if n := bytes.Count(want, []byte("# want: ")); len(lines) != n {
		t.Errorf("%d lines, want %d:\n%s", len(lines), n, stderr)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "proto/config/testdata/both-kinds.bad.yaml:") {
			t.Errorf("line %q names no place", line)
		}
	}
	if stdout.Len() > 0 {
		t.Errorf("stdout %q", stdout)
	}
}

func TestServeWithAPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addrs := freePorts(t, 3)
	addrs[1] = taken.Addr().String()
	cmd, _, stderr := command(t, "serve", "--config", writeConfig(t, addrs, `pools: [{name: a, models: [m], discovery: {static: ["127.0.0.1:1"]}}]`))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if exit := ended(t, cmd); exit != 1 {
		t.Errorf("exit code %d, want 1", exit)
	}
	want := fmt.Sprintf("warmpath serve: server.health.address: %s is in use; stop what listens there, or choose another port\n", addrs[1])
	if stderr.String() != want {
		t.Errorf("got  %q\nwant %q", stderr, want)
	}
}

// A part that fails ends the others, and with them run.
func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	path := writeConfig(t, freePorts(t, 3), `pools: [{name: a, models: [m], discovery: {static: ["127.0.0.1:1"]}}]`)
	if exit := run(ctx, []string{"serve", "--config", path}, &stdout, &stderr); exit != 0 {
		t.Errorf("exit code %d: %s", exit, &stderr)
	}
}
