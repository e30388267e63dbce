package port

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/farcall-dev/farcall/internal/npipe"
)

// Listen opens host:port, unix:PATH, or npipe:NAME on Windows. Port 0 is any free one. An IPv4 address is
// that of IPv4 only, so 0.0.0.0:PORT leaves IPv6 alone; :PORT and [::]:PORT are
// every interface in both.
//
// The socket file at PATH can be used by its owner only and is removed by
// Close. One that a dead process has left is replaced; one that somebody
// answers, or a file that is no socket, is an error.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	if name, ok := strings.CutPrefix(addr, "npipe:"); ok {
		l, err := npipe.Listen(name)
		if err != nil {
			return nil, fmt.Errorf("port: listen on %s: %w", addr, err)
		}
		return l, nil
	}
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok {
		l, err := new(net.ListenConfig).Listen(ctx, family(addr), addr)
		if err != nil {
			return nil, fmt.Errorf("port: %w", err)
		}
		return l, nil
	}
	l, err := listenUnix(ctx, path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err = removeStale(ctx, path); err == nil {
			l, err = listenUnix(ctx, path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("port: listen on unix:%s: %w", path, err)
	}
	return l, nil
}

// family is the network of an address. For package net 0.0.0.0 is IPv6 as well.
func family(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return "tcp4"
	}
	return "tcp"
}

// Reachable reports whether other machines can connect to an address as Listen takes
// it: all but unix sockets, named pipes, loopback addresses and localhost.
func Reachable(addr string) bool {
	if strings.HasPrefix(addr, "unix:") || strings.HasPrefix(addr, "npipe:") {
		return false
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.Unmap().IsLoopback()
	}
	return !strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
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
