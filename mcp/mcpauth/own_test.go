package mcpauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestClientCredentials(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	for name, test := range map[string]struct {
		methods []string
		options Options
		check   func(form url.Values, h http.Header) bool
	}{
		"basic": {
			[]string{"client_secret_post", "client_secret_basic"},
			Options{ClientID: "me", ClientSecret: "secret&of=me"},
			func(f url.Values, h http.Header) bool {
				return h.Get("Authorization") == "Basic bWU6c2VjcmV0JTI2b2YlM0RtZQ==" &&
					f.Get("client_secret") == ""
			},
		},
		"post": {
			[]string{"client_secret_post"},
			Options{ClientID: "me", ClientSecret: "secret&of=me"},
			func(f url.Values, h http.Header) bool {
				return h.Get("Authorization") == "" && f.Get("client_secret") == "secret&of=me" &&
					f.Get("client_id") == "me"
			},
		},
		"the default": {
			nil,
			Options{ClientID: "me", ClientSecret: "secret&of=me"},
			func(_ url.Values, h http.Header) bool {
				return strings.HasPrefix(h.Get("Authorization"), "Basic ")
			},
		},
		"key": {
			[]string{"private_key_jwt"},
			Options{ClientID: "me", Key: text},
			func(f url.Values, _ http.Header) bool {
				claims := decoded(f.Get("client_assertion"))
				return f.Get("client_assertion_type") == assertionType &&
					strings.Contains(claims, `"aud":"`+asURL+`"`) && strings.Contains(claims, `"sub":"me"`)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, s, as := simple(t)
			delete(as.metadata, "token_endpoint_auth_methods_supported")
			if test.methods != nil {
				as.metadata["token_endpoint_auth_methods_supported"] = test.methods
			}
			o := test.options
			o.Grant, o.Scopes = GrantClient, []string{"a"}
			c := w.client(&o)
			w.must(c)
			f := as.forms[0]
			if !test.check(f, as.headers[0]) || f.Get("grant_type") != "client_credentials" ||
				f.Get("scope") != "a" || f.Get("resource") != serverURL {
				t.Errorf("form %v, header %v", f, as.headers[0])
			}
			if len(s.requests) != 2 { // the probe, and the call itself
				t.Errorf("%d requests", len(s.requests))
			}
			w.pass(time.Hour) // a new one is got without the server's refusal
			w.must(c)
			if len(as.forms) != 2 || len(as.clients) > 0 {
				t.Errorf("%d token requests, %d registrations", len(as.forms), len(as.clients))
			}
		})
	}
}

// A secret is not sent to a server that takes secrets in no way that the client knows.
func TestUnknownClientAuthentication(t *testing.T) {
	w, _, as := simple(t)
	as.metadata["token_endpoint_auth_methods_supported"] = []string{"tls_client_auth"}
	c := w.client(&Options{Grant: GrantClient, ClientID: "me", ClientSecret: "very-secret"})
	if _, err := w.call(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "tls_client_auth") || len(as.forms) > 0 {
		t.Errorf("%v", err)
	}
}

// workloadJWT is for asURL.
var workloadJWT = "e30." + base64.RawURLEncoding.EncodeToString(
	[]byte(`{"aud":["https://other.example","`+asURL+`"]}`)) + ".c2ln"

func TestWorkloadIdentity(t *testing.T) {
	w, _, as := simple(t)
	asked := ""
	c := w.client(
		&Options{
			Grant: GrantAssertion,
			Assertion: func(_ context.Context, audience string) (string, error) {
				asked = audience
				return workloadJWT, nil
			},
		})
	w.must(c)
	if f := as.forms[0]; asked != asURL || f.Get("grant_type") != GrantAssertion ||
		f.Get("assertion") != workloadJWT || f.Get("resource") != serverURL || len(as.clients) > 0 {
		t.Errorf("for %q: %v", asked, f)
	}

	// A refusal is reported, and neither tried again at once nor in another way.
	w, _, as = simple(t)
	as.override = func(w http.ResponseWriter, form url.Values) bool {
		as.refuse(w, "invalid_grant", "not "+form.Get("assertion"))
		return true
	}
	c = w.client(
		&Options{Grant: GrantAssertion, Assertion: func(context.Context, string) (string, error) {
			return workloadJWT, nil
		}})
	for range 5 {
		if _, err := w.call(t.Context(), c); err == nil ||
			!strings.Contains(err.Error(), "invalid_grant: not (secret)") {
			t.Errorf("%v", err)
		}
	}
	if len(as.forms) != 1 {
		t.Errorf("%d token requests", len(as.forms))
	}
	w.pass(rest)
	_, _ = w.call(t.Context(), c)
	if len(as.forms) != 2 {
		t.Errorf("%d token requests after a while", len(as.forms))
	}
}

