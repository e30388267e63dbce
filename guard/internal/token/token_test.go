package token

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestVerify(t *testing.T) {
	s := newSigner(t, "ES256", "k")
	v := verifier(t, nil, s)
	raw := s.sign(nil, dict{"cnf": dict{"jkt": "thumb", "x5t#S256": "cert"}, "n": 1.5})
	got, err := v.Verify(t.Context(), raw)
	if err != nil {
		t.Fatal(err, errors.Unwrap(err))
	}
	want := &Token{
		Issuer: testIssuer, Subject: "alice", ClientID: "app", Scopes: []string{"read", "write"},
		Roles:   []string{"builder", "tester"},
		Expires: testNow.Add(10*time.Minute + defaultSkew), KeyThumbprint: "thumb", KeyID: "k",
		CertThumbprint: "cert", Claims: got.Claims,
	}
	if !reflect.DeepEqual(got, want) || got.Claims["n"] != 1.5 || got.Claims["sub"] != "alice" {
		t.Errorf("%+v", got)
	}
	if again, err := v.Verify(t.Context(), raw); err != nil || again != got {
		t.Errorf("it was not remembered: %v", err)
	}
	if all := fmt.Sprintf("%v %+v %#v %v", got, got, got, v.cache.entries); strings.Contains(all,
		raw) || strings.Contains(all, raw[len(raw)-40:]) {
		t.Error("the token is kept")
	}
}

func TestAlgorithms(t *testing.T) {
	all := func(i *Issuer) {
		for alg := range maps.Keys(algorithms) {
			i.Algorithms = append(i.Algorithms, alg)
		}
	}
	for alg := range algorithms {
		s := newSigner(t, alg, "k")
		good(t, verifier(t, all, s), s.sign(nil, nil))
		good(t, verifier(t, all, s), s.sign(dict{"kid": nil}, nil))
		v := verifier(t, nil, s)
		if strings.HasSuffix(alg, "512") || alg == "RS384" || alg == "PS384" || alg == "Ed25519" {
			bad(t, v, s.sign(nil, nil), "algorithm")
		} else {
			good(t, v, s.sign(nil, nil))
		}
	}
}

