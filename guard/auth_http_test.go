package guard_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// everyWay is a configuration with each way of authentication.
func everyWay(a *authority, anonymous bool) *guard.Config {
	expired := keyOf("old", "an expired key")
	expired.Expires = time.Unix(1_000_000_000, 0)
	c := &guard.Config{
		Anonymous: anonymous,
		Keys:      []guard.Key{keyOf("ci", goodKey, "builder"), expired},
		JWT:       []guard.Issuer{{Issuer: issuer, JWKS: jwks(a), Audience: []string{audience}}},
		MTLS: []guard.Certificate{
			{SAN: "spiffe://example.org/agent/*", Kind: "agent"},
			{SAN: "*.svc.example.org"},
		},
		Signatures: []guard.Signer{{ID: "partner", Secret: secret}},
	}
	return c
}

func TestWhoCallsOverHTTP(t *testing.T) {
	now := newClock()
	a, untrusted := newAuthority(t, "1"), newAuthority(t, "1")
	token := func(changes map[string]any) string { return a.token(now.Now(), changes) }
	const ci, alice = "service ci by key", "user " + issuer + "|alice by jwt"
	for name, c := range map[string]struct {
		headers []string
		want    any // of both sites, unless it is nil: then there are no credentials
	}{
		"none":               {nil, nil},
		"key as bearer":      {[]string{bearer(goodKey)}, ci},
		"scheme in capitals": {[]string{"Authorization: BEARER " + goodKey}, ci},
		"key as X-API-Key":   {[]string{"X-API-Key: " + goodKey}, ci},
		"wrong key":          {[]string{bearer(otherKey)}, unauthenticated},
		"wrong X-API-Key":    {[]string{"X-API-Key: " + otherKey}, unauthenticated},
		"empty X-API-Key":    {[]string{"X-API-Key: "}, unauthenticated},
		"half a key":         {[]string{bearer(goodKey[:len(goodKey)-1])}, unauthenticated},
		"key and more":       {[]string{bearer(goodKey + " x")}, unauthenticated},
		"the hash of a key":  {[]string{bearer(hashOf(goodKey))}, unauthenticated},
		"expired key":        {[]string{bearer("an expired key")}, unauthenticated},
		"two keys":           {[]string{bearer(goodKey), bearer(goodKey)}, unauthenticated},
		"good and bad":       {[]string{bearer(goodKey), bearer(otherKey)}, unauthenticated},
		"both headers":       {[]string{bearer(goodKey), "X-API-Key: " + goodKey}, unauthenticated},
		"X-API-Key twice": {
			[]string{"X-API-Key: " + goodKey, "X-API-Key: " + goodKey},
			unauthenticated,
		},
		"key and signature":       {[]string{bearer(goodKey), "Signature: x=:eA==:"}, unauthenticated},
		"empty header":            {[]string{"Authorization: "}, unauthenticated},
		"scheme alone":            {[]string{"Authorization: Bearer"}, unauthenticated},
		"no scheme":               {[]string{"Authorization: " + goodKey}, unauthenticated},
		"basic":                   {[]string{"Authorization: Basic Y2k6eA=="}, unauthenticated},
		"token":                   {[]string{bearer(token(nil))}, alice},
		"token without a subject": {[]string{bearer(token(map[string]any{"sub": ""}))}, unauthenticated},
		"expired token": {
			[]string{bearer(token(map[string]any{"exp": now.Now().Add(-time.Hour).Unix()}))}, unauthenticated,
		},
		"token for others": {
			[]string{bearer(token(map[string]any{"aud": "https://other.example"}))},
			unauthenticated,
		},
		"token by others": {
			[]string{bearer(token(map[string]any{"iss": "https://evil.example"}))},
			unauthenticated,
		},
		"forged token":    {[]string{bearer(untrusted.token(now.Now(), nil))}, unauthenticated},
		"token with DPoP": {[]string{"Authorization: DPoP " + token(nil)}, unauthenticated},
		"signature alone": {[]string{"Signature: x=:eA==:"}, badSignature},
		"signature input": {[]string{`Signature-Input: x=("@method")`}, badSignature},
	} {
		t.Run(name, func(t *testing.T) {
			for _, anonymous := range []bool{false, true} {
				s := newSite(t, everyWay(a, anonymous), &guard.Options{Now: now.Now})
				want := c.want
				if want == nil {
					if want = any(unauthenticated); anonymous {
						want = "anonymous anonymous by none"
					}
				}
				got := s.call("who", "", c.headers...)
				got.wants(t, want)
				if _, refused := want.(jsonrpc.Code); !refused {
					continue
				}
				if got.status != http.StatusUnauthorized || got.header.Get("Www-Authenticate") == "" ||
					got.header.Get("Cache-Control") != "no-store" {
					t.Errorf("%d, %v", got.status, got.header)
				}
				for _, h := range c.headers {
					if _, value, _ := strings.Cut(h, ": "); len(value) > 12 &&
						strings.Contains(got.body, value[7:]) {
						t.Errorf("the answer repeats the credential: %s", got.body)
					}
				}
			}
		})
	}
}

