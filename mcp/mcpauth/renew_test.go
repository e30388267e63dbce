package mcpauth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A refresh token is used as anyone who has got it, also by another process.
func TestRefreshAsWhom(t *testing.T) {
	const document = "https://client.example/metadata.json"
	for name, test := range map[string]struct {
		options Options
		prepare func(w *world, s *mcpServer, as *authServer)
		client  string // in the form; "" for HTTP Basic
	}{
		"on its own": {Options{}, func(*world, *mcpServer, *authServer) {}, "client-1"},
		"on its own, with a secret": {Options{}, func(_ *world, _ *mcpServer, as *authServer) {
			as.confident, as.metadata["token_endpoint_auth_methods_supported"] = true,
				[]string{"client_secret_basic"}
		}, ""},
		"by hand": {
			Options{ClientID: "me", ClientSecret: "secret&of=me"},
			func(_ *world, _ *mcpServer, as *authServer) {
				as.metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic"}
			}, "",
		},
		"by document": {Options{MetadataURL: document}, func(_ *world, _ *mcpServer, as *authServer) {
			as.metadata["client_id_metadata_document_supported"] = true
		}, document},
		"at the server's own host": {Options{}, func(w *world, s *mcpServer, as *authServer) {
			s.prm, as.at, as.iss = nil, nil, ""
			w.hosts["mcp.example"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/mcp" {
					s.ServeHTTP(rw, r)
					return
				}
				as.ServeHTTP(rw, r)
			})
		}, "client-1"},
	} {
		t.Run(name, func(t *testing.T) {
			w, s, as := simple(t)
			as.rotate = true
			test.prepare(w, s, as)
			o := test.options
			o.Store, o.Visit, o.Scopes = newMemory(), as.user(nil), []string{"a", "offline_access"}
			if as.at == nil {
				// Nothing says that it supports them, so the client leaves offline_access to its user.
				o.Scopes = []string{"offline_access"}
			}
			w.must(w.client(&o))
			again := test.options
			again.Store = o.Store
			c := w.client(&again)
			for range 2 {
				w.pass(2 * time.Hour)
				w.must(c)
			}
			if len(as.forms) != 3 || len(as.requests) != 1 {
				t.Fatalf("%d token requests, %d visits", len(as.forms), len(as.requests))
			}
			if got := as.forms[2].Get("client_id"); got != test.client ||
				test.client == "" && as.headers[2].Get("Authorization") == "" {
				t.Errorf("as %q", got)
			}
		})
	}
}

// Without its registration a refresh token is of no use.
func TestRefreshWithoutRegistration(t *testing.T) {
	for name, lose := range map[string]func(store Store, as *authServer) error{
		"here": func(store Store, as *authServer) error { // as versions before kept it
			text, err := store.Load(t.Context(), tokenKey(serverURL))
			before, after, ok := strings.Cut(string(text), `,"client":{`)
			_, after, _ = strings.Cut(after, "}")
			if err != nil || !ok {
				return fmt.Errorf("%s, %w", text, err)
			}
			return errors.Join(store.Save(t.Context(), tokenKey(serverURL), []byte(before+after)),
				store.Delete(t.Context(), registrationKey(as.issuer)))
		},
		"there": func(_ Store, as *authServer) error { clear(as.refresh); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			store := newMemory()
			w, _, as, _ := signedIn(t, &Options{Store: store})
			if err := lose(store, as); err != nil {
				t.Fatal(err)
			}
			c := w.client(&Options{Store: store, Scopes: []string{"a"}, Visit: as.user(nil)})
			w.pass(time.Hour)
			w.must(c)
			if len(as.requests) != 1 {
				t.Errorf("%d visits", len(as.requests))
			}
		})
	}
}

// Where there is no refresh token the user is asked again, but not at once.
func TestRefusedLater(t *testing.T) {
	w, _, as := simple(t)
	c := w.client(&Options{Visit: as.user(nil)})
	w.must(c)
	clear(as.given)
	if _, err := w.call(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "has just issued") || len(as.requests) != 1 {
		t.Errorf("at once: %v, %d visits", err, len(as.requests))
	}
	w.pass(settle)
	w.must(c)
	if len(as.requests) != 2 {
		t.Errorf("%d visits", len(as.requests))
	}
	w.pass(time.Hour)
	w.must(c)
	if len(as.requests) != 3 {
		t.Errorf("after the end: %d visits", len(as.requests))
	}
}

