package mcpauth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
)

// An MCP server names the authorization server, and gets no workload's JWT that way: it
// counts for the audience that it names.
func TestAssertionOnlyForItsAudience(t *testing.T) {
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	for name, test := range map[string]struct {
		jwt, issuer string
		want        bool
	}{
		"for another": {jwt: jwt(`{"aud":"https://honest.example"}`)},
		"for others": {jwt: jwt(
			`{"aud":["https://honest.example","https://as.example.honest.example"]}`)},
		"without an audience": {jwt: jwt(`{"aud":[]}`)},
		"for nothing":         {jwt: jwt(`{"aud":""}`)},
		"no word":             {jwt: jwt(`{"iss":"https://as.example"}`)},
		"no JWT":              {jwt: "opaque"},
		"for it":              {jwt: jwt(`{"aud":"https://as.example"}`), want: true},
		"for it with slash":   {jwt: jwt(`{"aud":["x","https://as.example/"]}`), want: true},
		"for its endpoint":    {jwt: jwt(`{"aud":"https://as.example/token"}`), want: true},
		"the operator says":   {jwt: jwt(`{"aud":"https://honest.example"}`), issuer: asURL, want: true},
	} {
		w, _, as := simple(t)
		c := w.client(
			&Options{
				Grant: GrantAssertion, Issuer: test.issuer,
				Assertion: func(context.Context, string) (string, error) {
					return test.jwt, nil
				},
			})
		status, err := w.call(t.Context(), c)
		if got := err == nil && status == 200; got != test.want || len(as.forms) > 0 != test.want {
			t.Errorf("%s: %d, %v, %d token requests", name, status, err, len(as.forms))
		}
		if err != nil && strings.Contains(err.Error(), test.jwt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Anyone who logs out does so for all processes, and none puts the tokens back.
func TestLogoutCountsForAll(t *testing.T) {
	for name, o := range map[string]Options{
		"registered on its own": {},
		"registered by hand":    {ClientID: "x"},
	} {
		store := newMemory()
		o.Store = store
		w, _, as, c := signedIn(t, &o)
		as.metadata["revocation_endpoint"] = asURL + "/nothing" // the refresh token stays good
		o.Visit = nil
		other := w.client(&o)
		w.must(other)
		if err := c.Logout(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.pass(2 * time.Hour)
		if status, err := w.call(t.Context(), other); !errors.Is(err, ErrLogin) {
			t.Errorf("%s: %d, %v", name, status, err)
		}
		if text, err := store.Load(t.Context(), tokenKey(c.id)); text != nil || err != nil ||
			len(as.forms) > 0 {
			t.Errorf("%s: %d bytes are there again, %v, %d token requests", name, len(text), err,
				len(as.forms))
		}
	}
}

// lockSpy is a Store that sees who writes tokens without its lock.
type lockSpy struct {
	Store

	locked bool
	bare   int
}

func (s *lockSpy) Lock(context.Context, string) (func(), error) {
	s.locked = true
	return func() { s.locked = false }, nil
}

func (s *lockSpy) note(key string) {
	if strings.HasPrefix(key, "tokens ") && !s.locked {
		s.bare++
	}
}

func (s *lockSpy) Save(ctx context.Context, key string, value []byte) error {
	s.note(key)
	return s.Store.Save(ctx, key, value)
}

func (s *lockSpy) Delete(ctx context.Context, key string) error {
	s.note(key)
	return s.Store.Delete(ctx, key)
}

// A renewal in another process does not undo a login or a logout.
func TestTokensAreWrittenUnderTheLock(t *testing.T) {
	spy := &lockSpy{Store: newMemory()}
	w, _, _, c := signedIn(t, &Options{Store: spy})
	w.pass(time.Hour)
	w.must(c)
	if err := errors.Join(c.Login(t.Context()), c.Logout(t.Context())); err != nil || spy.bare > 0 ||
		spy.locked {
		t.Errorf("%v, %d without the lock", err, spy.bare)
	}
}

// A login at the same issuer may register again, as its port is taken: tokens of before are renewed
// as those of their owner.
func TestAnotherLoginRegistersAnew(t *testing.T) {
	for _, confident := range []bool{false, true} {
		w, _, as := simple(t)
		as.rotate, as.confident = true, confident
		if confident {
			as.metadata["token_endpoint_auth_methods_supported"] = []string{authBasic}
		}
		store := newMemory()
		w.must(w.client(&Options{Store: store, Visit: as.user(nil), Scopes: []string{"a"}}))
		if err := store.Save(t.Context(), registrationKey(asURL),
			[]byte(`{"client_id":"client-99","redirect":"http://127.0.0.1:7/callback"}`)); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Hour)
		w.must(w.client(&Options{Store: store}))
	}
}

// Tokens may be older than the options: their issuer does not get the client's secret because
// it has called another client the same.
func TestSecretOnlyForItsIssuer(t *testing.T) {
	store := newMemory()
	w, _, as, _ := signedIn(t, &Options{Store: store})
	c := w.client(&Options{
		Store: store, ClientID: "client-1", ClientSecret: "s3cr3t-of-another",
		Issuer: "https://honest.example",
	})
	if st, err := c.Status(t.Context()); err != nil || st.ClientID != "client-1" {
		t.Fatalf("%+v, %v", st, err)
	}
	w.pass(time.Hour)
	if status, err := w.call(t.Context(), c); err == nil {
		t.Errorf("%d", status)
	}
	if err := c.Logout(t.Context()); err != nil || len(as.forms) > 0 || len(as.revoked) > 0 {
		t.Errorf("%v, %v, %v", err, as.forms, as.revoked)
	}
}

// An authorization server that repeats the secret, which was sent in a header, has not told it to a
// log.
func TestRepeatedSecretIsHidden(t *testing.T) {
	const secret = "s3cr3t/&=+ of the client"
	w, _, as := simple(t)
	as.metadata["token_endpoint_auth_methods_supported"] = []string{authBasic}
	as.override = func(rw http.ResponseWriter, _ url.Values) bool {
		as.refuse(rw, "invalid_client",
			"not "+secret+", "+url.QueryEscape(secret)+", "+as.headers[0].Get("Authorization"))
		return true
	}
	_, err := w.call(t.Context(),
		w.client(&Options{Grant: GrantClient, ClientID: "x", ClientSecret: secret}))
	if err == nil || strings.Contains(err.Error(), "s3cr3t") ||
		strings.Count(err.Error(), "(secret)") != 3 {
		t.Errorf("%v", err)
	}
}

// A server that is never content has no other server asked for each call.
func TestRefusalsAskNobody(t *testing.T) {
	for name, o := range map[string]*Options{
		"with a user":    {},
		"without a user": {Grant: GrantClient, ClientID: "x", ClientSecret: "secret&of=x"},
	} {
		w, s, as := simple(t)
		as.metadata["token_endpoint_auth_methods_supported"] = []string{"none", authBasic}
		s.judge = func(*given) (int, string) { return 401, "Bearer" }
		o.Visit = as.user(nil)
		c := w.client(o)
		_, _ = w.call(t.Context(), c)
		_, _ = w.call(t.Context(), c)
		w.visits()
		for range 20 {
			if _, err := w.call(t.Context(), c); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		for _, seen := range w.visits() {
			if seen != "POST "+serverURL {
				t.Errorf("%s: %s", name, seen)
			}
		}
	}
}

// No server out there has the user's browser open what is on the user's machine.
func TestAuthorizationEndpointOnThisMachine(t *testing.T) {
	for _, endpoint := range []string{
		"http://127.0.0.1:631/delete", "http://localhost/x", "http://x.localhost/",
		"javascript:alert(1)//as.example", "file:///etc/passwd",
		"vscode://x/y", "https:as.example", "//as.example/a", "https://u:p@as.example/a",
		"data:text/html,x", "JAVASCRIPT://as.example/%0aalert(1)",
	} {
		w, _, as := simple(t)
		as.metadata["authorization_endpoint"] = endpoint
		c := w.client(
			&Options{Visit: func(
				_ context.Context, _ string, begin func(string) (string, error),
			) (*url.URL, error) {
				address, err := begin("http://127.0.0.1:5/callback")
				t.Errorf("%s: the browser opens %s, %v", endpoint, address, err)
				return nil, errors.New("no")
			}})
		if err := c.Login(t.Context()); err == nil {
			t.Errorf("%s: no error", endpoint)
		}
	}
}

// What foreigners name does not move the cursor of a terminal.
func TestForeignTextIsTame(t *testing.T) {
	const evil = "\u009b2J\u202e\x1b[2J"
	for name, spoil := range map[string]func(s *mcpServer, as *authServer){
		"challenge query": func(s *mcpServer, _ *authServer) {
			s.challenge = "Bearer resource_metadata=\"https://as.example/fail?\u009b2J\u202e\""
		},
		"challenge host": func(s *mcpServer, _ *authServer) {
			s.challenge = "Bearer resource_metadata=\"https://x\u009b2J\u202e.example/\""
		},
		"issuer": func(s *mcpServer, _ *authServer) {
			s.prm["/.well-known/oauth-protected-resource/mcp"]["authorization_servers"] = []string{
				"https://x\u009b2J\u202e.example",
			}
		},
		"issuer text": func(s *mcpServer, _ *authServer) {
			s.prm["/.well-known/oauth-protected-resource/mcp"]["authorization_servers"] = []string{evil}
		},
		"resource": func(s *mcpServer, _ *authServer) {
			s.prm["/.well-known/oauth-protected-resource/mcp"]["resource"] = evil
		},
		"token host": func(_ *mcpServer, as *authServer) {
			as.metadata["token_endpoint"] = "https://x\u009b2J\u202e.example/t"
		},
		"token endpoint": func(_ *mcpServer, as *authServer) { as.metadata["token_endpoint"] = evil },
		"registration": func(_ *mcpServer, as *authServer) {
			as.metadata["registration_endpoint"] = "https://\u009b2J\u202e/"
		},
		"refusal": func(_ *mcpServer, as *authServer) {
			as.override = func(w http.ResponseWriter, _ url.Values) bool {
				as.refuse(w, evil, evil)
				return true
			}
		},
		"authorization at": func(_ *mcpServer, as *authServer) {
			as.metadata["authorization_endpoint"] = "https://x\u009b2J.example/\u202e?\u202e"
		},
	} {
		w, s, as := simple(t)
		whole := w.hosts[asHost]
		w.hosts[asHost] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/fail" {
				rw.WriteHeader(http.StatusBadGateway)
				return
			}
			whole.ServeHTTP(rw, r)
		})
		spoil(s, as)
		c := w.client(
			&Options{Visit: func(
				_ context.Context, _ string, begin func(string) (string, error),
			) (*url.URL, error) {
				address, err := begin("http://127.0.0.1:5/callback")
				if strings.ContainsFunc(address, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%s: %q", name, address)
				}
				u, _ := url.Parse(address)
				if err == nil && as.override == nil && name != "token host" && name != "token endpoint" {
					err = errors.New("seen")
				}
				if err != nil {
					return nil, err
				}
				return &url.URL{
					Scheme: "http", Host: "127.0.0.1:5", Path: "/callback",
					RawQuery: url.Values{
						"code": {"x"}, "iss": {asURL},
						"state": {u.Query().Get("state")},
					}.Encode(),
				}, nil
			}})
		err := c.Login(t.Context())
		if err == nil || strings.ContainsFunc(err.Error(), func(r rune) bool {
			return !unicode.IsPrint(r)
		}) {
			t.Errorf("%s: %q", name, err)
		}
	}
}

// Where no user is asked, a server does not get more than the operator has named.
func TestScopesOfTheOperator(t *testing.T) {
	w, s, as := simple(t)
	as.metadata["token_endpoint_auth_methods_supported"] = []string{authBasic}
	s.challenge = `Bearer scope="a admin"`
	n := 0
	s.judge = func(*given) (int, string) {
		if n++; n == 1 {
			return 403, `Bearer error="insufficient_scope", scope="b"`
		}
		return 403, `Bearer error="insufficient_scope", scope="admin"`
	}
	c := w.client(
		&Options{
			Grant: GrantClient, ClientID: "x", ClientSecret: "secret&of=x",
			Scopes: []string{"a", "b"},
		})
	for range 3 {
		if _, err := w.call(t.Context(), c); err == nil {
			t.Error("it got more")
		}
	}
	for _, form := range as.forms {
		if form.Get("scope") != "a b" {
			t.Errorf("asked for %q", form.Get("scope"))
		}
	}
	if len(as.forms) != 1 {
		t.Errorf("%d token requests", len(as.forms))
	}
}
