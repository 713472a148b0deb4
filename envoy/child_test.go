package envoy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/envoy"
	"github.com/warmpath/warmpath/extproc"
)

// childEnv makes this test binary a process that can be killed: "gateway
// host:port pod pod …" or "envoy".
const childEnv = "WARMPATH_TEST_CHILD"

// observeEnv is how such a gateway observes, as JSON.
const observeEnv = "WARMPATH_TEST_OBSERVE"

func TestMain(m *testing.M) {
	words := strings.Fields(os.Getenv(childEnv))
	if len(words) == 0 {
		os.Exit(m.Run())
	}
	serve := serveGateway
	if words[0] == "envoy" {
		serve = serveEnvoy
	}
	if err := serve(words[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveEnvoy runs an Envoy until standard input ends.
func serveEnvoy([]string) error {
	p, err := envoy.Start(context.Background(), envoy.Options{Bootstrap: []byte(idleBootstrap)})
	if err != nil {
		return err
	}
	defer p.Stop()
	fmt.Println(p.Admin)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// serveGateway runs a gateway with the pool a until standard input ends, as it
// does when the parent is gone.
func serveGateway(words []string) error {
	lis, err := listen(words[0])
	if err != nil {
		return err
	}
	var observe extproc.Observe
	if text := os.Getenv(observeEnv); text != "" {
		if err := json.Unmarshal([]byte(text), &observe); err != nil {
			return err
		}
	}
	g, err := newGateway(lis, []string{"a"}, observe)
	if err != nil {
		return err
	}
	var pods []netip.AddrPort
	for _, w := range words[1:] {
		pods = append(pods, netip.MustParseAddrPort(w))
	}
	for g.setPods(context.Background(), "a", pods...) != nil { // an Envoy is late
	}
	fmt.Println(g.addr)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child is a process of this test binary.
type child struct {
	cmd  *exec.Cmd
	addr string // what it said first
}

func startChildGateway(t testing.TB, addr string, pods ...*pod) *child {
	t.Helper()
	what := "gateway " + addr
	for _, p := range pods {
		what += " " + p.addr.String()
	}
	return startChild(t, what)
}

func startChild(t testing.TB, what string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+what)
	c.cmd.Stderr = os.Stderr
	if _, err := c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s did not start: %v", what, err)
	}
	c.addr = strings.TrimSpace(line)
	return c
}

// kill is kill -9.
func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}
