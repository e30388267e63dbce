package sandbox

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func parsed(t *testing.T, never []string, entries ...string) *network {
	t.Helper()
	n, err := (&Rules{Network: entries, Never: never}).network()
	if err != nil {
		t.Fatal(entries, err)
	}
	return &n
}

// TestMayReach: what each entry reaches, and what none does.
func TestMayReach(t *testing.T) {
	hosts := func(host string) []netip.Addr {
		return map[string][]netip.Addr{
			"localhost":   {netip.MustParseAddr("127.0.0.1")},
			"db.internal": {netip.MustParseAddr("10.1.2.3")},
			"evil.example": {
				netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254"),
				netip.MustParseAddr("93.184.216.34"),
			},
		}[host]
	}
	servers := func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("169.254.169.253")}
	}
	for _, c := range []struct {
		entries []string
		yes, no []string
	}{
		{
			[]string{"443", "53"},
			[]string{"93.184.216.34:443", "[2606:2800::1]:443", "[::ffff:93.184.216.34]:443", "10.0.0.2:53", "8.8.8.8:53"},
			[]string{
				"93.184.216.34:80", "127.0.0.1:443", "0.0.0.0:443", "[::]:443", "[::1]:443", "10.1.2.3:443",
				"192.168.1.1:443", "172.16.0.1:443",
				"100.64.0.1:443", "[fd00::1]:443", "169.254.169.254:443", "[::ffff:169.254.169.254]:443",
				"[64:ff9b::a9fe:a9fe]:443", "[2002:a9fe:a9fe::]:443",
				"[fe80::1]:443", "[fd00:ec2::254]:443", "168.63.129.16:443", "100.100.100.200:443",
				"224.0.0.1:443", "255.255.255.255:443", "10.0.0.3:53", "169.254.169.253:53",
				"[::a9fe:a9fe]:443", "[64:ff9b::7f00:1]:443",
			},
		},
		{
			[]string{"all"},
			[]string{"93.184.216.34:1", "127.0.0.1:8080", "10.1.2.3:5432", "[::1]:80"},
			[]string{"169.254.169.254:80", "[fe80::1]:80", "[fd00:ec2::254]:80", "168.63.129.16:80", "[::ffff:169.254.169.254]:80", "[64:ff9b::a9fe:a9fe]:80", "[2002:a9fe:a9fe::1]:80", "[::a9fe:a9fe]:80"},
		},
		{
			[]string{"all", "169.254.169.254:80"},
			[]string{"169.254.169.254:80", "[::ffff:169.254.169.254]:80", "1.1.1.1:1"},
			[]string{"169.254.169.254:443", "169.254.169.253:80"},
		},
		{
			[]string{"10.0.0.0/8:5432", "[fd00::/8]:*"},
			[]string{"10.9.9.9:5432", "[fd12::1]:7"},
			[]string{"10.9.9.9:5433", "11.0.0.1:5432", "[fd00:ec2::254]:80"},
		},
		{
			[]string{"0.0.0.0/0:80", "[::/0]:80"},
			[]string{"10.0.0.1:80", "127.0.0.1:80", "[::1]:80"},
			[]string{"169.254.169.254:80", "[fe80::1]:80"},
		},
		{[]string{"169.254.0.0/16:*"}, []string{"169.254.169.254:80"}, []string{"168.63.129.16:80"}},
		{
			[]string{"localhost:8080", "db.internal:5432"},
			[]string{"127.0.0.1:8080", "10.1.2.3:5432", "0.0.0.0:8080"},
			[]string{"127.0.0.1:5432", "10.1.2.3:8080", "127.0.0.2:8080"},
		},
		{
			[]string{"evil.example:80"},
			[]string{"93.184.216.34:80"},
			[]string{"127.0.0.1:80", "169.254.169.254:80"},
		},
	} {
		n := parsed(t, nil, c.entries...)
		for want, list := range map[bool][]string{true: c.yes, false: c.no} {
			for _, to := range list {
				if got := n.mayReach(netip.MustParseAddrPort(to), hosts, servers); got != want {
					t.Errorf("%q reaches %s: %v", c.entries, to, got)
				}
			}
		}
	}
	for _, entries := range [][]string{{"all"}, {"127.0.0.0/8:*", "10.0.0.1:*"}, {"localhost:7331"}} {
		n := parsed(t, []string{"127.0.0.1:7331", "[::1]:7331", "10.0.0.1:7331"}, entries...)
		for _, to := range []string{
			"127.0.0.1:7331", "0.0.0.0:7331", "[::ffff:127.0.0.1]:7331",
			"[::1]:7331", "[::]:7331", "10.0.0.1:7331",
		} {
			if n.mayReach(netip.MustParseAddrPort(to), hosts, servers) {
				t.Errorf("%q reaches the gateway at %s", entries, to)
			}
		}
	}
}

