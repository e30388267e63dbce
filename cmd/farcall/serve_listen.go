package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/farcall-dev/farcall/internal/npipe"
	"github.com/farcall-dev/farcall/internal/port"
)

// listen opens an address, and says what to do when it cannot.
func listen(ctx context.Context, text string) (net.Listener, error) {
	if err := checkAddress(text); err != nil {
		return nil, err
	}
	l, err := port.Listen(ctx, text)
	if err == nil {
		return l, nil
	}
	hint := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		hint = "Another farcall may be running. Stop it, or take another port: 127.0.0.1:0 is any that is free."
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		hint = "This machine does not have that address. 127.0.0.1:PORT is this machine only, :PORT is every interface."
	case errors.Is(err, os.ErrNotExist):
		hint = "A socket needs a directory that is there."
	case errors.Is(err, os.ErrPermission):
		hint = "Ports below 1024 need privileges, and a socket needs a directory that you can write to."
	}
	return nil, &exitError{code: exitFailure, err: fmt.Errorf("cannot listen on %s: %w", text, reason(err)), hint: hint}
}

// reason leaves out what an error says of the address: it has been said.
func reason(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// checkAddress explains what is wrong with an address that cannot be read.
func checkAddress(text string) error {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path == "" {
			return usagef("Name the socket: --listen unix:/tmp/farcall.sock", "the address %q has no path", text)
		}
		return nil
	}
	if name, ok := strings.CutPrefix(text, "npipe:"); ok {
		if name == "" {
			return usagef("Name the pipe: --listen npipe:farcall", "the address %q has no name", text)
		}
		return nil
	}
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		return usagef(fmt.Sprintf("Leave %s:// out: one port speaks every protocol. Try --listen %s", scheme, strings.TrimRight(rest, "/")),
			"the address %q has a scheme", text)
	}
	const hint = "Write host:port, :port for every interface, 127.0.0.1:0 for any free port, or unix:PATH."
	_, number, err := net.SplitHostPort(text)
	if err != nil {
		if _, numeric := strconv.Atoi(text); numeric == nil {
			return usagef("Did you mean --listen 127.0.0.1:"+text+"?", "the address %q has no host", text)
		}
		return usagef(hint, "the address %q cannot be read: %w", text, err)
	}
	if _, err := strconv.ParseUint(number, 10, 16); err != nil {
		return usagef(hint, "the address %q has a bad port; ports go from 0 to 65535", text)
	}
	return nil
}

// readyLine names an address that accepts connections. Programs that start
// farcall wait for it, so its form is fixed.
func readyLine(l net.Listener, secure bool) string {
	switch {
	case l.Addr().Network() == "unix":
		return "farcall: ready unix:" + l.Addr().String()
	case l.Addr().Network() == npipe.Network:
		return "farcall: ready npipe:" + strings.TrimPrefix(l.Addr().String(), npipe.Prefix)
	case secure:
		return "farcall: ready https://" + l.Addr().String()
	default:
		return "farcall: ready http://" + l.Addr().String()
	}
}
