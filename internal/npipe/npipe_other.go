//go:build !windows

package npipe

import (
	"context"
	"net"
)

// Dial fails with ErrUnsupported.
func Dial(context.Context, string) (net.Conn, error) { return nil, ErrUnsupported }

// Listen fails with ErrUnsupported.
func Listen(string) (net.Listener, error) { return nil, ErrUnsupported }