// FuzzNetwork: what is accepted reaches no link-local address unless it names one, and has one
// meaning.
func FuzzNetwork(f *testing.F) {
	for _, text := range []string{
		"443", "10.0.0.0/8:1", "[::1]:1", "[fd00::/8]:*", "a.b:53", "[a]:1",
		"1.2.3.4:0", ":1", "a:b:1", "10.0.0.1/8:1", "[::ffff:1.2.3.4]:1",
	} {
		f.Add(text)
	}
	meta := netip.MustParseAddrPort("169.254.169.254:80")
	f.Fuzz(func(t *testing.T, text string) {
		var n network
		if n.parseNetwork(text) != nil {
			return
		}
		if len(n.ports)+len(n.named) != 1 {
			t.Fatalf("%q is %+v", text, n)
		}
		every := func(string) []netip.Addr { return []netip.Addr{meta.Addr()} }
		if n.mayReach(meta, every, func() []netip.Addr {
			return []netip.Addr{meta.Addr()}
		}) && !netip.MustParsePrefix("169.254.0.0/16").Overlaps(n.named[0].prefix) {
			t.Errorf("%q reaches %s", text, meta)
		}
	})
}

// TestHosts: a host is looked up now and then, and what it was lately still counts.
func TestHosts(t *testing.T) {
	asked := 0
	h := hosts{
		known: map[string]*hostEntry{},
		lookup: func(context.Context, string, string) ([]netip.Addr, error) {
			asked++
			return []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(asked)})}, nil
		},
	}
	begin := time.Now()
	for _, c := range []struct {
		after       time.Duration
		seen, asked int
	}{{0, 1, 1}, {hostFresh - 1, 1, 1}, {hostFresh, 2, 2}, {hostFresh + hostKept + 1, 1, 3}} {
		if got := h.of("a", begin.Add(c.after)); len(got) != c.seen || asked != c.asked {
			t.Errorf("after %v: %v, asked %d times; wanted %d and %d", c.after, got, asked, c.seen, c.asked)
		}
	}
}

// TestHostsAreBounded: a name server that always answers with others fills no memory.
func TestHostsAreBounded(t *testing.T) {
	asked := 0
	h := hosts{
		known: map[string]*hostEntry{},
		lookup: func(context.Context, string, string) (out []netip.Addr, err error) {
			asked++
			for i := range 200 {
				out = append(out, netip.AddrFrom4([4]byte{10, byte(asked), 0, byte(i)}))
			}
			return out, nil
		},
	}
	begin := time.Now()
	for i := range 4 {
		got := h.of("a", begin.Add(time.Duration(i)*hostFresh))
		if len(got) > maxSeen ||
			!slices.Contains(got, netip.AddrFrom4([4]byte{10, byte(asked), 0, 199})) {
			t.Errorf("%d addresses; those that were seen last are to stay", len(got))
		}
	}
}

func TestNameServers(t *testing.T) {
	got := nameServers(
		"# x\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\nsearch a\nnameserver\nnameserver x\n")
	if want := []netip.Addr{
		netip.MustParseAddr("10.0.0.2"),
		netip.MustParseAddr("fe80::1"),
	}; !slices.Equal(got, want) {
		t.Error(got)
	}
}
