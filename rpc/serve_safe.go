package rpc

import (
	"cmp"
	"net"
	"strings"

	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/port"
)

// This file has the rule for the addresses that are served: one that other machines can reach needs
// a guard that restricts something, and a guard with bearer secrets needs encryption there.

// Check returns a *[ServeError] for the first of addresses that [Server.Listen] would refuse with a
// policy: one that cannot be read, or, without ServeOptions.Insecure, one that is not safe. p may
// be nil. It is for those who are about to change the configuration of a guard.
func (s *Server) Check(p Policy, addresses ...string) error {
	for _, address := range addresses {
		if err := s.readable(address); err != nil {
			return err
		}
	}
	if s.o.Insecure {
		return nil
	}
	for _, address := range addresses {
		if bad := s.unsafe(p, address); bad != nil {
			return bad
		}
	}
	return nil
}

// readable returns a *ServeError for an address that cannot be read.
func (s *Server) readable(address string) error {
	err := s.schemes.Check(address)
	if err == nil {
		return nil
	}
	e := &ServeError{Address: address, Reason: err.Error(), Err: err}
	if bad, ok := err.(*port.AddressError); ok { //nolint:errorlint // it is not wrapped
		e.Hint = "write " + bad.Instead
	}
	return e
}

// unsafe returns how an address breaks the rule, or nil.
func (s *Server) unsafe(p Policy, address string) *ServeError {
	if !s.schemes.Reachable(address) {
		return nil
	}
	e := &ServeError{Address: address}
	switch {
	case p == nil:
		e.Reason = "no guard says who may call what"
		e.Hint = "set ServeOptions.Guard"
	case !p.Restricts():
		e.Reason = "the guard lets anonymous callers call everything"
		e.Hint = "say what anonymous callers may call (Allow or Deny of guard.Config, not in the mode shadow), or unset Anonymous"
	case p.BearerSecrets() != "" && port.IsQueue(address) && !s.schemes.Secure(address):
		e.Reason, e.Hint = p.BearerSecrets()+" would cross the network unencrypted", "write nats+tls://"
	case p.BearerSecrets() != "" && !port.IsQueue(address) && s.certs == nil && s.proxies == nil:
		e.Reason = p.BearerSecrets() + " would cross the network unencrypted"
		e.Hint = "set ServeOptions.CertFile and ServeOptions.KeyFile, name the proxy that terminates TLS (ServeOptions.TrustedProxies)"
	default:
		return nil
	}
	e.Reason = "other machines can reach " + port.Redacted(address) + ", and " + e.Reason
	if port.IsQueue(address) {
		e.Hint += ", or insist with ServeOptions.Insecure where only those reach the engine who may call"
		return e
	}
	_, number, _ := net.SplitHostPort(address)
	e.Hint += ", listen on 127.0.0.1:" + cmp.Or(number, "0") + " or a unix socket, or insist with ServeOptions.Insecure"
	return e
}

// tellInsecure reports, in one line, what ServeOptions.Insecure lets pass at addresses.
func (s *Server) tellInsecure(p Policy, addresses ...string) {
	if !s.o.Insecure {
		return
	}
	var why []string
	for _, address := range addresses {
		if bad := s.unsafe(p, address); bad != nil {
			why = append(why, bad.Reason)
		}
	}
	if s.certs != nil && len(addresses) > 0 {
		why = append(why, "connections without TLS are accepted")
	}
	switch {
	case len(why) == 0:
	case s.o.OnInsecure != nil:
		s.o.OnInsecure(strings.Join(why, "; "))
	default:
		s.o.Logger.Warn("INSECURE, as ServeOptions.Insecure demands: " + strings.Join(why, "; "))
	}
}

// plain decides which connections are accepted without TLS; nil leaves that to the port. Where a
// trusted proxy stands in for a certificate, other machines connect through it only.
func (s *Server) plain() func(net.Conn) string {
	switch {
	case s.o.Insecure:
		return func(net.Conn) string { return "" }
	case s.certs != nil || s.proxies == nil:
		return nil
	}
	return func(conn net.Conn) string {
		if from, ok := conn.RemoteAddr().(*net.TCPAddr); !ok || from.IP.IsLoopback() || forwarded.Via(conn) {
			return ""
		}
		return "only trusted proxies connect to this port; use the address of the proxy"
	}
}
