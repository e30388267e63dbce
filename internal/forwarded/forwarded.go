// Package forwarded answers one question: who is the client behind a proxy?
//
// A proxy that is listed is believed: what it says in X-Forwarded-For or
// Forwarded (RFC 7239) of a request, and in the header of the PROXY protocol
// (versions 1 and 2) with which a connection begins. From any other peer both are
// what a client says of itself, and are ignored.
package forwarded

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
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
		return netip.Prefix{},
			fmt.Errorf("%q is not an address or network: write 10.0.0.0/8, 192.0.2.7, fd00::/8 or unix",
				text)
	case prefix.Bits() == 0:
		return netip.Prefix{},
			fmt.Errorf("%q is every address, so that every client could choose its own; name the proxies",
				text)
	case prefix != prefix.Masked():
		return netip.Prefix{},
			fmt.Errorf("%q has bits outside of its network: write %v", text, prefix.Masked())
	}
	return prefix, nil
}

// trusts reports whether an address is that of a listed proxy.
func (p *Proxies) trusts(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(p.prefixes, func(n netip.Prefix) bool { return n.Contains(addr) })
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

// A Request is what a listed proxy says of a request, apart from the address of its client.
type Request struct {
	Host   string // that the client asked for; "" when the proxy does not say
	Secure bool   // the client speaks TLS with the proxy
}

type requestKey struct{}

type vouchedKey struct{}

// Vouch returns the context of a request that another node of a cluster has let in, and sends as
// its client has sent it.
func Vouch(ctx context.Context) context.Context {
	return context.WithValue(ctx, vouchedKey{}, true)
}

// Vouched reports whether another node has let the request in: its nonce was used there.
func Vouched(ctx context.Context) bool { return ctx.Value(vouchedKey{}) != nil }

// Of returns what a listed proxy says of a request, or nil.
func Of(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

// With returns the context of a request for which a listed proxy of another node has said
// something.
func With(ctx context.Context, said *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, said)
}

// Secure reports whether the client of a request speaks TLS, with this server or with a listed
// proxy.
func Secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	of := Of(r.Context())
	return of != nil && of.Secure
}

// Handler gives requests of listed proxies the address of their client as RemoteAddr, and what else
// the proxy says to [Of]. Addresses are read from the right, and the first that is not a listed
// proxy is the client. A request with a Forwarded that cannot be read, or disagrees with
// X-Forwarded-For, is refused: a proxy writes one of them, and the other may be the client's own.
func (p *Proxies) Handler(h http.Handler) http.Handler {
	if p == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, ok := p.peer(r)
		if !ok {
			h.ServeHTTP(w, r)
			return
		}
		said, agreed := p.read(r.Header, peer)
		if !agreed {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w,
				"Forwarded is not valid, or names another client than X-Forwarded-For; let the proxy remove "+
					"the one that it does not write\n")
			return
		}
		r = r.WithContext(With(r.Context(), &said.Request))
		if said.client.IsValid() {
			r.RemoteAddr = said.client.String()
		}
		h.ServeHTTP(w, r)
	})
}

// peer returns the address of the other end, and whether it is a listed proxy. That of a unix
// socket has none.
func (p *Proxies) peer(r *http.Request) (netip.AddrPort, bool) {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok &&
		local.Network() == "unix" {
		return netip.AddrPort{},
			p.unix && slices.ContainsFunc([]string{"X-Forwarded-For", "Forwarded"}, func(name string) bool {
				return r.Header[name] != nil
			})
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return peer, err == nil && p.trusts(peer.Addr())
}

// said is what the headers of a request say.
type said struct {
	Request
	client netip.AddrPort
}

// read reads the headers of a request from a listed proxy. It reports false when they cannot be
// read or disagree.
func (p *Proxies) read(h http.Header, peer netip.AddrPort) (*said, bool) {
	classic := &said{client: peer}
	if list := h["X-Forwarded-For"]; list != nil {
		nodes := strings.Split(strings.Join(list, ","), ",")
		classic.client, _ = p.walk(nodes, peer)
	}
	classic.Secure = strings.EqualFold(last(h["X-Forwarded-Proto"]), "https")
	classic.Host = last(h["X-Forwarded-Host"])
	list := h["Forwarded"]
	if list == nil {
		return classic, true
	}
	elements, ok := parseForwarded(strings.Join(list, ","))
	if !ok {
		return nil, false
	}
	nodes := make([]string, len(elements))
	for i, e := range elements {
		nodes[i] = e.node
	}
	modern := &said{}
	var at int
	modern.client, at = p.walk(nodes, peer)
	if at >= 0 {
		modern.Secure, modern.Host = strings.EqualFold(elements[at].proto, "https"), elements[at].host
	}
	if h["X-Forwarded-For"] != nil {
		return classic, classic.client.Addr() == modern.client.Addr()
	}
	return modern, true
}

// walk goes from the nearest hop to the client, and returns its place as well, or -1. When a hop
// cannot be read, the one that reported it is as far as it is known. The port is that of the
// connection where the proxies say none, so that connections can still be distinguished.
func (p *Proxies) walk(nodes []string, peer netip.AddrPort) (client netip.AddrPort, at int) {
	client, at = peer, -1
	for i, node := range slices.Backward(nodes) {
		hop, ok := parseNode(node)
		if !ok {
			break
		}
		if hop.Port() == 0 {
			hop = netip.AddrPortFrom(hop.Addr(), peer.Port())
		}
		client, at = hop, i
		if !p.trusts(hop.Addr()) {
			break
		}
	}
	return client, at
}

// last is the value that the nearest proxy has written.
func last(list []string) string {
	if len(list) == 0 {
		return ""
	}
	text := list[len(list)-1]
	return strings.TrimSpace(text[strings.LastIndexByte(text, ',')+1:])
}

// An element is one hop of a Forwarded header.
type element struct{ node, proto, host string }

// parseForwarded reads the elements of a Forwarded header (RFC 7239, section 4). It is strict: a
// client that leaves a quote open must not swallow what the proxy adds behind it.
func parseForwarded(text string) (list []element, ok bool) {
	var e element
	for {
		text = strings.TrimLeft(text, " \t")
		if text != "" && text[0] != ';' && text[0] != ',' {
			name, rest, found := strings.Cut(text, "=")
			value, rest, valid := cutValue(rest)
			if !found || !valid || strings.ContainsAny(name, notInToken) {
				return nil, false
			}
			switch strings.ToLower(name) {
			case "for":
				e.node = value
			case "proto":
				e.proto = value
			case "host":
				e.host = value
			}
			text = strings.TrimLeft(rest, " \t")
		}
		switch {
		case text == "":
			return append(list, e), true
		case text[0] == ',':
			list, e = append(list, e), element{}
		case text[0] != ';':
			return nil, false
		}
		text = text[1:]
	}
}

// notInToken ends a token.
const notInToken = "\"\\;, \t="

// cutValue takes a token or a quoted string (RFC 9110, sections 5.6.2 and 5.6.4) from a text.
// Colons and brackets, which belong into quotes, are taken as part of a token, as many proxies
// write them.
func cutValue(text string) (value, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		n := strings.IndexAny(text, notInToken)
		if n < 0 {
			n = len(text)
		}
		return text[:n], text[n:], true
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '"':
			return b.String(), text[i+1:], true
		case text[i] == '\\' && i+1 < len(text):
			i++
		}
		b.WriteByte(text[i])
	}
	return "", "", false
}
