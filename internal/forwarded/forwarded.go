// Package forwarded answers one question: who is the client behind a proxy?
//
// A proxy that is listed is believed: what it says in X-Forwarded-For or
// Forwarded (RFC 7239) of a request, and in the header of the PROXY protocol
// (versions 1 and 2) with which a connection begins. From any other peer both are
// what a client says of itself, and are ignored.
package forwarded

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Proxies are the proxies that are believed. Nil has none.
type Proxies struct {
	prefixes []netip.Prefix
	unix     bool
}

// Parse reads a list of addresses and networks, such as 10.0.0.0/8 and ::1, and
// "unix" for every peer of a unix socket. An empty list yields nil.
func Parse(list []string) (*Proxies, error) {
	if len(list) == 0 {
		return nil, nil
	}
	p := &Proxies{}
	for _, text := range list {
		if text == "unix" {
			p.unix = true
			continue
		}
		prefix, err := parsePrefix(text)
		if err != nil {
			return nil, err
		}
		p.prefixes = append(p.prefixes, prefix)
	}
	return p, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil || prefix.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is not an address or network: write 10.0.0.0/8, 192.0.2.7, fd00::/8 or unix", text)
	case prefix.Bits() == 0:
		return netip.Prefix{}, fmt.Errorf("%q is every address, so that every client could choose its own; name the proxies", text)
	case prefix != prefix.Masked():
		return netip.Prefix{}, fmt.Errorf("%q has bits outside of its network: write %v", text, prefix.Masked())
	}
	return prefix, nil
}

// trusts reports whether an address is that of a listed proxy.
func (p *Proxies) trusts(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, prefix := range p.prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// trustsPeer reports whether the other end of a connection is a listed proxy.
func (p *Proxies) trustsPeer(conn net.Conn) bool {
	switch addr := conn.RemoteAddr().(type) {
	case *net.TCPAddr:
		return p.trusts(addr.AddrPort().Addr())
	case *net.UnixAddr:
		return p.unix
	}
	return false
}

// parseNode reads an address as proxies write it: with or without a port and
// brackets. Names such as "unknown" and "_hidden" are none.
func parseNode(text string) (netip.AddrPort, bool) {
	text = strings.TrimSpace(text)
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	addr, err := netip.ParseAddr(text)
	return netip.AddrPortFrom(addr.Unmap().WithZone(""), 0), err == nil
}
