package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/fetch"
)

// network is what the rules say of it.
type network struct {
	none, all bool
	ports     []uint16      // of any public address
	named     []destination // whatever they are
	never     []netip.AddrPort
}

// destination is a port of some addresses or of a host.
type destination struct {
	prefix netip.Prefix // not valid: those of the host
	host   string
	port   uint16 // 0: every port
}

// parseNetwork reads an entry that is a port or a destination: 443, 10.0.0.0/8:5432,
// [fd00::/8]:443, db.internal:5432, 169.254.169.254:80, 10.1.2.3:*.
func (n *network) parseNetwork(text string) error {
	host, port, ok := cutPort(text)
	if !ok {
		port, host = text, ""
	}
	number, err := strconv.ParseUint(port, 10, 16)
	every := ok && port == "*"
	if !every && (err != nil || number == 0) {
		return errNetwork
	}
	if !ok {
		n.ports = append(n.ports, uint16(number))
		return nil
	}
	d := destination{port: uint16(number)}
	inner, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		inner = strings.TrimSuffix(inner, "]")
	}
	if a, err := netip.ParseAddr(inner); err == nil && a.Zone() == "" {
		d.prefix = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
	} else if p, err := netip.ParsePrefix(inner); err == nil {
		if p != p.Masked() {
			return fmt.Errorf("sandbox: network %s: the network is %s", text, p.Masked())
		}
		d.prefix = p
	} else if bracketed || !isHost(host) {
		return errNetwork
	} else {
		d.host = strings.ToLower(strings.TrimSuffix(host, "."))
	}
	if d.prefix.IsValid() && d.prefix.Addr().Is6() != bracketed {
		return errNetwork
	}
	n.named = append(n.named, d)
	return nil
}

// cutPort cuts host:port at the last colon; a number alone has none.
func cutPort(text string) (host, port string, ok bool) {
	at := strings.LastIndexByte(text, ':')
	if at < 1 || text[0] == '[' && text[at-1] != ']' {
		return "", "", false
	}
	return text[:at], text[at+1:], true
}

// isHost reports whether a text is a name of a host.
func isHost(text string) bool {
	text = strings.TrimSuffix(text, ".")
	if text == "" || len(text) > 253 || strings.Trim(text, "0123456789./") == "" {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > 63 ||
			strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// tcpPorts are the ports that a kernel without a supervisor can be known.
func (n *network) tcpPorts() []uint16 {
	out := slices.Clone(n.ports)
	for _, d := range n.named {
		if d.port != 0 && !slices.Contains(out, d.port) {
			out = append(out, d.port)
		}
	}
	return out
}

// local are the ranges that are reached only if an entry names an address in them: link-local ones,
// and where clouds answer requests for credentials.
func local() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"),
		netip.MustParsePrefix("fec0::/10"),
		netip.MustParsePrefix("224.0.0.0/24"), netip.MustParsePrefix("ff00::/8"),
		netip.MustParsePrefix("fd00:ec2::/32"),      // Amazon
		netip.MustParsePrefix("fd20:ce::/32"),       // Google
		netip.MustParsePrefix("168.63.129.16/32"),   // Azure
		netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
		netip.MustParsePrefix("192.0.0.192/32"),     // Oracle
	}
}

// mayReach reports whether the rules let an address be reached. hosts has the addresses of the
// hosts that are named, and servers those of the name servers of this system, which port 53
// includes.
func (n *network) mayReach(
	to netip.AddrPort, hosts func(string) []netip.Addr, servers func() []netip.Addr,
) bool {
	a := plainAddr(to.Addr())
	if inner, ok := embedded(a); ok &&
		!n.mayReach(netip.AddrPortFrom(inner, to.Port()), hosts, servers) {
		return false
	}
	if slices.ContainsFunc(n.never, func(own netip.AddrPort) bool {
		return own.Port() == to.Port() && own.Addr().Unmap() == a
	}) {
		return false
	}
	special := slices.IndexFunc(local(), func(p netip.Prefix) bool { return p.Contains(a) })
	for _, d := range n.named {
		if (d.port == 0 || d.port == to.Port()) && d.names(a, special, hosts) {
			return true
		}
	}
	switch {
	case special >= 0:
		return false
	case n.all:
		return true
	case !slices.Contains(n.ports, to.Port()):
		return false
	}
	return fetch.Public(a) || to.Port() == 53 && slices.Contains(servers(), a)
}

// names reports whether a destination names an address. A range that is larger than the special one
// of the address does not; a host never names a special address, and a loopback one only if it is
// localhost.
func (d *destination) names(a netip.Addr, special int, hosts func(string) []netip.Addr) bool {
	if d.prefix.IsValid() {
		return d.prefix.Contains(a) && (special < 0 || d.prefix.Bits() >= local()[special].Bits())
	}
	if special >= 0 ||
		a.IsLoopback() && d.host != "localhost" && !strings.HasSuffix(d.host, ".localhost") {
		return false
	}
	return slices.Contains(hosts(d.host), a)
}

// plainAddr is where the kernel connects to: IPv4 in IPv6 is IPv4, and the unspecified address is
// this machine.
func plainAddr(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	switch {
	case a == netip.IPv4Unspecified():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case a == netip.IPv6Unspecified():
		return netip.IPv6Loopback()
	}
	return a
}

// embedded is the IPv4 address that a gateway of the network takes out of one of IPv6: NAT64, 6to4,
// and the compatible form.
func embedded(a netip.Addr) (inner netip.Addr, ok bool) {
	if !a.Is6() || a.IsLoopback() {
		return a, false
	}
	b := a.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a), netip.MustParsePrefix("::/96").Contains(a):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return a, false
}

// How long an address of a host counts after it was looked up, and how often it is looked up again.
const (
	hostKept  = 10 * time.Minute
	hostFresh = 5 * time.Second
	hostWait  = 5 * time.Second
	maxSeen   = 256 // addresses of a host; the one that was seen the longest time ago goes
)

// hosts remembers the addresses of hosts. Its methods may be called by any number of goroutines.
type hosts struct {
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

	mu    sync.Mutex
	known map[string]*hostEntry // the hosts of the rules, so it is bounded
}

type hostEntry struct {
	asked time.Time
	seen  map[netip.Addr]time.Time
}

// of returns the addresses of a host that were seen lately. A host of many addresses shows others
// each time: what the command has found may be none that this process has.
func (h *hosts) of(host string, now time.Time) (out []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.known[host]
	if e == nil {
		e = &hostEntry{seen: map[netip.Addr]time.Time{}}
		h.known[host] = e
	}
	if now.Sub(e.asked) >= hostFresh {
		ctx, cancel := context.WithTimeout(context.Background(), hostWait) //nolint:forbidigo // a launcher has no caller: it ends with its command
		addrs, _ := h.lookup(ctx, "ip", host)
		cancel()
		e.asked = now
		for _, a := range addrs {
			e.see(a.WithZone("").Unmap(), now)
		}
	}
	for a, at := range e.seen {
		if now.Sub(at) > hostKept {
			delete(e.seen, a)
			continue
		}
		out = append(out, a)
	}
	return out
}

// see remembers an address.
func (e *hostEntry) see(a netip.Addr, now time.Time) {
	e.seen[a] = now
	if len(e.seen) <= maxSeen {
		return
	}
	oldest := a
	for other, at := range e.seen {
		if at.Before(e.seen[oldest]) {
			oldest = other
		}
	}
	delete(e.seen, oldest)
}

// nameServers are those of a resolv.conf.
func nameServers(text string) (out []netip.Addr) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			out = append(out, a.WithZone("").Unmap())
		}
	}
	return out
}
