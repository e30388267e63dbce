//go:build !unix

package wsrpc

import "syscall"

const canTry = false

func tryWrite(syscall.RawConn, []byte) (int, error) { return 0, nil }
