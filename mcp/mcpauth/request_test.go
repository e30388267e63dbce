package mcpauth

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// came is where the browser comes back to from an address of the authorization server.
func (a *authServer) came(t *testing.T, address string) *url.URL {
	t.Helper()
	back, err := a.user(nil)(t.Context(), "https://gateway.example/back",
		func(string) (string, error) { return address, nil })
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// A request that one process begins is finished by another one, which has the tokens then.
func TestFinishElsewhere(t *testing.T) {
	for _, bound := range []bool{false, true} {
		w, _, as := simple(t)
		if bound {
			as.metadata["dpop_signing_alg_values_supported"] = []string{"ES256"}
		}
		kept := newMemory()
		o := func() *Options {
			return &Options{
				Store: kept, RedirectURL: "https://gateway.example/back", Scopes: []string{"a"},
				DPoP: bound, DPoPRequired: bound,
			}
		}
		first, second := w.client(o()), w.client(o())
		address, request, err := first.Begin(t.Context(), "the state")
		if err != nil {
			t.Fatal(err)
		}
		there, err := url.Parse(address)
		if q := there.Query(); err != nil || q.Get("state") != "the state" ||
			q.Get("redirect_uri") != "https://gateway.example/back" || q.Get("code_challenge") == "" {
			t.Errorf("%s, %v", address, err)
		}
		if strings.Contains(address, "verifier") || len(as.forms) > 0 {
			t.Error("the verifier is shown, or a token was asked for")
		}
		if err := second.Finish(t.Context(), request, as.came(t, address)); err != nil {
			t.Fatal(err)
		}
		w.must(second)
		w.must(w.client(o()))
		if len(as.clients) != 1 || len(as.requests) != 1 {
			t.Errorf("%d registrations, %d visits", len(as.clients), len(as.requests))
		}
	}
}

// What does not answer the request gives no tokens, and is not sent to the authorization server.
func TestFinishRefuses(t *testing.T) {
	for name, edit := range map[string]func(back *url.URL, request []byte) (*url.URL, []byte){
		"another state": func(back *url.URL, request []byte) (*url.URL, []byte) {
			return back, []byte(strings.Replace(string(request), `"state":"s`, `"state":"x`, 1))
		},
		"another issuer": func(back *url.URL, request []byte) (*url.URL, []byte) {
			back.RawQuery = strings.Replace(back.RawQuery, "as.example", "evil.example", 1)
			return back, request
		},
		"damaged": func(back *url.URL, _ []byte) (*url.URL, []byte) { return back, []byte("{") },
		"no token": func(back *url.URL, request []byte) (*url.URL, []byte) {
			before, _, _ := strings.Cut(string(request), `"tokens":`)
			return back, []byte(before + `"tokens":{}}`)
		},
		"another server": func(back *url.URL, request []byte) (*url.URL, []byte) {
			return back, []byte(strings.Replace(string(request), `{"client":"`,
				`{"client":"https://other.example/`, 1))
		},
		"nowhere": func(_ *url.URL, request []byte) (*url.URL, []byte) { return nil, request },
	} {
		w, _, as := simple(t)
		c := w.client(&Options{RedirectURL: "https://gateway.example/back"})
		address, request, err := c.Begin(t.Context(), "state")
		if err != nil {
			t.Fatal(err)
		}
		back, request := edit(as.came(t, address), request)
		if err := c.Finish(t.Context(), request, back); err == nil || len(as.forms) > 0 {
			t.Errorf("%s: %v, %d token requests", name, err, len(as.forms))
		}
	}
	w, _, _ := simple(t)
	own := w.client(&Options{Grant: GrantClient, ClientID: "c", ClientSecret: "s", Issuer: asURL})
	if _, _, err := own.Begin(t.Context(), "state"); err == nil {
		t.Error("begun without a user")
	}
}

// markedStore is a Store of several machines.
type markedStore struct {
	Store
	log  []string
	fail error
}

func (s *markedStore) Load(ctx context.Context, key string) ([]byte, error) {
	if s.fail != nil {
		return nil, s.fail
	}
	return s.Store.Load(ctx, key)
}

func (s *markedStore) Lock(context.Context, string) (func(), error) {
	s.log = append(s.log, "lock")
	return func() { s.log = append(s.log, "unlock") }, nil
}

func (s *markedStore) Mark(context.Context, string) (func(), error) {
	s.log = append(s.log, "mark")
	return func() { s.log = append(s.log, "unused") }, s.fail
}

// A store knows of each refresh token that is about to be sent, and whether it was used.
func TestMark(t *testing.T) {
	dead := errors.New("connection reset")
	for name, at := range map[string]struct {
		answer func(w http.ResponseWriter) // nil: tokens
		broken error
		want   string
	}{
		"tokens": {want: "lock mark unlock"},
		"refused": {answer: func(w http.ResponseWriter) {
			answer(w, 400, map[string]string{"error": "temporarily_unavailable"})
		}, want: "lock mark unused unlock"},
		"failed": {answer: func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}, want: "lock mark unused unlock"},
		"no use": {answer: func(w http.ResponseWriter) {
			answer(w, 200, "x")
		}, want: "lock mark unlock"},
		"lost":    {broken: dead, want: "lock mark unlock"},
		"no dial": {broken: &net.OpError{Op: "dial", Err: dead}, want: "lock mark unused unlock"},
	} {
		s := &markedStore{Store: newMemory()}
		w, _, as, c := signedIn(t, &Options{Store: s})
		s.log = nil
		w.pass(time.Hour + time.Second)
		as.override = func(w http.ResponseWriter, _ url.Values) bool {
			if at.answer != nil {
				at.answer(w)
			}
			return at.answer != nil
		}
		if at.broken != nil {
			w.hosts[asHost] = broken{as, at.broken}
		}
		_, err := w.call(t.Context(), c)
		if got := strings.Join(s.log, " "); got != at.want || (err == nil) != (name == "tokens") {
			t.Errorf("%s: %q, not %q, %v", name, got, at.want, err)
		}
	}
}

// broken is an authorization server with a token endpoint that gives no answer.
type broken struct {
	http.Handler
	err error
}

// While the store fails, the access token serves until its end. The refresh token is not sent.
func TestStoreOfNodesFails(t *testing.T) {
	s := &markedStore{Store: newMemory()}
	w, _, as, c := signedIn(t, &Options{Store: s})
	s.fail = errors.New("no quorum")
	w.pass(time.Hour - 10*time.Second) // it would be renewed now
	w.must(c)
	w.pass(time.Minute)
	if _, err := w.call(t.Context(), c); !errors.Is(err, s.fail) || len(as.forms) > 0 {
		t.Errorf("%v, %d token requests", err, len(as.forms))
	}
	s.fail = nil
	w.must(c)
}
