//go:build unix

package stream

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// standardFiles returns the standard files for use with the runtime's poller.
func standardFiles() (in, out *os.File) {
	return reopen(os.Stdin, os.O_RDONLY), reopen(os.Stdout, os.O_WRONLY)
}

// reopen returns another file for what f reads or writes. It is non-blocking if
// that is possible without harm. It is never descriptor 1: os.File ends the
// process with SIGPIPE when that one breaks, while a peer wants the error.
func reopen(f *os.File, mode int) *os.File {
	info, err := f.Stat()
	if err != nil {
		return f
	}
	kind := info.Mode() & os.ModeType
	if runtime.GOOS == "linux" && (kind == os.ModeNamedPipe || kind&os.ModeCharDevice != 0) {
		// Opened again it is non-blocking for us alone. The mode would otherwise be
		// shared with each process that inherited it: a shell and its terminal, for one.
		path := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
		if g, err := os.OpenFile(path, mode|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0); err == nil {
			return g
		}
	}
	syscall.ForkLock.RLock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return f
	}
	if kind == os.ModeNamedPipe || kind == os.ModeSocket {
		// These are rarely shared. Where it fails the file stays blocking.
		_ = syscall.SetNonblock(fd, true)
	}
	return os.NewFile(uintptr(fd), f.Name())
}