type callerKey struct{}

// No caller gets the tokens of another caller.
func TestExchange(t *testing.T) {
	w, s, as := simple(t)
	c := w.client(
		&Options{
			Grant: GrantExchange, Issuer: asURL, ClientID: "gateway", Audience: "mcp",
			Subject: func(ctx context.Context) (string, error) {
				subject, _ := ctx.Value(callerKey{}).(string)
				return subject, nil
			},
		})
	s.judge = func(g *given) (int, string) { return 200, g.subject }
	var calls sync.WaitGroup
	for i := range 50 {
		ctx := context.WithValue(t.Context(), callerKey{}, fmt.Sprint("caller-", i%5))
		calls.Go(func() {
			if status, err := w.call(ctx, c); err != nil || status != 200 {
				t.Errorf("%d, %v", status, err)
			}
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, serverURL, http.NoBody)
			if err := c.Authorize(ctx, r); err != nil {
				t.Error(err)
			}
			as.mu.Lock()
			defer as.mu.Unlock()
			if g := as.given[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]; g == nil ||
				g.subject != ctx.Value(callerKey{}) {
				t.Errorf("%v got the token %+v", ctx.Value(callerKey{}), g)
			}
		})
	}
	calls.Wait()
	if f := as.forms[0]; len(as.forms) != 5 || f.Get("grant_type") != GrantExchange ||
		f.Get("audience") != "mcp" || f.Get("resource") != serverURL ||
		f.Get("subject_token_type") != typeAccessToken {
		t.Errorf("%d token requests, the first: %v", len(as.forms), f)
	}
	if _, err := w.call(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "the caller has none") {
		t.Errorf("without a caller: %v", err)
	}
	for i := range maxSessions + 10 {
		if _, err := c.session(context.WithValue(t.Context(), callerKey{}, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.sessions) > maxSessions {
		t.Errorf("%d sessions", len(c.sessions))
	}
}

// The MCP server says who shall exchange tokens. Its word is not enough for the caller's.
func TestExchangeOnlyWhereTheTokenIsFrom(t *testing.T) {
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".x"
	}
	for name, test := range map[string]struct {
		subject, issuer string
		ok              bool
	}{
		"issued there":                {jwt(`{"iss":"` + asURL + `"}`), "", true},
		"issued elsewhere":            {jwt(`{"iss":"https://id.example"}`), "", false},
		"issued elsewhere, but named": {jwt(`{"iss":"https://id.example"}`), asURL, true},
		"opaque":                      {"opaque-token", "", false},
		"opaque, but named":           {"opaque-token", asURL, true},
		"no claims":                   {"a.b.c", "", false},
		"no issuer":                   {jwt(`{"iss":7}`), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, as := simple(t)
			c := w.client(
				&Options{
					Grant: GrantExchange, ClientID: "x", Issuer: test.issuer,
					Subject: func(context.Context) (string, error) {
						return test.subject, nil
					},
				})
			_, err := w.call(t.Context(), c)
			if (err == nil) != test.ok || len(as.forms) > 0 != test.ok ||
				err != nil && strings.Contains(err.Error(), test.subject) {
				t.Errorf("%v, %d token requests", err, len(as.forms))
			}
		})
	}
}

func TestEnterprise(t *testing.T) {
	w, _, as := simple(t)
	idp := w.newAS("idp.example")
	idp.override = func(w http.ResponseWriter, form url.Values) bool {
		answer(w, 200, map[string]any{
			"access_token": "id.jag." + form.Get("audience"),
			"token_type":   "N_A", "issued_token_type": typeIDJAG,
		})
		return true
	}
	as.metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic"}
	c := w.client(
		&Options{
			Grant: GrantEnterprise, ClientID: "me", ClientSecret: "secret&of=me",
			Scopes: []string{"a"}, Enterprise: &Enterprise{
				Issuer: idp.issuer, ClientID: "me-at-idp", IDToken: func(context.Context) (string, error) {
					return "the.id.token", nil
				},
			},
		})
	w.must(c)
	if f := idp.forms[0]; f.Get("subject_token") != "the.id.token" ||
		f.Get("requested_token_type") != typeIDJAG || f.Get("audience") != asURL ||
		f.Get("resource") != serverURL || f.Get("client_id") != "me-at-idp" {
		t.Errorf("the identity provider was asked with %v", f)
	}
	if f := as.forms[0]; f.Get("grant_type") != GrantAssertion ||
		f.Get("assertion") != "id.jag."+asURL || as.headers[0].Get("Authorization") == "" ||
		f.Get("scope") != "a" {
		t.Errorf("the authorization server was asked with %v", f)
	}
	if idp.headers[0].Get("Authorization") != "" {
		t.Error("the identity provider was sent the secret for another server")
	}
}

