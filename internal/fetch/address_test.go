package fetch

import (
	"errors"
	"net/netip"
	"testing"
)

func TestClassOf(t *testing.T) {
	for address, want := range map[string]class{
		"8.8.8.8":         public,
		"100.63.255.255":  public,
		"172.32.0.1":      public,
		"169.253.0.1":     public,
		"127.0.0.1":       loopback,
		"127.255.255.254": loopback,
		"10.0.0.1":        private,
		"172.16.0.1":      private,
		"172.31.255.255":  private,
		"192.168.1.1":     private,
		"100.64.0.1":      private, // CGNAT
		"100.127.255.255": private,
		"0.0.0.0":         special,
		"0.1.2.3":         special,
		"169.254.169.254": special,
		"169.254.170.2":   special,
		"192.0.0.192":     special,
		"192.0.2.1":       special,
		"192.88.99.1":     special,
		"198.18.0.1":      special,
		"203.0.113.1":     special,
		"224.0.0.1":       special,
		"240.0.0.1":       special,
		"255.255.255.255": special,

		"2606:4700::1111":        public,
		"2a00:1450::1":           public,
		"::1":                    loopback,
		"fc00::1":                private,
		"fd00:ec2::254":          private,
		"::":                     special,
		"fe80::1":                special,
		"fe80::1%eth0":           special,
		"2606:4700::1111%eth0":   special,
		"fec0::1":                special,
		"ff02::1":                special,
		"100::1":                 special,
		"2001::1":                special, // Teredo
		"2001:db8::1":            special,
		"3fff::1":                special,
		"5f00::1":                special,
		"4000::1":                special, // not assigned
		"64:ff9b:1::7f00:1":      special, // RFC 8215
		"::ffff:8.8.8.8":         public,
		"::ffff:127.0.0.1":       loopback,
		"::ffff:10.1.2.3":        private,
		"::ffff:169.254.169.254": special,
		"::ffff:0.0.0.0":         special,
		"::127.0.0.1":            special, // IPv4-compatible, RFC 4291 §2.5.5.1
		"64:ff9b::8.8.8.8":       public,
		"64:ff9b::127.0.0.1":     loopback,
		"64:ff9b::10.0.0.1":      private,
		"64:ff9b::a9fe:a9fe":     special, // 169.254.169.254
		"2002:808:808::1":        public,  // 6to4 of 8.8.8.8
		"2002:7f00:1::1":         loopback,
		"2002:a00:1::1":          private,
		"2002:a9fe:a9fe::1":      special,
	} {
		if got := classOf(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
	if got := classOf(netip.Addr{}); got != special {
		t.Errorf("no address is %s", got)
	}
}

func TestHostClass(t *testing.T) {
	for host, want := range map[string]class{
		"localhost": loopback, "LOCALHOST": loopback, "localhost.": loopback, "a.localhost": loopback,
		"127.0.0.1": loopback, "::1": loopback, "10.0.0.1": private, "::ffff:a00:1": private,
		"example.com": 0, "notlocalhost": 0, "localhost.example.com": 0, "localhost..": 0,
		// found out when they are looked up
		"2130706433": 0, "0x7f000001": 0, "0177.0.0.1": 0, "127.1": 0,
	} {
		got, known := hostClass(host)
		if got != want || known != (want != 0) {
			t.Errorf("%s: %v, %v", host, got, known)
		}
	}
}

func TestControl(t *testing.T) {
	for _, test := range []struct {
		may     reach
		address string
		want    bool
	}{
		{reach(public), "8.8.8.8:443", true},
		{reach(public), "[2606:4700::1111]:443", true},
		{reach(public), "127.0.0.1:443", false},
		{reach(public), "[::ffff:127.0.0.1]:443", false},
		{reach(public), "[64:ff9b::a9fe:a9fe]:443", false},
		{reach(public | loopback), "127.0.0.1:443", true},
		{reach(public | loopback), "10.0.0.1:443", false},
		{reach(public | loopback | private), "169.254.169.254:80", false},
		{everywhere, "169.254.169.254:80", true},
		{everywhere, "/run/socket", false},
	} {
		err := control(test.may)("tcp", test.address, nil)
		if (err == nil) != test.want || err != nil && !errors.Is(err, ErrAddress) {
			t.Errorf("%s within %b: %v", test.address, test.may, err)
		}
	}
}

func TestReach(t *testing.T) {
	for _, test := range []struct {
		origin, address string
		private, want   bool
	}{
		// Named by an operator: https anywhere, http to loopback.
		{"", "https://example.com/a", false, true},
		{"", "https://10.0.0.1/a", false, true},
		{"", "https://169.254.169.254/a", false, true},
		{"", "http://127.0.0.1:8080/a", false, true},
		{"", "http://localhost/a", false, true},
		{"", "http://[::1]/a", false, true},
		{"", "http://example.com/a", false, false},
		{"", "http://10.0.0.1/a", true, false},
		{"", "file:///etc/passwd", false, false},
		{"", "gopher://127.0.0.1/", false, false},
		{"", "https:///a", false, false},
		{"", "https:example.com", false, false},
		{"", "/a", false, false},
		{"", "https://u:p@example.com/a", false, false},
		// Named by a document of a public host.
		{"https://example.com", "https://keys.example.net/a", false, true},
		{"https://example.com", "https://EXAMPLE.com:8443/a", false, true},
		{"https://example.com", "https://127.0.0.1/a", false, false},
		{"https://example.com", "http://127.0.0.1/a", false, false},
		{"https://example.com", "https://localhost/a", false, false},
		{"https://example.com", "http://x.localhost/a", false, false},
		{"https://example.com", "https://10.0.0.1/a", false, false},
		{"https://example.com", "https://[fd00::1]/a", false, false},
		{"https://example.com", "https://[::ffff:10.0.0.1]/a", false, false},
		{"https://example.com", "https://169.254.169.254/a", false, false},
		{"https://example.com", "https://[::]/a", false, false},
		{"https://example.com", "https://0.0.0.0/a", false, false},
		// Private allows what is private, but nothing link-local.
		{"https://example.com", "https://10.0.0.1/a", true, true},
		{"https://example.com", "http://127.0.0.1/a", true, true},
		{"https://example.com", "https://169.254.169.254/a", true, false},
		{"https://example.com", "https://[fe80::1]/a", true, false},
		// What the origin says itself that it is, it may lead to.
		{"http://127.0.0.1:1", "http://localhost:2/a", false, true},
		{"http://localhost:1", "https://[::1]:2/a", false, true},
		{"http://localhost:1", "https://example.com/a", false, true},
		{"http://localhost:1", "https://10.0.0.1/a", false, false},
		{"https://10.0.0.1", "https://192.168.0.1/a", false, true},
		{"https://10.0.0.1", "https://127.0.0.1/a", false, false},
		{"https://169.254.0.1", "https://169.254.169.254/a", false, false},
	} {
		c := New(&Options{Private: test.private})
		origin := mustURL(t, test.origin)
		if test.origin == "" {
			origin = nil
		}
		if err := Check(test.address); origin == nil && (err == nil) != test.want {
			t.Errorf("Check(%s): %v", test.address, err)
		}
		_, err := c.check(mustURL(t, test.address), origin)
		if (err == nil) != test.want || err != nil && !errors.Is(err, ErrAddress) {
			t.Errorf("%s from %q, private %v: %v", test.address, test.origin, test.private, err)
		}
	}
}
