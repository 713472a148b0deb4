// Package engines runs real model servers, each a process of its own. Their
// models are small and random, so that a test needs neither a GPU nor a download.
package engines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Server is a running model server. Its methods may be called from any goroutine.
type Server struct {
	Addr string // host:port

	cmd   *exec.Cmd
	alive io.Closer // standard input of cmd: its end tells that this process is gone
	log   *os.File
	done  chan struct{} // closed when it has ended
}

// Python returns the interpreter that has llama.cpp's server, as `make engines`
// installs it under the root of this module.
func Python() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if path, err := exec.LookPath(filepath.Join(dir, ".tools", "engines", "bin", "python")); err == nil {
				return path, nil
			}
			return "", errors.New("no llama.cpp found: run `make engines`, which needs python3 and installs it into .tools")
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory, so it is not known where .tools is")
		}
		dir = parent
	}
}

// Options say how to run llama.cpp's server.
type Options struct {
	Script string   // path of llamacpp.py
	Port   int      // 0: a free one
	Args   []string // more of the script's arguments
}

// StartLlamaCpp runs llama.cpp's server and waits until it serves.
func StartLlamaCpp(ctx context.Context, o Options) (*Server, error) {
	python, err := Python()
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr(o.Port)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	return Start(ctx, exec.Command(python, append([]string{o.Script, "--port", port, "--until-eof"}, o.Args...)...), addr)
}

// freeAddr returns a loopback address that nobody uses now.
func freeAddr(port int) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Start runs a command and waits until GET /health at addr answers 200.
func Start(ctx context.Context, cmd *exec.Cmd, addr string) (*Server, error) {
	log, err := os.CreateTemp("", "warmpath-engine-*.log")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: addr, cmd: cmd, log: log, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	if s.alive, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.removeLog()
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		cmd.Wait() // how it ended is in the log
		close(s.done)
	}()
	if err := s.waitReady(ctx); err != nil {
		text := s.Log()
		s.Close()
		return nil, fmt.Errorf("%s did not become ready: %w\n%s", cmd.Path, err, text)
	}
	return s, nil
}

func (s *Server) waitReady(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.healthy(ctx) {
			return nil
		}
		select {
		case <-s.done:
			return errors.New("it ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *Server) healthy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+"/health", nil)
	if err != nil {
		return false
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Port is that of Addr.
func (s *Server) Port() int {
	_, port, _ := net.SplitHostPort(s.Addr)
	n, _ := strconv.Atoi(port)
	return n
}

// Terminate asks the server to end, as Kubernetes does, and does not wait.
func (s *Server) Terminate() { s.cmd.Process.Signal(syscall.SIGTERM) }

// Kill ends the server at once and returns when it is gone.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	<-s.done
}

// Done is closed when the server has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Log returns the end of what the server has printed.
func (s *Server) Log() string {
	const most = 4000
	info, err := s.log.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(info.Size(), most))
	n, _ := s.log.ReadAt(text, info.Size()-int64(len(text)))
	return string(text[:n])
}

// Close kills the server and forgets what it has printed.
func (s *Server) Close() {
	s.Kill()
	s.alive.Close()
	s.removeLog()
}

func (s *Server) removeLog() {
	s.log.Close()
	os.Remove(s.log.Name())
}
