package stream

import "syscall"

// zombies: awaitExit leaves the child unreaped, so that its process id, and with
// it the id of its group, cannot be reused yet.
const zombies = true

func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// awaitExit returns when the child has exited.
func awaitExit(pid int) {
	const pPID = 1 // P_PID of waitid(2)
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), 0,
			syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if errno != syscall.EINTR {
			return
		}
	}
}
