package owner

import (
	"strings"
	"testing"
	"testing/quick"
)

// Two callers that differ in any part have different keys, however the parts are spelled.
func TestKeysDiffer(t *testing.T) {
	keys := map[Key]string{}
	for name, k := range map[string]Key{
		"key x":                 Principal("key", "user", "", "x"),
		"key x, an agent":       Principal("key", "agent", "", "x"),
		"mtls x":                Principal("mtls", "user", "", "x"),
		"jwt x":                 Principal("jwt", "user", "https://id.example.com", "x"),
		"id with the separator": Principal("jwt", "user", "", "https://id.example.com|x"),
		"id anonymous":          Principal("key", "anonymous", "", "anonymous"),
		"parts moved":           Principal("key", "use", "r", "x"),
		"named":                 Named("x"),
		"session":               Session("x", ""),
		"connection":            Connection("x", ""),
		"address":               Address("x"),
	} {
		if other, taken := keys[k]; taken {
			t.Errorf("%s and %s have one key", name, other)
		}
		keys[k] = name
	}
}

// join is injective: quick looks for two lists of parts with one text.
func TestJoinIsInjective(t *testing.T) {
	same := func(a, b, c, d string) bool {
		return (join('p', a, b) == join('p', c, d)) == (a == c && b == d)
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
	shift := func(a, b string) bool { return b == "" || join('p', a+b[:1], b[1:]) != join('p', a, b) }
	if err := quick.Check(shift, nil); err != nil {
		t.Error(err)
	}
}

func TestAddress(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:4711", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"::ffff:192.0.2.1", "192.0.2.1:1", true},
		{"[2001:db8::1]:80", "2001:db8::ffff", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::1", true},
		{"@", "/run/farcall.sock", false},
	} {
		if got := Address(tt.a) == Address(tt.b); got != tt.same {
			t.Errorf("Address(%q) == Address(%q) is %v", tt.a, tt.b, got)
		}
	}
}

// The group of an unauthenticated caller is its address, so that opening sessions wins nothing.
// What was stored of a key is the key, and what was not is none.
func TestStored(t *testing.T) {
	for k, returns := range map[Key]bool{
		Principal("jwt", "user", "i", "x"): true,
		Session("1", "192.0.2.1"):          true,
		Session("1", ""):                   true,
		Address("192.0.2.1"):               true,
		Connection("2", "192.0.2.1"):       false,
		{}:                                 false,
	} {
		group := ""
		if g := k.Group(); g != k {
			group = g.Text()
		}
		if got := Stored(k.Text(), group); got != k || got.Returns() != returns {
			t.Errorf("%v: stored %v, it returns: %v", k, got, got.Returns())
		}
	}
	for _, tt := range [][2]string{{"x", ""}, {"\xff", ""}, {"p", "x"}, {"", "p"}} {
		if got := Stored(tt[0], tt[1]); !got.IsZero() {
			t.Errorf("Stored(%q, %q): %v", tt[0], tt[1], got)
		}
	}
}

func TestGroup(t *testing.T) {
	a, b := Session("1", "192.0.2.1:1"), Connection("2", "192.0.2.1:2")
	if a.Group() != b.Group() || a.Group() != Address("192.0.2.1") {
		t.Error("a session and a connection of one address have different groups")
	}
	for _, k := range []Key{
		Principal("key", "user", "", "x"), Session("1", ""),
		Address("192.0.2.1"),
		{},
	} {
		if k.Group() != k {
			t.Errorf("%v is not its own group", k)
		}
	}
}

func TestIn(t *testing.T) {
	ada := Principal("key", "user", "", "ada")
	a, b := Session("1", "192.0.2.1").In(ada), Session("2", "").In(ada)
	if a == b || a.Group() != ada || b.Group() != ada {
		t.Error("two sessions of a principal are one, or have different groups")
	}
	if ada.In(ada) != ada || Session("1", "").In(Key{}) != Session("1", "") {
		t.Error("a key is a member of itself")
	}
}

func TestProperties(t *testing.T) {
	for _, tt := range []struct {
		k                              Key
		zero, exclusive, authenticated bool
		name                           string
	}{
		{Key{}, true, false, false, "none"},
		{Named(""), true, false, false, "none"},
		{Address(""), true, false, false, "none"},
		{Address("192.0.2.1"), false, false, false, "address-"},
		{Session("secret", "192.0.2.1"), false, true, false, "session-"},
		{Connection("7", ""), false, true, false, "connection-"},
		{Principal("key", "user", "", "ada"), false, true, true, "principal-"},
	} {
		if tt.k.IsZero() != tt.zero || tt.k.Exclusive() != tt.exclusive ||
			tt.k.Authenticated() != tt.authenticated {
			t.Errorf("%v: zero %v, exclusive %v, authenticated %v", tt.k, tt.k.IsZero(), tt.k.Exclusive(),
				tt.k.Authenticated())
		}
		if s := tt.k.String(); !strings.HasPrefix(s, tt.name) || strings.Contains(s, "secret") {
			t.Errorf("String is %q", s)
		}
	}
	if got := Or(Key{}, Address("x"), Named("y")); got != Address("x") {
		t.Errorf("Or is %v", got)
	}
}