func TestDPoP(t *testing.T) {
	w, s, as := simple(t)
	as.metadata["dpop_signing_alg_values_supported"] = []string{"ES256"}
	as.nonce, as.rotate = "as-nonce", true
	store := newMemory()
	nonce := "rs-nonce-1"
	s.judge = func(*given) (int, string) {
		if proof := s.requests[len(s.requests)-1].Get("DPoP"); !strings.Contains(decoded(proof), nonce) {
			return 401, `DPoP error="use_dpop_nonce"`
		}
		return 200, ""
	}
	server := w.hosts["mcp.example"]
	w.hosts["mcp.example"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("DPoP-Nonce", nonce)
		server.ServeHTTP(rw, r)
	})
	c := w.client(&Options{DPoP: true, Visit: as.user(nil), Store: store, Scopes: []string{"a"}})
	w.must(c)
	nonce = "rs-nonce-2"
	w.must(c)
	if len(as.requests) != 1 || len(as.forms) != 2 {
		t.Errorf("%d visits, %d token requests", len(as.requests), len(as.forms))
	}
	seen := map[string]bool{}
	for _, h := range s.requests {
		if proof := h.Get("DPoP"); h.Get("Authorization") != "" &&
			(seen[proof] || !strings.HasPrefix(h.Get("Authorization"), "DPoP ")) {
			t.Errorf("%v", h)
		} else {
			seen[proof] = true
		}
	}
	// The key goes with the refresh token.
	w.pass(time.Hour)
	c = w.client(&Options{Store: store})
	w.must(c)
	if st, err := c.Status(t.Context()); err != nil || !st.Bound {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestDPoPRequired(t *testing.T) {
	for name, test := range map[string]struct {
		options  Options
		server   bool // wants it
		supports []string
		bearer   bool   // in spite of all
		want     string // kind of token; "" for an error
	}{
		"not wanted":              {Options{}, false, []string{"ES256"}, false, "Bearer"},
		"wanted":                  {Options{DPoP: true}, false, []string{"ES256"}, false, "DPoP"},
		"wanted, not supported":   {Options{DPoP: true}, false, nil, false, "Bearer"},
		"wanted, other algorithm": {Options{DPoP: true}, false, []string{"RS256"}, false, "Bearer"},
		"wanted, not given":       {Options{DPoP: true}, false, []string{"ES256"}, true, "Bearer"},
		"required":                {Options{DPoPRequired: true}, false, []string{"ES256"}, false, "DPoP"},
		"required, not supported": {Options{DPoPRequired: true}, false, nil, false, ""},
		"required, not given":     {Options{DPoPRequired: true}, false, []string{"ES256"}, true, ""},
		"the server wants it":     {Options{}, true, []string{"ES256"}, false, "DPoP"},
		"the server, not given":   {Options{}, true, []string{"ES256"}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, s, as := simple(t)
			if test.supports != nil {
				as.metadata["dpop_signing_alg_values_supported"] = test.supports
			}
			if test.server {
				s.prm[pathPRM]["dpop_bound_access_tokens_required"] = true
			}
			if test.bearer {
				as.override = func(w http.ResponseWriter, _ url.Values) bool {
					as.issue(w, &given{}, false, "")
					return true
				}
			}
			o := test.options
			o.Visit = as.user(nil)
			_, err := w.call(t.Context(), w.client(&o))
			kind, _, _ := strings.Cut(s.requests[len(s.requests)-1].Get("Authorization"), " ")
			if kind != test.want || (err == nil) != (test.want != "") {
				t.Errorf("%q, %v", kind, err)
			}
		})
	}
}

// What is configured is sent without being asked for, but only to servers that say so.
func TestServerWithoutAuthorization(t *testing.T) {
	w := newWorld(t)
	w.hosts["mcp.example"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/mcp" {
			http.NotFound(w, r)
		}
	})
	c := w.client(&Options{Grant: GrantClient, ClientID: "me", ClientSecret: "s"})
	w.must(c)
	w.visits()
	w.must(c)
	if seen := w.visits(); len(seen) != 1 {
		t.Errorf("the second call asks for %q", seen)
	}
	if err := c.Login(t.Context()); !errors.Is(err, errNowhere) {
		t.Errorf("login: %v", err)
	}
}
