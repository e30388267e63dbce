package guard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
)

// An introspector answers about tokens, over HTTP (RFC 7662).
type introspector struct {
	*httptest.Server
	mu      sync.Mutex
	revoked map[string]bool
	seen    []string
}

func newIntrospector(t *testing.T) *introspector {
	t.Helper()
	e := &introspector{revoked: map[string]bool{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.FormValue("token")
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen = append(e.seen, token)
		if _, secret, _ := r.BasicAuth(); secret != "s3cret-of-the-tests" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if e.revoked[token] || !strings.HasPrefix(token, "good") {
			fmt.Fprint(w, `{"active":false}`)
			return
		}
		fmt.Fprintf(w, `{"active":true,"sub":"alice","aud":%q,"jti":"7","roles":["builder"],"exp":%d}`,
			audience, time.Now().Add(time.Hour).Unix())
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *introspector) config() *guard.Config {
	i := guard.Issuer{Issuer: issuer, Audience: []string{audience}}
	c := &i.Introspection
	c.URL, c.ClientID, c.ClientSecret, c.Opaque, c.TTL = e.URL, "rpc", "s3cret-of-the-tests", true,
		time.Nanosecond
	return &guard.Config{JWT: []guard.Issuer{i}, Keys: []guard.Key{keyOf("ci", goodKey)}}
}

func (e *introspector) revoke(token string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revoked[token] = true
}

func (e *introspector) asked(token string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.seen, token)
}

// Opaque tokens count as long as their issuer says so; keys are not shown to it.
func TestOpaqueTokens(t *testing.T) {
	e := newIntrospector(t)
	s := newSite(t, e.config(), nil)
	s.call("who", "", bearer("good.1")).wants(t, "user "+issuer+"|alice by jwt")
	s.call("who", "", asCI).wants(t, "service ci by key")
	s.call("who", "", bearer("bad")).wants(t, unauthenticated)
	s.call("who", "", bearer("fk_another_"+otherKey)).wants(t, unauthenticated)
	s.call("who", "", "X-API-Key: mistyped").wants(t, unauthenticated)
	if e.asked(goodKey) || e.asked("fk_another_"+otherKey) || e.asked("mistyped") {
		t.Errorf("keys were sent to the issuer: %q", e.seen)
	}
	e.revoke("good.1")
	waitFor(t, "it is revoked", func() bool {
		return s.call("who", "", bearer("good.1")).code == unauthenticated
	})
	e.Close()
	got := s.call("who", "", bearer("good.2"))
	if got.status != http.StatusServiceUnavailable || got.code != unavailable ||
		got.header.Get("Retry-After") == "" {
		t.Errorf("it fails open, or not clearly: %d %s", got.status, got.body)
	}
}

// An address that shows many unknown tokens is refused before the issuer is asked; others are not.
func TestIntrospectionFlood(t *testing.T) {
	e := newIntrospector(t)
	s := newSite(t, e.config(), nil)
	statuses := map[int]int{}
	for n := range 300 {
		statuses[s.call("who", "", bearer(fmt.Sprint("bad ", n))).status]++
	}
	e.mu.Lock()
	asked := len(e.seen)
	e.mu.Unlock()
	if asked > 200 || statuses[http.StatusTooManyRequests] < 100 {
		t.Errorf("the issuer was asked %d times: %v", asked, statuses)
	}
	s.call("who", "", asCI).wants(t, "service ci by key")
}

// A connection ends when the issuer of its token revokes it.
func TestRevokedOnOpenConnection(t *testing.T) {
	e := newIntrospector(t)
	s := newSocketSiteOf(t, e.config(), nil, closing)
	peer := s.dial(t, http.Header{"Authorization": {"Bearer good.1"}})
	expect(t, "at first", ask(t, peer, "who", nil), "user "+issuer+"|alice by jwt")
	e.revoke("good.1")
	waitFor(t, "the connection has ended", func() bool {
		reload(t, s.Guard, e.config()) // looks at connections at once, not within 10 s
		select {
		case <-peer.Done():
			return true
		default: // what the issuer has said before counts for a moment
			return false
		}
	})
}

func TestIntrospectionSecretIsNotPrinted(t *testing.T) {
	e := newIntrospector(t)
	c := e.config()
	for _, v := range []any{c, *c, c.JWT, c.JWT[0], &c.JWT[0]} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, "s3cret") {
				t.Errorf("%s of %T: %s", verb, v, text)
			}
		}
	}
	if text := text(c.JWT); strings.Contains(text, "s3cret") {
		t.Error(text)
	}
}
