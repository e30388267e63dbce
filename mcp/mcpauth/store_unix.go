//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package mcpauth

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Somebody else may have put a pipe into the place of a file, or a link to what he cannot write himself.
const (
	dontWait = syscall.O_NONBLOCK
	noLink   = syscall.O_NOFOLLOW
)

// tryLock locks a file, or reports that it is another's.
func tryLock(f *os.File, exclusive bool) (bool, error) {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// ours reports whether a file belongs to who runs this, or to root.
func ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Uid == 0 || int(stat.Uid) == os.Geteuid()
}
