//go:build !linux

package envoy

import (
	"os"
	"syscall"
)

// childAttr: outside of Linux nothing ends Envoy when this process is killed.
func childAttr() *syscall.SysProcAttr { return nil }

func (p *Process) signal(s syscall.Signal) {
	if s == syscall.SIGKILL {
		p.cmd.Process.Kill()
		return
	}
	p.cmd.Process.Signal(os.Interrupt)
}
