package envoy

import "syscall"

// ChildAttr is for a process that must not outlive this one. It gets a process
// group of its own, so that an interrupt at the terminal reaches this process
// first, and the kernel ends it when this process dies without a word.
func ChildAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// signal goes to Envoy and what it may have started.
func (p *Process) signal(s syscall.Signal) { syscall.Kill(-p.cmd.Process.Pid, s) }
