package npipe

import (
	"context"
	"net"
	"strings"

	"github.com/Microsoft/go-winio"
)

// ownerOnly lets the user who listens, and the system, use a pipe: like the mode 0600 of a unix
// socket.
const ownerOnly = "D:P(A;;GA;;;OW)(A;;GA;;;SY)"

// Dial connects to the pipe of a name.
func Dial(ctx context.Context, name string) (net.Conn, error) {
	return winio.DialPipeContext(ctx, path(name))
}

// Listen makes the pipe of a name. Only its owner can connect, and only from this machine. It is an
// error when another process has it.
func Listen(name string) (net.Listener, error) {
	return winio.ListenPipe(path(name), &winio.PipeConfig{SecurityDescriptor: ownerOnly})
}

// path returns what Windows calls the pipe of a name, which may be complete already.
func path(name string) string {
	if strings.HasPrefix(name, Prefix) {
		return name
	}
	return Prefix + name
}
