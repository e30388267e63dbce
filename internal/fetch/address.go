package fetch

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// A class says who reaches an address.
type class uint8

const (
	public   class = 1 << iota
	loopback       // this machine
	private        // a private network: RFC 1918, RFC 4193, RFC 6598
	special        // link-local, multicast, unspecified, reserved
)

func (c class) String() string {
	switch c {
	case public:
		return "a public address"
	case loopback:
		return "a loopback address"
	case private:
		return "a private address"
	default:
		return "a link-local or reserved address"
	}
}

// A reach is a set of classes.
type reach uint8

const everywhere = reach(public | loopback | private | special)

func (r reach) has(c class) bool { return r&reach(c) != 0 }

// prefixes are the ranges that are not public, of the registries of RFC 6890; the first
// that has an address decides.
var prefixes = []struct {
	prefix netip.Prefix
	class  class
}{
	{netip.MustParsePrefix("127.0.0.0/8"), loopback},
	{netip.MustParsePrefix("10.0.0.0/8"), private},
	{netip.MustParsePrefix("172.16.0.0/12"), private},
	{netip.MustParsePrefix("192.168.0.0/16"), private},
	{netip.MustParsePrefix("100.64.0.0/10"), private},  // CGNAT, RFC 6598
	{netip.MustParsePrefix("0.0.0.0/8"), special},      // Linux connects 0.0.0.0 to loopback
	{netip.MustParsePrefix("169.254.0.0/16"), special}, // link-local: metadata of clouds
	{netip.MustParsePrefix("192.0.0.0/24"), special},
	{netip.MustParsePrefix("192.0.2.0/24"), special},
	{netip.MustParsePrefix("192.88.99.0/24"), special},
	{netip.MustParsePrefix("198.18.0.0/15"), special},
	{netip.MustParsePrefix("198.51.100.0/24"), special},
	{netip.MustParsePrefix("203.0.113.0/24"), special},
	{netip.MustParsePrefix("224.0.0.0/3"), special}, // multicast, reserved, broadcast

	{netip.MustParsePrefix("::1/128"), loopback},
	{netip.MustParsePrefix("fc00::/7"), private},
	{netip.MustParsePrefix("2001::/23"), special}, // Teredo and other protocols
	{netip.MustParsePrefix("2001:db8::/32"), special},
	{netip.MustParsePrefix("3fff::/20"), special},
}

var (
	v6Public  = netip.MustParsePrefix("2000::/3") // all that is assigned as global unicast
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// classOf returns who reaches an address. Of one that has an IPv4 address in it, it is
// that of the IPv4 address.
func classOf(a netip.Addr) class {
	if !a.IsValid() || a.Zone() != "" {
		return special // a zone is for link-local addresses
	}
	a = a.Unmap()
	if a.Is6() {
		b := a.As16()
		switch {
		case nat64.Contains(a): // RFC 6052
			return classOf(netip.AddrFrom4([4]byte(b[12:])))
		case sixToFour.Contains(a): // RFC 3056
			return classOf(netip.AddrFrom4([4]byte(b[2:6])))
		}
	}
	for _, p := range prefixes {
		if p.prefix.Contains(a) {
			return p.class
		}
	}
	if a.Is6() && !v6Public.Contains(a) {
		return special
	}
	return public
}

// Public reports whether an address is public: neither loopback nor private, link-local, multicast
// or reserved, and has none of these in it.
func Public(a netip.Addr) bool { return classOf(a) == public }

// hostClass returns the class of a host that says itself where it is: an address, or a
// name of RFC 6761 §6.3. Of any other, its owner says so when it is looked up.
func hostClass(host string) (of class, known bool) {
	if a, err := netip.ParseAddr(host); err == nil {
		return classOf(a), true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return loopback, true
	}
	return 0, false
}

// control refuses to connect beyond a reach. It is asked with the address that was looked up, so
// another answer to the next lookup (DNS rebinding) does not help.
func control(may reach) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrAddress, err)
		}
		if of := classOf(to.Addr()); !may.has(of) {
			return refuse(to.Addr().String(), of)
		}
		return nil
	}
}
