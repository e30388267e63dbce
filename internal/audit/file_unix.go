//go:build unix

package audit

import (
	"errors"
	"os"
	"syscall"
)

// errQuota is the error of a user without room.
const errQuota = syscall.EDQUOT

// lock keeps other processes from writing the file: their lines would break the chain.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New(f.Name() + " is written by another process, and each needs its own file")
	}
	return nil // some file systems have no locks
}