// What a token may be, by its claims. Those that are refused are in TestAttacks.
func TestClaims(t *testing.T) {
	s := newSigner(t, "EdDSA", "k")
	at := func(d time.Duration) float64 { return float64(testNow.Add(d).UnixNano()) / 1e9 }
	for name, test := range map[string]struct {
		header, claims dict
		change         func(*Issuer)
		reason         string
		want           func(*Token) bool
	}{
		"typ JWT":         {header: dict{"typ": "JWT"}},
		"typ absent":      {header: dict{"typ": nil}},
		"typ long":        {header: dict{"typ": "application/AT+JWT"}},
		"nonce of at+jwt": {claims: dict{"nonce": "n"}},
		"audiences":       {claims: dict{"aud": []any{"https://other.example", "https://rpc.example"}}},
		"skew of exp":     {claims: dict{"exp": at(-29 * time.Second)}},
		"skew of nbf":     {claims: dict{"nbf": at(29 * time.Second)}},
		"fraction": {
			claims: dict{"exp": at(500 * time.Millisecond), "iat": at(-500 * time.Millisecond)},
		},
		"no iat": {claims: dict{"iat": nil}},
		"own skew": {claims: dict{"exp": at(-10 * time.Second)}, change: func(i *Issuer) {
			i.Skew = time.Second
		}, reason: "expired"},
		"young": {change: func(i *Issuer) { i.MaxAge = time.Minute }},
		"old": {claims: dict{"iat": at(-91 * time.Second)}, change: func(i *Issuer) {
			i.MaxAge = time.Minute
		}, reason: "expired"},
		"age unknown": {claims: dict{"iat": nil}, change: func(i *Issuer) {
			i.MaxAge = time.Minute
		}, reason: "claims"},
		"scp list": {claims: dict{"scope": nil, "scp": []any{"a", "b"}}, want: func(t *Token) bool {
			return strings.Join(t.Scopes, "|") == "a|b"
		}},
		"scp string": {claims: dict{"scope": nil, "scp": "a b"}, want: func(t *Token) bool {
			return strings.Join(t.Scopes, "|") == "a|b"
		}},
		"scope empty": {claims: dict{"scope": ""}, want: func(t *Token) bool {
			return len(t.Scopes) == 0
		}},
		"scope number":     {claims: dict{"scope": 1}, reason: "claims"},
		"scope of numbers": {claims: dict{"scope": []any{1}}, reason: "claims"},
		"azp": {claims: dict{"client_id": nil, "azp": "z"}, want: func(t *Token) bool {
			return t.ClientID == "z"
		}},
		"no roles": {claims: dict{"roles": nil}, want: func(t *Token) bool {
			return t.Roles == nil
		}},
		"a role": {claims: dict{"roles": "x"}, want: func(t *Token) bool {
			return len(t.Roles) == 1 && t.Roles[0] == "x"
		}},
		"roles no list":    {claims: dict{"roles": dict{"admin": true}}, reason: "claims"},
		"roles of numbers": {claims: dict{"roles": []any{"a", 1}}, reason: "claims"},
		"roles inside": {
			claims: dict{"realm_access": dict{"roles": []any{"r"}}}, change: func(i *Issuer) {
				i.Roles = "realm_access.roles"
			},
			want: func(t *Token) bool { return len(t.Roles) == 1 && t.Roles[0] == "r" },
		},
		"roles with dots": {
			claims: dict{"https://a.example/roles": []any{"r"}},
			change: func(i *Issuer) { i.Roles = "https://a.example/roles" },
			want:   func(t *Token) bool { return len(t.Roles) == 1 },
		},
		"roles with dots inside": {
			claims: dict{"resource_access": dict{"my.app": dict{"roles": []any{"r"}}}},
			change: func(i *Issuer) {
				i.Roles = "resource_access.my.app.roles"
			},
			want: func(t *Token) bool { return len(t.Roles) == 1 },
		},
		"id": {claims: dict{"email": "a@b"}, change: func(i *Issuer) {
			i.ID = "email"
		}, want: func(t *Token) bool { return t.Subject == "a@b" }},
		"id missing": {change: func(i *Issuer) { i.ID = "email" }, reason: "claims"},
		"required": {
			claims: dict{"hd": "example.com", "v": true, "n": 7, "l": []any{"a", "b"}, "o": dict{"p": "q"}},
			change: func(i *Issuer) {
				i.Claims = map[string]string{"hd": "example.com", "v": "true", "n": "7", "l": "b", "o.p": "q"}
			},
		},
		"required missing": {change: func(i *Issuer) {
			i.Claims = map[string]string{"hd": "example.com"}
		}, reason: "claims"},
		"required other": {claims: dict{"hd": "example.com.evil"}, change: func(i *Issuer) {
			i.Claims = map[string]string{"hd": "example.com"}
		}, reason: "claims"},
		"required case": {claims: dict{"HD": "example.com"}, change: func(i *Issuer) {
			i.Claims = map[string]string{"hd": "example.com"}
		}, reason: "claims"},
		"required object": {claims: dict{"hd": dict{"example.com": 1}}, change: func(i *Issuer) {
			i.Claims = map[string]string{"hd": "example.com"}
		}, reason: "claims"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := s.sign(test.header, test.claims)
			got, err := verifier(t, test.change, s).Verify(t.Context(), raw)
			if test.reason != "" {
				refused(t, err, test.reason, raw)
			} else if err != nil || test.want != nil && !test.want(got) {
				t.Errorf("%+v %v: %v", got, err, errors.Unwrap(err))
			}
		})
	}
}

