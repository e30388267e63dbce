//go:build unix

package port

import "syscall"

// ownerOnly sets the mode of a socket before it has a name. On linux the socket
// file gets it, so that there is no moment at which others may connect.
func ownerOnly(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		_ = syscall.Fchmod(int(fd), 0o600) // where it does not work Chmod follows
	})
}
