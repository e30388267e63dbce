package guard_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func reload(t *testing.T, g *guard.Guard, c *guard.Config) {
	t.Helper()
	if err := g.Reload(c); err != nil {
		t.Fatal(err)
	}
}

// Who is known on an open connection counts no longer than their credentials do.
func TestReloadOnOpenConnections(t *testing.T) {
	now := newClock()
	a, b := newAuthority(t, "1"), newAuthority(t, "2")
	s := newSocketSite(t, everyWay(a, true),
		&guard.Options{Now: now.Now, Authenticate: func(r *http.Request) (*guard.Principal, error) {
			if id := r.Header.Get("X-User"); id != "" {
				return &guard.Principal{ID: id, Kind: "user", Method: "key"}, nil
			}
			return nil, nil //nolint:nilnil // it has nothing to say
		}})
	peers := map[string]*farcall.Peer{
		"key":       s.dial(t, http.Header{"X-Api-Key": {goodKey}}),
		"token":     s.dial(t, http.Header{"Authorization": {"Bearer " + a.token(now.Now(), nil)}}),
		"anonymous": s.dial(t, nil),
		"program":   s.dial(t, http.Header{"X-User": {"ada"}}),
	}
	stdio := over(t, s.Guard, &guard.Conn{Transport: "stdio"})
	expectAll := func(what string, want map[string]any) {
		t.Helper()
		for name, p := range peers {
			expect(t, what+": "+name, ask(t, p, "who", nil), want[name])
		}
	}
	known := map[string]any{
		"key": "service ci by key", "token": "user " + issuer + "|alice by jwt",
		"anonymous": "anonymous anonymous by none", "program": "user ada by key",
	}
	expectAll("at first", known)
	expect(t, "stdio", ask(t, stdio, "who", nil), "process local by process")

	reload(t, s.Guard, everyWay(a, true))
	expectAll("the same again", known)

	c := everyWay(b, false) // another issuer's key, no anonymous principal, another API key
	c.Keys = []guard.Key{keyOf("ci", otherKey, "builder")}
	c.Stdio.Trust = new(bool)
	reload(t, s.Guard, c)
	expectAll("others", map[string]any{
		"key": unauthenticated, "token": unauthenticated,
		"anonymous": unauthenticated, "program": "user ada by key",
	})
	expect(t, "stdio", ask(t, stdio, "who", nil), unauthenticated)
	expect(t, "the new key", ask(t, s.dial(t, http.Header{"X-Api-Key": {otherKey}}), "who", nil),
		"service ci by key")

	c = everyWay(a, true)
	c.Keys[0].Roles = nil
	c.Allow = []guard.Rule{{Roles: []string{"builder"}, Calls: []string{"who"}}}
	reload(t, s.Guard, c)
	expectAll("other roles",
		map[string]any{"key": denied, "token": known["token"], "anonymous": denied, "program": denied})
	c = everyWay(a, true)
	c.JWT = nil
	reload(t, s.Guard, c)
	expect(t, "no tokens any more", ask(t, peers["token"], "who", nil), unauthenticated)
}

// A key that is another one now does not count, whatever its name.
func TestReloadOfSigners(t *testing.T) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	g := newGuard(t, &guard.Config{Signatures: []guard.Signer{{ID: "partner", Secret: secret}}}, nil)
	p := over(t, g, &guard.Conn{Transport: "tcp"})
	message := func() jsonrpc.Raw { return signed(t, "who", `{}`, "partner", "", []byte(secret)) }
	used := message()
	expect(t, "before", ask(t, p, "who", used), "service partner by signature")
	reload(t, g,
		&guard.Config{
			Signatures: []guard.Signer{
				{ID: "partner", Secret: secret},
				{ID: "x", Public: base64.StdEncoding.EncodeToString(public)},
			},
		})
	expect(t, "nonces stay", ask(t, p, "who", used), replayed)
	expect(t, "still", ask(t, p, "who", message()), "service partner by signature")
	reload(t, g,
		&guard.Config{
			Signatures: []guard.Signer{{ID: "partner", Public: base64.StdEncoding.EncodeToString(public)}},
		})
	expect(t, "another key", ask(t, p, "who", message()), badSignature)
	reload(t, g, &guard.Config{Anonymous: true})
	expect(t, "removed", ask(t, p, "who", message()), badSignature)
}

