package envoy

import "syscall"

// childAttr gives Envoy a process group of its own, so that an interrupt at the
// terminal reaches warmpath first, and lets the kernel end Envoy when this
// process dies without a word.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// signal goes to Envoy and what it may have started.
func (p *Process) signal(s syscall.Signal) { syscall.Kill(-p.cmd.Process.Pid, s) }
