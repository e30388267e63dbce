package port

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// listenTCP opens host:port. An IPv4 address is that of IPv4 only, so 0.0.0.0:PORT leaves IPv6
// alone; :PORT and [::]:PORT are every interface in both.
func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, family(addr), addr)
}

// family is the network of an address. For package net 0.0.0.0 is IPv6 as well.
func family(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return "tcp4"
	}
	return "tcp"
}

// listenSocket opens a unix socket that only its owner can use, and that Close removes. A socket
// file that a dead process has left is replaced; a file that is no socket, or a socket that another
// process serves, is an error.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	l, err := listenUnix(ctx, path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	return listenUnix(ctx, path)
}

func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	config := net.ListenConfig{Control: ownerOnly}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(path, "@") { // the abstract names of linux are no files
		if err := os.Chmod(path, 0o600); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// removeStale removes the socket file of a process that has died.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("a file of that name exists, and it is no socket; choose another path")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
		return errors.New("another process answers there; stop it, or choose another path")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
