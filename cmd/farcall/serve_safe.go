package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/port"
)

// reach is who can reach what is served, and how they are kept out. Its rule: an address that other
// machines can reach needs a guard that restricts something, and a guard with bearer secrets needs encryption
// there.
type reach struct {
	addresses []string
	tls       bool
	proxies   bool          // there are trusted ones, and only they connect without TLS
	guard     *guard.Config // nil: none
}

// unsafeAddress is an address that breaks the rule.
type unsafeAddress struct {
	at            int // the place of the address
	message, hint string
}

// find returns the addresses that break the rule.
func (e *reach) find() (list []*unsafeAddress) {
	for i, address := range e.addresses {
		if !port.Reachable(address) {
			continue
		}
		x := &unsafeAddress{at: i}
		bearer := bearerSecrets(e.guard)
		switch {
		case e.guard == nil:
			x.message = "other machines can reach " + address + ", and no guard says who may call what"
			x.hint = "add a guard (guard: in the configuration, or --guard FILE)"
		case !restricts(e.guard):
			x.message = "other machines can reach " + address + ", and the guard lets anonymous callers call everything"
			x.hint = "say what anonymous callers may call (allow: or deny: in the guard, not in the mode shadow), or remove anonymous: true"
		case bearer != "" && !e.tls && !e.proxies:
			x.message = "other machines can reach " + address + ", and " + bearer + " would cross the network unencrypted"
			x.hint = "add a certificate (tls: in the configuration, or --tls-cert and --tls-key), name the proxy that terminates TLS " +
				"(trusted_proxies:, or --trusted-proxy)"
		default:
			continue
		}
		x.hint += ", listen on " + loopback(address) + " or a unix socket, or insist with --insecure"
		list = append(list, x)
	}
	return list
}

// restricts reports whether a guard keeps anything from a caller without credentials: it lets none in, or
// it has a rule that is enforced. Limits say how much may be called, not what.
func restricts(c *guard.Config) bool {
	enforced := func(r guard.Rule) bool { return r.Mode != "shadow" }
	switch {
	case !c.Anonymous:
		return true
	case c.Mode == "shadow":
		return false
	}
	return slices.ContainsFunc(c.Allow, enforced) || slices.ContainsFunc(c.Deny, enforced) ||
		len(c.Local)+len(c.Cedar)+len(c.CedarFiles)+len(c.Resource.Scopes) > 0
}

// bearerSecrets names the credentials of a guard that can be used again by everyone who reads them. A
// signature counts once, and a proof of DPoP is worth nothing without its key.
func bearerSecrets(c *guard.Config) string {
	if c == nil {
		return ""
	}
	var list []string
	if len(c.Keys) > 0 {
		list = append(list, "API keys")
	}
	for _, issuer := range c.JWT {
		if issuer.DPoP != "required" {
			list = append(list, "tokens")
			break
		}
	}
	return strings.Join(list, " and ")
}

// loopback is an address with the same port that only this machine can reach.
func loopback(address string) string {
	return "127.0.0.1" + address[strings.LastIndexByte(address, ':'):]
}

// checkReach refuses to start with an address that breaks the rule of reach. With --insecure it says so instead.
func (f *serveFlags) checkReach(c *gateway.Config, stderr io.Writer) error {
	list := f.reach(c.Guard).find()
	if !f.insecure {
		return f.refuseUnsafe(c, list)
	}
	var texts []string
	for _, x := range list {
		texts = append(texts, x.message)
	}
	if f.certs != nil {
		texts = append(texts, "connections without TLS are accepted")
	}
	if len(texts) > 0 {
		fmt.Fprintf(stderr, "farcall: INSECURE, as --insecure demands: %s\n", strings.Join(texts, "; "))
	}
	return nil
}

// refuseUnsafe is the error for addresses that break the rule, with their places where they are those
// of a file.
func (f *serveFlags) refuseUnsafe(c *gateway.Config, list []*unsafeAddress) error {
	if len(list) == 0 {
		return nil
	}
	if f.config != "" && slices.Equal(f.listen, c.Listen) {
		return configFailure(unsafeIn(f.config, c, list))
	}
	hint := strings.ToUpper(list[0].hint[:1]) + list[0].hint[1:] + "."
	return &exitError{code: exitUsage, err: errors.New(list[0].message), hint: hint}
}

// unsafeIn is the error for addresses of a file that break the rule.
func unsafeIn(file string, c *gateway.Config, list []*unsafeAddress) *gateway.ConfigError {
	bad := &gateway.ConfigError{File: file}
	for _, x := range list {
		bad.Problems = append(bad.Problems, c.ProblemAt(fmt.Sprintf("listen[%d]", x.at), x.message, x.hint))
	}
	return bad
}

// reach is who can reach what the flags serve, with a guard.
func (f *serveFlags) reach(c *guard.Config) *reach {
	return &reach{addresses: f.addresses(), tls: f.certs != nil, proxies: f.proxies != nil, guard: c}
}

// plain decides which connections are accepted without TLS; nil leaves that to the port. Where a
// trusted proxy stands in for a certificate, other machines connect through it only.
func (f *serveFlags) plain() func(net.Conn) string {
	switch {
	case f.insecure:
		return func(net.Conn) string { return "" }
	case f.certs != nil || f.proxies == nil:
		return nil
	}
	return func(conn net.Conn) string {
		if from, ok := conn.RemoteAddr().(*net.TCPAddr); !ok || from.IP.IsLoopback() || forwarded.Via(conn) {
			return ""
		}
		return "only the proxies of trusted_proxies connect to this port; use the address of the proxy"
	}
}

// checkReload refuses a new guard that would break the rule of reach.
func (f *serveFlags) checkReload(c *guard.Config) error {
	if list := f.reach(c).find(); len(list) > 0 && !f.insecure {
		return errors.New(list[0].message + "; " + list[0].hint)
	}
	return nil
}