func TestNew(t *testing.T) {
	ok := Issuer{Issuer: testIssuer, Audience: []string{"a"}}
	for name, change := range map[string]func(*Issuer){
		"no name":              func(i *Issuer) { i.Issuer = "" },
		"no audience":          func(i *Issuer) { i.Audience = nil },
		"empty audience":       func(i *Issuer) { i.Audience = []string{""} },
		"none":                 func(i *Issuer) { i.Algorithms = []string{"none"} },
		"HMAC":                 func(i *Issuer) { i.Algorithms = []string{"RS256", "HS256"} },
		"negative":             func(i *Issuer) { i.Skew = -1 },
		"no URL":               func(i *Issuer) { i.Issuer = "kubernetes/serviceaccount" },
		"plain":                func(i *Issuer) { i.Issuer = "http://issuer.example" },
		"query":                func(i *Issuer) { i.Issuer += "?a" },
		"plain keys":           func(i *Issuer) { i.JWKS = "http://issuer.example/keys" },
		"no file":              func(i *Issuer) { i.JWKS = "/nowhere/keys.json" },
		"no key":               func(i *Issuer) { i.JWKS = `{"keys":[]}` },
		"a secret":             func(i *Issuer) { i.JWKS = `{"keys":[` + rfc7515A1Key + `]}` },
		"keys that are broken": func(i *Issuer) { i.JWKS = `{` },
	} {
		i := ok
		change(&i)
		if v, err := New([]Issuer{i}, nil); err == nil {
			v.Close()
			t.Errorf("%s passed", name)
		}
	}
	if _, err := New([]Issuer{ok, ok}, nil); err == nil {
		t.Error("twice the same passed")
	}
	ok.Issuer, ok.JWKS = "kubernetes/serviceaccount", `{"keys":[`+rfc7515A3Key+`]}`
	v, err := New([]Issuer{ok}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.Close()
	if v, err = New(nil, nil); err != nil {
		t.Fatal(err)
	}
	bad(t, v, rfc7515A2, "issuer")
}

// What is remembered ends with the token, and there is a bound.
func TestCache(t *testing.T) {
	s := newSigner(t, "EdDSA", "k")
	now := testNow
	v, err := New([]Issuer{{
		Issuer: testIssuer, JWKS: set(s),
		Audience: []string{"https://rpc.example"}, MaxAge: 5 * time.Minute,
	}},
		&Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	long, short := s.sign(nil, nil), s.sign(nil, dict{"exp": now.Unix() + 1})
	good(t, v, long)
	good(t, v, short)
	now = now.Add(31 * time.Second)
	good(t, v, long)
	bad(t, v, short, "expired")
	now = now.Add(4 * time.Minute)
	bad(t, v, long, "expired") // MaxAge

	c := newCache()
	raw := "unused"
	k := &key{}
	for n := range 2 * maxCached {
		c.put(uint64(n), &entry{raw: &raw, token: &Token{}, key: k, until: now.Add(time.Minute)}, now)
		if c.get(uint64(n), raw, now) == nil {
			t.Fatal("what was just put is not there")
		}
	}
	if len(c.entries) != maxCached {
		t.Errorf("%d entries", len(c.entries))
	}
	for hash := range c.entries { // two tokens that happen to have the same
		if c.get(hash, "of another", now) != nil {
			t.Fatal("a token was taken for another one")
		}
		break
	}
	// Those that have ended make room first, sooner or later.
	for n := range 20 * maxCached {
		c.put(uint64(n+2*maxCached),
			&entry{raw: &raw, token: &Token{}, key: k, until: now.Add(2 * time.Minute)},
			now.Add(90*time.Second))
	}
	for _, e := range c.entries {
		if !e.good(now.Add(90 * time.Second)) {
			t.Fatal("one that has ended is there still")
		}
	}
	k.gone.Store(true)
	if c.get(22*maxCached-1, raw, now) != nil {
		t.Error("one by a key that is gone counts")
	}
	// What was refused is not remembered.
	now = testNow
	for n := range 10 {
		bad(t, v, s.sign(nil, dict{"sub": "", "jti": n}), "claims")
	}
	if n := len(v.cache.entries); n != 2 {
		t.Errorf("%d entries", n)
	}
}

func TestConcurrent(t *testing.T) {
	s := newSigner(t, "EdDSA", "k")
	v := verifier(t, nil, s)
	tokens := make([]string, 20)
	for n := range tokens {
		tokens[n] = s.sign(nil, dict{"jti": n})
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range 200 {
				good(t, v, tokens[n%len(tokens)])
			}
		})
	}
	all.Wait()
}

func TestAllocs(t *testing.T) {
	s := newSigner(t, "ES256", "k")
	v := verifier(t, nil, s)
	raw := s.sign(nil, nil)
	good(t, v, raw)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { v.Verify(ctx, raw) }); n > 1 {
		t.Errorf("%v allocations for a token that is known", n)
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, alg := range []string{"cached", "RS256", "ES256", "EdDSA"} {
		s := newSigner(b, strings.Replace(alg, "cached", "RS256", 1), "k")
		v := verifier(b, nil, s)
		raw := s.sign(nil, nil)
		b.Run(alg, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if alg != "cached" {
					clear(v.cache.entries)
				}
				if _, err := v.Verify(b.Context(), raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkVerifyCachedParallel(b *testing.B) {
	s := newSigner(b, "RS256", "k")
	v := verifier(b, nil, s)
	raw := s.sign(nil, nil)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			v.Verify(b.Context(), raw)
		}
	})
}
