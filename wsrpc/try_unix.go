//go:build unix

package wsrpc

import (
	"errors"
	"os"
	"syscall"
)

const canTry = true

// tryWrite writes to a socket until it would block.
func tryWrite(sock syscall.RawConn, p []byte) (n int, err error) {
	var werr error
	err = sock.Write(func(fd uintptr) bool {
		for n < len(p) {
			var m int
			m, werr = syscall.Write(int(fd), p[n:])
			if errors.Is(werr, syscall.EINTR) {
				continue
			}
			if werr != nil {
				break
			}
			n += m
		}
		return true // never wait
	})
	if err != nil {
		return n, err
	}
	if werr != nil && !errors.Is(werr, syscall.EAGAIN) {
		return n, os.NewSyscallError("write", werr)
	}
	return n, nil
}