// What the program says counts first, and its error is no permission.
func TestAuthenticateOfTheProgram(t *testing.T) {
	o := &guard.Options{Authenticate: func(r *http.Request) (*guard.Principal, error) {
		switch r.Header.Get("X-User") {
		case "":
			return nil, nil //nolint:nilnil // it has nothing to say
		case "mallory":
			return nil, errors.New("not this one")
		}
		return &guard.Principal{ID: r.Header.Get("X-User"), Kind: "user", Method: "header"}, nil
	}}
	s := newSite(t, &guard.Config{Anonymous: true, Keys: []guard.Key{keyOf("ci", goodKey)}}, o)
	s.call("who", "", "X-User: ada").wants(t, "user ada by header")
	s.call("who", "", "X-User: mallory").wants(t, unauthenticated)
	s.call("who", "", "X-User: mallory", bearer(goodKey)).wants(t, unauthenticated)
	s.call("who", "", bearer(goodKey)).wants(t, "service ci by key")
	s.call("who", "").wants(t, "anonymous anonymous by none")
}

// A token that is refused in the middle of its life, by the clock.
func TestTokenExpires(t *testing.T) {
	now := newClock()
	a := newAuthority(t, "1")
	s := newSite(t, everyWay(a, true), &guard.Options{Now: now.Now})
	token := bearer(a.token(now.Now(), nil))
	s.call("who", "", token).wants(t, "user "+issuer+"|alice by jwt")
	now.add(9 * time.Minute)
	s.call("who", "", token).wants(t, "user "+issuer+"|alice by jwt")
	now.add(2 * time.Minute) // the skew included
	s.call("who", "", token).wants(t, unauthenticated)
}

// Keys are found at the issuer, and a new one is when it has changed.
func TestTokensByKeysOfTheIssuer(t *testing.T) {
	now := newClock()
	first, second := newAuthority(t, "1"), newAuthority(t, "2")
	served := make(chan string, 1)
	served <- jwks(first)
	keys := serve(t, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		set := <-served
		served <- set
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(set))
	}))
	s := newSite(t,
		&guard.Config{
			JWT: []guard.Issuer{{Issuer: issuer, JWKS: keys.url, Audience: []string{audience}}},
		}, &guard.Options{Now: now.Now})
	alice := "user " + issuer + "|alice by jwt"
	s.call("who", "", bearer(first.token(now.Now(), nil))).wants(t, alice)
	<-served
	served <- jwks(second)
	s.call("who", "", bearer(second.token(now.Now(), nil))).wants(t, alice)
	s.call("who", "", bearer(first.token(now.Now(), nil))).wants(t, unauthenticated)
}

// Where keys cannot be had every request is refused, and no caller learns that their token was
// wrong.
func TestKeysCannotBeFetched(t *testing.T) {
	a := newAuthority(t, "1")
	keys := serve(t, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	s := newSite(t,
		&guard.Config{
			Anonymous: true,
			JWT:       []guard.Issuer{{Issuer: issuer, JWKS: keys.url, Audience: []string{audience}}},
		}, nil)
	got := s.call("who", "", bearer(a.token(time.Now(), nil)))
	got.wants(t, unavailable)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %v", got.status, got.header)
	}
}

// Anyone who guesses is asked to wait, and learns nothing else.
func TestCredentialGuessing(t *testing.T) {
	now := newClock()
	s := newSite(t, &guard.Config{Anonymous: true, Keys: []guard.Key{keyOf("ci", goodKey)}},
		&guard.Options{Now: now.Now})
	var statuses []int
	for range 120 {
		got := s.call("who", "", bearer(otherKey))
		statuses = append(statuses, got.status)
		if got.status == http.StatusTooManyRequests &&
			(got.header.Get("Retry-After") == "" || got.code != limited) {
			t.Fatalf("%v %s", got.header, got.body)
		}
	}
	if n := slices.Index(statuses, http.StatusTooManyRequests); n != 100 {
		t.Errorf("the first to be slowed down is %d", n)
	}
	now.add(time.Second)
	s.call("who", "", bearer(otherKey)).wants(t, unauthenticated)
	s.call("who", "").wants(t, "anonymous anonymous by none")
}

// A page asks whether it may ask, without credentials; nothing is called by that.
func TestPreflight(t *testing.T) {
	called := false
	g := newGuard(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
	s := serve(t, g, g.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called = true
		if guard.From(r.Context()) != nil {
			t.Error("a preflight has a principal")
		}
	})))
	r := s.request("who", "")
	r.Method = http.MethodOptions
	if got := s.do(r); got.status != http.StatusUnauthorized || called {
		t.Errorf("OPTIONS that is no preflight: %d", got.status)
	}
	r = s.request("who", "", "Access-Control-Request-Method: POST")
	r.Method = http.MethodOptions
	if got := s.do(r); got.status != http.StatusOK || !called {
		t.Errorf("%d", got.status)
	}
}
