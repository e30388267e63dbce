//go:build unix

package faulty

import (
	"os/exec"
	"syscall"
)

func ownSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
