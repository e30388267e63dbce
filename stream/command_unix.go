//go:build unix

package stream

import (
	"os/exec"
	"syscall"
)

type signal = syscall.Signal

const (
	terminate = syscall.SIGTERM
	kill      = syscall.SIGKILL
)

// ownGroup makes the child lead a process group.
func ownGroup(cmd *exec.Cmd) {
	attr := new(syscall.SysProcAttr)
	if cmd.SysProcAttr != nil {
		*attr = *cmd.SysProcAttr
	}
	if !attr.Setsid { // a session leader leads its group already
		attr.Setpgid, attr.Pgid = true, 0
	}
	dieWithParent(attr)
	cmd.SysProcAttr = attr
}

func signalGroup(cmd *exec.Cmd, s signal) {
	_ = syscall.Kill(-cmd.Process.Pid, s)
}
