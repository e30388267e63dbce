//go:build unix && !linux

package stream

import "syscall"

// zombies: there is no portable way to wait for a child without reaping it. Its
// group is killed right after, which would hit another process only if the process id
// went around in between.
const zombies = false

func dieWithParent(*syscall.SysProcAttr) {}

func awaitExit(int) {}