// What fails for now is neither taken for missing nor tried in other ways.
func TestMetadataFailsForNow(t *testing.T) {
	for _, host := range []string{"mcp.example", asHost} {
		w, _, as := simple(t)
		whole := w.hosts[host]
		broken := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/mcp" {
				whole.ServeHTTP(rw, r)
				return
			}
			rw.WriteHeader(http.StatusServiceUnavailable)
		})
		w.hosts[host] = broken
		c := w.client(&Options{Visit: as.user(nil)})
		if _, err := w.call(t.Context(), c); err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("%s: %v", host, err)
		}
		for _, seen := range w.visits() {
			if strings.HasPrefix(seen, "POST ") && seen != "POST "+serverURL {
				t.Errorf("%s: %s", host, seen)
			}
		}
		for range 5 { // nor asked by each call
			if _, err := w.call(t.Context(), c); err == nil || !strings.Contains(err.Error(), "503") {
				t.Errorf("%s: %v", host, err)
			}
		}
		if seen := w.visits(); len(seen) > 5 {
			t.Errorf("%s: %q", host, seen)
		}
		w.pass(pause)
		w.hosts[host] = whole
		w.must(c)
	}
}

func TestStepUpWithoutScopes(t *testing.T) {
	w, s, as := simple(t)
	s.judge = func(*given) (int, string) {
		return http.StatusForbidden, `Bearer error="insufficient_scope"`
	}
	if status, err := w.call(t.Context(), w.client(&Options{Visit: as.user(nil)})); status !=
		http.StatusForbidden || err != nil || len(as.requests) != 1 {
		t.Errorf("%d, %v, %d visits", status, err, len(as.requests))
	}
}

// The port of the last time is asked for first: the client is registered with it.
func TestRedirectOfBefore(t *testing.T) {
	w, _, as := simple(t)
	store := newMemory()
	w.must(w.client(&Options{Visit: as.user(nil), Store: store}))
	as.n = 10
	for before, want := range map[string]int{"": 1, "https://client.example/callback": 2} {
		if err := w.client(&Options{Visit: as.user(nil), Store: store, RedirectURL: before}).Login(
			t.Context()); err != nil {
			t.Fatal(err)
		}
		if before != "" && len(as.clients) != want {
			t.Errorf("%q: %d registrations", before, len(as.clients))
		}
	}
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"http://127.0.0.1:5/callback", "http://127.0.0.1/callback", true},
		{"http://127.0.0.1:5/callback", "http://127.0.0.1:0/callback", true},
		{"http://127.0.0.1:5/callback", "http://127.0.0.1:6/callback", false},
		{"http://127.0.0.1:5/callback", "http://localhost/callback", false},
		{"http://127.0.0.1:5/callback", "http://127.0.0.1/other", false},
		{"https://x/y", "https://x/y", true},
		{":", "http://127.0.0.1/", false},
	} {
		if sameButPort(test.a, test.b) != test.same {
			t.Errorf("%s and %s", test.a, test.b)
		}
	}
}

// The answer to the attempt of before does not count for the next one, and begin counts once.
func TestBeginCountsOnce(t *testing.T) {
	w, _, as := simple(t)
	c := w.client(nil)
	a := &attempt{
		as: &server{
			Issuer: asURL, AuthorizationEndpoint: asURL + "/authorize",
			RegistrationEndpoint: asURL + "/register",
		}, state: "s",
	}
	if _, err := c.begin(t.Context(), a, &tokens{}, "http://evil.example/callback"); err == nil {
		t.Error("a redirect URL of another")
	}
	if _, err := c.begin(t.Context(), a, &tokens{}, "http://127.0.0.1:1/callback"); err == nil {
		t.Error("it begins twice")
	}
	if _, err := a.code(nil); err == nil {
		t.Error("the browser did not come back")
	}
	if len(as.clients) > 0 {
		t.Error("it has registered")
	}
	if _, err := c.Status(t.Context()); err != nil || errors.Is(err, ErrLogin) {
		t.Error(err)
	}
}
