package stream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/farcall-dev/farcall"
)

// Dial connects to an address: "tcp" with host:port, or "unix" with a path.
// The context bounds the connecting, the TLS handshake included, and nothing
// after it.
func Dial(ctx context.Context, network, addr string, framing Framing, o *Options) (farcall.Transport, error) {
	switch network {
	case "tcp", "tcp4", "tcp6", "unix":
	default:
		return nil, fmt.Errorf(`stream: cannot dial the network %q; use "tcp" or "unix"`, network)
	}
	var conn net.Conn
	var err error
	if o != nil && o.TLS != nil {
		conn, err = (&tls.Dialer{Config: o.TLS}).DialContext(ctx, network, addr)
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
	}
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	return New(conn, framing, o), nil
}