func TestReloadKeepsBuckets(t *testing.T) {
	now := midday()
	config := func(limit int) *guard.Config {
		c := &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}
		c.Limits.Rates = []guard.Rate{
			{Limit: 2, Every: 24 * time.Hour},
			{Calls: []string{"math/*"}, Limit: limit, Every: time.Hour},
		}
		return c
	}
	s := newSite(t, config(1), &guard.Options{Now: now.Now})
	s.call("math/add", "", asCI).wants(t, "service ci by key")
	reload(t, s.Guard, config(1))
	s.call("math/add", "", asCI).wants(t, limited)
	reload(t, s.Guard, config(5))
	s.call("math/add", "", asCI).wants(t, "service ci by key")
	s.call("math/add", "", asCI).wants(t, limited) // the quota of the day has counted all the time
}

func TestReloadOfWhatIsNotValid(t *testing.T) {
	s := newSite(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
	for name, c := range map[string]*guard.Config{
		"hash":   {Keys: []guard.Key{{ID: "x", Hash: "sha256:00"}}},
		"cedar":  {Cedar: "permit("},
		"issuer": {JWT: []guard.Issuer{{Issuer: issuer}}}, // no audience
		"none": {
			JWT: []guard.Issuer{{Issuer: issuer, Audience: []string{"x"}, Algorithms: []string{"none"}}},
		},
		"HMAC": {
			JWT: []guard.Issuer{{Issuer: issuer, Audience: []string{"x"}, Algorithms: []string{"HS256"}}},
		},
		"secret": {Signatures: []guard.Signer{{ID: "x", Secret: "short"}}},
		"file":   {CedarFiles: []string{filepath.Join(t.TempDir(), "none")}},
		"resource": func() *guard.Config {
			c := &guard.Config{}
			c.Resource.URL = "not a URL"
			return c
		}(),
		"rate": func() *guard.Config {
			c := &guard.Config{}
			c.Limits.Rates = []guard.Rate{{}}
			return c
		}(),
		"audit": func() *guard.Config {
			c := &guard.Config{}
			c.Audit.File = filepath.Join(t.TempDir(), "no", "audit")
			return c
		}(),
	} {
		c.Anonymous = true
		if err := s.Reload(c); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
	s.call("who", "", asCI).wants(t, "service ci by key")
	s.call("who", "").wants(t, unauthenticated)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s.Close() != nil {
		t.Error("the second Close fails")
	}
	if s.Reload(&guard.Config{}) == nil {
		t.Error("a closed guard gets another configuration")
	}
}

// Everything at once, for the race detector: no call is ever another's.
func TestManyAtOnce(t *testing.T) {
	a := newAuthority(t, "1")
	c := everyWay(a, true)
	c.Audit.File = filepath.Join(t.TempDir(), "audit")
	c.Limits.Rates = []guard.Rate{{Limit: 1_000_000}}
	c.Limits.Concurrent = 1000
	s := newSocketSite(t, c, nil)
	apart := *c // two guards cannot write one file
	apart.Audit.File += "-web"
	web := newSite(t, &apart, nil)
	token := bearer(a.token(time.Now(), nil))
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			p := s.dial(t, http.Header{"X-Api-Key": {goodKey}})
			for range 20 {
				expect(t, "ws", ask(t, p, "who", nil), "service ci by key")
				expect(t, "signed", ask(t, p, "who", signed(t, "who", `{}`, "partner", "", []byte(secret))),
					"service partner by signature")
				web.call("who", "").wants(t, "anonymous anonymous by none")
				web.call("who", "", token).wants(t, "user "+issuer+"|alice by jwt")
				web.call("who", fmt.Sprintf(`{"n":%d}`, n), bearer(otherKey)).wants(t, nil)
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			other := *c
			other.Deny = []guard.Rule{{Calls: []string{"nothing"}}}
			other.Allow = []guard.Rule{{Calls: []string{"*"}}}
			reload(t, s.Guard, &other)
			reload(t, s.Guard, c)
		}
	})
	wg.Wait()
}
