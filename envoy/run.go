package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// Bounds for a machine that has too much to do. An idle one needs 0.3 s to
	// start, though EDS may wait 5 s, and milliseconds for the rest.
	startTimeout = time.Minute      // to become ready
	adminTimeout = 20 * time.Second // to answer on the admin interface
	stopTimeout  = 20 * time.Second // between asking Envoy to end and killing it
)

// Options say how to run an Envoy.
type Options struct {
	Bootstrap []byte // the configuration file; port 0 means a free port
	Binary    string // empty: as Find finds it
	LogPath   string // file that receives what Envoy prints; empty: a temporary one that Stop removes
	Workers   int    // threads that serve requests; 0: one per core
}

// Process is a running Envoy. Its methods may be called from any goroutine.
type Process struct {
	Listen string // host:port of its first listener, loopback if it listens on every interface
	Admin  string // host:port of its admin interface

	cmd     *exec.Cmd
	logPath string
	dir     string      // removed by Stop
	release func() bool // ends the watch on Start's ctx
	stop    sync.Once
	done    chan struct{}
	err     error // why it ended; read after done
}

// PID is its process number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Find returns the path of an Envoy: $ENVOY, else `envoy` on the PATH, else the
// one that `make envoy` puts under the root of this module.
func Find() (string, error) {
	if path := os.Getenv("ENVOY"); path != "" {
		return exec.LookPath(path)
	}
	if path, err := exec.LookPath("envoy"); err == nil {
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if path, err := exec.LookPath(filepath.Join(dir, ".tools", "envoy")); err == nil {
				return path, nil
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no envoy found: set $ENVOY, put envoy on the PATH, or run `make envoy`")
		}
		dir = parent
	}
}

// Start runs an Envoy and waits until it serves. The Envoy ends with Stop, with
// this process, or when ctx is done.
func Start(ctx context.Context, o Options) (*Process, error) {
	binary := o.Binary
	if binary == "" {
		var err error
		if binary, err = Find(); err != nil {
			return nil, err
		}
	}
	p := &Process{logPath: o.LogPath, done: make(chan struct{})}
	if err := p.start(binary, o); err != nil {
		os.RemoveAll(p.dir)
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	if err := p.waitReady(ctx); err != nil {
		err = fmt.Errorf("%s did not become ready: %w\n%s", binary, err, p.logTail())
		p.Stop()
		return nil, err
	}
	p.release = context.AfterFunc(ctx, p.Stop)
	return p, nil
}

// start launches the process and leaves a goroutine that waits for its end.
func (p *Process) start(binary string, o Options) (err error) {
	if p.dir, err = os.MkdirTemp("", "warmpath-envoy-"); err != nil {
		return err
	}
	config := filepath.Join(p.dir, "bootstrap.yaml")
	if err := os.WriteFile(config, o.Bootstrap, 0o600); err != nil {
		return err
	}
	if p.logPath == "" {
		p.logPath = filepath.Join(p.dir, "envoy.log")
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own

	args := []string{
		"-c", config,
		"--admin-address-path", p.adminFile(),
		"--disable-hot-restart", // several Envoys on one machine would share memory
	}
	if o.Workers > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Workers))
	}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = ChildAttr()

	started := make(chan error)
	go func() {
		// On Linux the child is killed when the thread that made it ends, so that
		// thread has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	return <-started
}

func (p *Process) adminFile() string { return filepath.Join(p.dir, "admin") }

// waitReady fills in the addresses when Envoy answers that it is live.
func (p *Process) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	state := "admin interface not up"
	for {
		if admin, err := os.ReadFile(p.adminFile()); err == nil && len(admin) > 0 {
			p.Admin = strings.TrimSpace(string(admin))
			if state, err = p.Get(ctx, "/ready"); err != nil {
				state = err.Error()
			} else if strings.TrimSpace(state) == "LIVE" {
				return p.findListener(ctx)
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %v", p.err)
		case <-ctx.Done():
			return fmt.Errorf("%w; last state: %s", ctx.Err(), strings.TrimSpace(state))
		case <-tick.C:
		}
	}
}

// findListener asks for the port that Envoy listens on, which the bootstrap may
// have left open.
func (p *Process) findListener(ctx context.Context) error {
	text, err := p.Get(ctx, "/listeners")
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(text, "\n") // name::address
	_, addr, ok := strings.Cut(line, "::")
	if !ok {
		return fmt.Errorf("no listener: /listeners says %q", text)
	}
	addr = strings.Replace(addr, "0.0.0.0:", "127.0.0.1:", 1)
	p.Listen = strings.Replace(addr, "[::]:", "[::1]:", 1)
	return nil
}

// Get returns what the admin interface answers at path.
func (p *Process) Get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Admin+path, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK && path != "/ready" { // /ready says why not
		return "", fmt.Errorf("%s: %s", path, resp.Status)
	}
	return string(body), nil
}

// Done is closed when Envoy has ended, for whatever reason.
func (p *Process) Done() <-chan struct{} { return p.done }

// LogPath is the file with what Envoy prints: its log, and the access log.
func (p *Process) LogPath() string { return p.logPath }

// Stop ends Envoy and returns when it is gone. Open requests are cut.
func (p *Process) Stop() {
	p.stop.Do(func() {
		if p.release != nil {
			p.release()
		}
		defer os.RemoveAll(p.dir)
		select {
		case <-p.done: // its number may be another process's by now
			return
		default:
			p.signal(syscall.SIGTERM)
		}
		timer := time.NewTimer(stopTimeout)
		defer timer.Stop()
		select {
		case <-p.done:
		case <-timer.C:
			p.signal(syscall.SIGKILL)
			<-p.done
		}
	})
}

// logTail returns the end of the log, where Envoy says why it did not start.
func (p *Process) logTail() string {
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return string(text)
}
