package guard_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
)

// A lock refuses credentials that are valid: by principal, key, jti and session, until it expires.
func TestLocks(t *testing.T) {
	now := newClock()
	a := newAuthority(t, "1")
	token := func(jti string) string { return bearer(a.token(now.Now(), map[string]any{"jti": jti})) }
	const ci, alice = "service ci by key", "user " + issuer + "|alice by jwt"
	for name, test := range map[string]struct {
		lock    guard.Lock
		headers []string
		want    any
	}{
		"principal":         {guard.Lock{Principal: "ci"}, []string{asCI}, unauthenticated},
		"another principal": {guard.Lock{Principal: "c"}, []string{asCI}, ci},
		"principal of an issuer": {
			guard.Lock{Principal: issuer + "|alice"},
			[]string{token("1")},
			unauthenticated,
		},
		"the same id elsewhere": {guard.Lock{Principal: "alice"}, []string{token("1")}, alice},
		"hash of a key":         {guard.Lock{Key: hashOf(goodKey)}, []string{asCI}, unauthenticated},
		"hash of another key":   {guard.Lock{Key: hashOf(otherKey)}, []string{asCI}, ci},
		"kid of a token":        {guard.Lock{Key: "1"}, []string{token("1")}, unauthenticated},
		"jti":                   {guard.Lock{JTI: "1"}, []string{token("1")}, unauthenticated},
		"another jti":           {guard.Lock{JTI: "1"}, []string{token("2")}, alice},
		"session": {
			guard.Lock{Session: "s1"},
			[]string{asCI, "Mcp-Session-Id: s1"},
			unauthenticated,
		},
		"another session":         {guard.Lock{Session: "s1"}, []string{asCI, "Mcp-Session-Id: s2"}, ci},
		"all anonymous callers":   {guard.Lock{Principal: "anonymous"}, nil, unauthenticated},
		"a lock that has expired": {guard.Lock{Principal: "ci", Expires: now.Now()}, []string{asCI}, ci},
		"one that will": {
			guard.Lock{Principal: "ci", Expires: now.Now().Add(time.Second)},
			[]string{asCI},
			unauthenticated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := everyWay(a, true)
			c.Locks = []guard.Lock{test.lock}
			s := newSite(t, c, &guard.Options{Now: now.Now})
			s.call("who", "", test.headers...).wants(t, test.want)
		})
	}
}

// Only the audit, and callers with the role of Options.Details, get to know of a lock and its
// reason.
func TestLockReason(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit")
	c := &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey), keyOf("ops", otherKey, "operator")}}
	c.Locks = []guard.Lock{{Principal: "ci", Reason: "INC-42"}, {Principal: "ops", Reason: "INC-43"}}
	c.Audit.File = audit
	s := newSite(t, c, &guard.Options{Details: "operator"})
	got := s.call("who", "", asCI)
	if got.status != http.StatusUnauthorized || strings.Contains(got.body, "lock") ||
		strings.Contains(got.body, "INC") {
		t.Errorf("%d %s", got.status, got.body)
	}
	got = s.call("who", "", bearer(otherKey))
	if got.status != http.StatusUnauthorized || got.data["reason"] != "locked: principal ops: INC-43" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(audit)
	if err != nil || !strings.Contains(string(text), "locked: principal ci: INC-42") ||
		!strings.Contains(string(text), `"principal":"ci"`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// A lock that is written to the file counts within a second, also on what is open already, and
// without a reload. A file that cannot be used changes nothing.
func TestLocksFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.jsonl")
	c := &guard.Config{
		Keys:      []guard.Key{keyOf("ci", goodKey), keyOf("ops", otherKey)},
		LocksFile: path,
	}
	if _, err := guard.New(c, nil); err == nil ||
		!strings.Contains(err.Error(), "cannot read the locks ") {
		t.Fatalf("a file that is missing: %v", err)
	}
	write := func(text string) {
		t.Helper()
		next := path + ".new" // renamed: it is never seen half written
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	write("# none yet\n")
	s := newSocketSiteOf(t, c, nil, closing)
	locked, other := s.dial(t, http.Header{"X-Api-Key": {goodKey}}),
		s.dial(t, http.Header{"X-Api-Key": {otherKey}})
	expect(t, "before", ask(t, locked, "who", nil), "service ci by key")
	write(`{"principal":"ci","reason":"INC-42"}` + "\n")
	ends(t, locked)
	expect(t, "another", ask(t, other, "who", nil), "service ops by key")
	for _, text := range []string{"{", `{"principal":"ci","jti":"x"}`, `{"who":"ci"}`} {
		write(text)
		s.refuses(t, goodKey)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	<-time.After(1500 * time.Millisecond)
	s.refuses(t, goodKey)
	write("")
	waitFor(t, "the lock is removed", func() bool { return s.lets(t, goodKey) })
}

// closing lets the guard close a connection.
func closing(c *guard.Conn, t farcall.Transport) { c.Close = t.Close }

func (s *socketSite) lets(t *testing.T, key string) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", key)
	return s.do(r).status != http.StatusUnauthorized
}

func (s *socketSite) refuses(t *testing.T, key string) {
	t.Helper()
	if s.lets(t, key) {
		t.Error("the lock counts no more")
	}
}

// A lock by a reload counts with the next message of what is open.
func TestLockReload(t *testing.T) {
	c := &guard.Config{
		Keys:       []guard.Key{keyOf("ci", goodKey)},
		Signatures: []guard.Signer{{ID: "partner", Secret: secret}},
	}
	s := newSocketSiteOf(t, c, nil, closing)
	peer := s.dial(t, http.Header{"X-Api-Key": {goodKey}})
	expect(t, "signed", ask(t, peer, "who", signed(t, "who", `{}`, "partner", "", []byte(secret))),
		"service partner by signature")
	other := *c
	other.Locks = []guard.Lock{{Key: "partner"}}
	reload(t, s.Guard, &other)
	expect(t, "signed by a locked key",
		ask(t, peer, "who", signed(t, "who", `{}`, "partner", "", []byte(secret))), unauthenticated)
	expect(t, "the connection itself", ask(t, peer, "who", nil), "service ci by key")
	other.Locks = append(other.Locks, guard.Lock{Principal: "ci"})
	reload(t, s.Guard, &other)
	ends(t, peer)
	other.Locks = []guard.Lock{{}}
	if err := s.Reload(&other); err == nil ||
		!strings.Contains(err.Error(), "locks[0]: a lock names one of principal, key, jti and session") {
		t.Error(err)
	}
}

func ends(t *testing.T, p *farcall.Peer) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(30 * time.Second): // what a sweep has missed, the next one finds in 10 s
		t.Fatal("the connection goes on")
	}
}

func waitFor(t *testing.T, what string, good func() bool) {
	t.Helper()
	for range 500 {
		if good() {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Fatal(what + ": not within 10 seconds")
}
