//go:build !linux

package envoy

import (
	"os"
	"syscall"
)

// ChildAttr: outside of Linux nothing ends a child when this process is killed.
func ChildAttr() *syscall.SysProcAttr { return nil }

func (p *Process) signal(s syscall.Signal) {
	if s == syscall.SIGKILL {
		p.cmd.Process.Kill()
		return
	}
	p.cmd.Process.Signal(os.Interrupt)
}
