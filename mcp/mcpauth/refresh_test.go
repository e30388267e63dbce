package mcpauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// signedIn is a client with an access token and a refresh token; its requests are not counted.
func signedIn(t *testing.T, o *Options) (*world, *mcpServer, *authServer, *Client) {
	t.Helper()
	w, s, as := simple(t)
	as.rotate = true
	if o == nil {
		o = &Options{}
	}
	if o.Scopes == nil {
		o.Scopes = []string{"a"}
	}
	o.Visit = as.user(nil)
	c := w.client(o)
	w.must(c)
	as.forms, as.requests = nil, nil
	w.visits()
	return w, s, as, c
}

func TestRefreshIsOneAtATime(t *testing.T) {
	w, _, as, c := signedIn(t, nil)
	for round := 1; round <= 3; round++ { // each time with the refresh token of the last
		w.pass(time.Hour)
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				if status, err := w.call(t.Context(), c); err != nil || status != 200 {
					t.Errorf("%d, %v", status, err)
				}
			})
		}
		calls.Wait()
		if len(as.forms) != round || len(as.requests) > 0 {
			t.Fatalf("round %d: %d token requests, %d visits", round, len(as.forms), len(as.requests))
		}
	}
}

// Calls without a token that are all refused ask the user once.
func TestLoginIsOneAtATime(t *testing.T) {
	w, _, as := simple(t)
	c := w.client(&Options{Visit: as.user(nil)})
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			if status, err := w.call(t.Context(), c); err != nil || status != 200 {
				t.Errorf("%d, %v", status, err)
			}
		})
	}
	calls.Wait()
	if len(as.requests) != 1 || len(as.clients) != 1 {
		t.Errorf("%d visits, %d registrations", len(as.requests), len(as.clients))
	}
}

func TestRefreshAfterRefusal(t *testing.T) {
	w, _, as, c := signedIn(t, nil)
	w.pass(2 * settle)
	clear(as.given) // revoked
	w.must(c)
	if len(as.forms) != 1 || as.forms[0].Get("grant_type") != "refresh_token" ||
		as.forms[0].Get("resource") != serverURL || len(as.requests) > 0 {
		t.Errorf("token requests %v, %d visits", as.forms, len(as.requests))
	}
}

func TestRefreshTokenIsKeptUnlessRotated(t *testing.T) {
	w, _, as, c := signedIn(t, nil)
	as.rotate = false
	for range 3 {
		w.pass(time.Hour)
		w.must(c)
	}
	if len(as.forms) != 3 || as.forms[0].Get("refresh_token") != as.forms[2].Get("refresh_token") ||
		len(as.requests) > 0 {
		t.Errorf("token requests %v, %d visits", as.forms, len(as.requests))
	}
}

func TestRefreshFailsForGood(t *testing.T) {
	store := newMemory()
	w, _, as, c := signedIn(t, &Options{Store: store})
	w.pass(time.Hour)
	clear(as.refresh)
	w.must(c) // the user signs in again
	if len(as.forms) != 2 || len(as.requests) != 1 {
		t.Fatalf("token requests %v, %d visits", as.forms, len(as.requests))
	}
	w.pass(time.Hour)
	clear(as.refresh)
	c = w.client(&Options{Store: store})
	if _, err := w.call(t.Context(), c); !errors.Is(err, ErrLogin) {
		t.Errorf("without a user: %v", err)
	}
	if text, err := store.Load(t.Context(), tokenKey(c.id)); text != nil || err != nil {
		t.Errorf("the store has still tokens, %v", err)
	}
}

func TestRefreshFailsForNow(t *testing.T) {
	w, _, as, c := signedIn(t, nil)
	as.override = func(w http.ResponseWriter, _ url.Values) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	w.pass(time.Hour - 10*time.Second)
	w.must(c) // the token lives still
	w.pass(10 * time.Second)
	if _, err := w.call(t.Context(), c); err == nil || !strings.Contains(err.Error(), "503") ||
		len(as.requests) > 0 {
		t.Errorf("%v, %d visits", err, len(as.requests))
	}
	as.override = nil
	w.must(c)
}

// No call waits for a refresh as long as the token is good.
func TestRefreshInTimeHoldsNobodyUp(t *testing.T) {
	w, _, as, c := signedIn(t, nil)
	w.pass(time.Hour - 10*time.Second)
	if err := c.own.lock(t.Context()); err != nil { // another refreshes
		t.Fatal(err)
	}
	w.must(c)
	if len(as.forms) > 0 {
		t.Errorf("token requests %v", as.forms)
	}
	w.pass(10 * time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.call(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("who waits does not give up: %v", err)
	}
	c.own.unlock()
	w.must(c)
}

// Another process may have used the refresh token, which counts once.
func TestRefreshSeesOtherProcesses(t *testing.T) {
	store := newMemory()
	w, _, as, c := signedIn(t, &Options{Store: store})
	other := w.client(&Options{Store: store})
	w.pass(time.Hour)
	w.must(other)
	w.must(c)
	if len(as.forms) != 1 {
		t.Errorf("%d token requests", len(as.forms))
	}
}

// Who gives up while a refresh token is being used does not lose what it brings.
func TestRefreshOutlivesItsCaller(t *testing.T) {
	w, _, as, c := signedIn(t, nil)
	w.pass(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	as.override = func(http.ResponseWriter, url.Values) bool { cancel(); return false }
	if _, err := w.call(ctx, c); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.must(c)
	if len(as.forms) != 1 {
		t.Errorf("%d token requests", len(as.forms))
	}
}

func TestRefreshAtTheIssuerOnly(t *testing.T) {
	w, s, as, c := signedIn(t, nil)
	evil := w.newAS("evil.example")
	s.prm[pathPRM]["authorization_servers"] = []string{evil.issuer}
	w.pass(time.Hour)
	w.must(c)
	if len(evil.forms) > 0 || len(as.forms) != 1 {
		t.Errorf("the refresh token went to %v", evil.forms)
	}
}

func TestShortLives(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, test := range []struct {
		life, after int64
		valid       bool
	}{{3600, 3569, true}, {3600, 3571, false}, {8, 5, true}, {8, 7, false}, {0, 1 << 30, true}} {
		tok := &tokens{Access: "x", Made: now.Unix()}
		if test.life > 0 {
			tok.Expires = now.Unix() + test.life
		}
		if got := tok.valid(now.Add(time.Duration(test.after) * time.Second)); got != test.valid {
			t.Errorf("of %d seconds, after %d: %v", test.life, test.after, got)
		}
	}
}

// A server that takes no token must not open browsers for ever.
func TestRefusingForEverEnds(t *testing.T) {
	for name, judge := range map[string]func(n int) (int, string){
		"401":                func(int) (int, string) { return 401, `Bearer error="invalid_token"` },
		"401 without a word": func(int) (int, string) { return 401, "" },
		"the same scope": func(int) (int, string) {
			return 403, `Bearer error="insufficient_scope", scope="a"`
		},
		"always another one": func(n int) (int, string) {
			return 403, fmt.Sprintf(`Bearer error="insufficient_scope", scope="s%d"`, n)
		},
		"another one, by 401": func(n int) (int, string) {
			return 401, fmt.Sprintf(`Bearer error="insufficient_scope", scope="s%d"`, n)
		},
		"nonces": func(int) (int, string) { return 401, `DPoP error="use_dpop_nonce"` },
	} {
		t.Run(name, func(t *testing.T) {
			w, s, as := simple(t)
			s.challenge = `Bearer scope="a"`
			n := 0
			s.judge = func(*given) (int, string) { n++; return judge(n) }
			c := w.client(&Options{Visit: as.user(nil)})
			for range 10 {
				if status, err := w.call(t.Context(), c); status == 200 && err == nil {
					t.Fatal("the server is content")
				}
			}
			if len(as.requests) > maxSteps+1 {
				t.Errorf("%d visits", len(as.requests))
			}
		})
	}
}

func TestStepUp(t *testing.T) {
	w, s, as := simple(t)
	s.challenge = `Bearer scope="read"`
	s.judge = func(g *given) (int, string) {
		if !strings.Contains(g.scope, "write") {
			return 403, `Bearer error="insufficient_scope", scope="write"`
		}
		return 200, ""
	}
	c := w.client(&Options{Visit: as.user(nil)})
	w.must(c)
	if len(as.requests) != 2 || as.requests[1].Get("scope") != "read offline_access write" {
		t.Errorf("%v", as.requests)
	}
	// Another 403 is the server's last word.
	s.judge = func(*given) (int, string) { return 403, `Bearer error="access_denied"` }
	if status, err := w.call(t.Context(), c); status != 403 || err != nil || len(as.requests) != 2 {
		t.Errorf("%d, %v, %d visits", status, err, len(as.requests))
	}
	// Those who come too late take what others have got.
	late := challenged(t, http.StatusForbidden, `Bearer error="insufficient_scope", scope="more"`,
		"Bearer old")
	defer late.Body.Close()
	if again, err := c.Challenge(t.Context(), late); !again || err != nil || len(as.requests) != 2 {
		t.Errorf("%v, %v", again, err)
	}
}

func TestScopes(t *testing.T) {
	for name, test := range map[string]struct {
		challenge string
		metadata  any
		options   []string
		supports  []string
		want      string
	}{
		"of the challenge":         {`Bearer scope="x y"`, []string{"m"}, nil, nil, "x y"},
		"of the metadata":          {`Bearer realm="z"`, []string{"m", "n"}, nil, nil, "m n"},
		"none":                     {`Bearer realm="z"`, nil, nil, []string{"offline_access"}, ""},
		"of the options":           {`Bearer realm="z"`, []string{"m"}, []string{"o"}, nil, "o"},
		"of options and challenge": {`Bearer scope="x"`, []string{"m"}, []string{"o"}, nil, "o x"},
		"offline": {
			`Bearer scope="x"`, nil, nil,
			[]string{"offline_access"},
			"x offline_access",
		},
		"offline, not supported": {
			`Bearer realm="x"`,
			[]string{"m", "offline_access"},
			nil,
			[]string{"m"},
			"m",
		},
		"empty":    {`Bearer scope=""`, []string{"m"}, nil, nil, "m"},
		"nonsense": {"Bearer scope=\"x\x01 \xff y\"", nil, nil, nil, "y"},
	} {
		t.Run(name, func(t *testing.T) {
			w, s, as := simple(t)
			s.challenge = test.challenge
			if test.metadata != nil {
				s.prm[pathPRM]["scopes_supported"] = test.metadata
			}
			as.metadata["scopes_supported"] = append([]string{}, test.supports...)
			w.must(w.client(&Options{Visit: as.user(nil), Scopes: test.options}))
			q := as.requests[0]
			if _, there := q["scope"]; q.Get("scope") != test.want || there != (test.want != "") {
				t.Errorf("asked for %q, want %q", q["scope"], test.want)
			}
		})
	}
}

func TestStoreFails(t *testing.T) {
	w, _, as := simple(t)
	broken := errors.New("the disk is full")
	store := &failing{Store: newMemory()}
	c := w.client(&Options{Visit: as.user(nil), Store: store})
	w.must(c)
	store.err = broken
	if err := c.Login(t.Context()); !errors.Is(err, broken) {
		t.Errorf("login: %v", err)
	}
	w.must(c) // what is held is still good
	c = w.client(&Options{Store: store})
	if _, err := w.call(t.Context(), c); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	store.err = nil
	if err := store.Save(t.Context(), tokenKey(c.id), []byte(`{"issuer":1}`)); err != nil {
		t.Fatal(err)
	}
	c = w.client(&Options{Store: store, Visit: as.user(nil)})
	if _, err := w.call(t.Context(), c); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
	if err := c.Login(t.Context()); err != nil {
		t.Errorf("login: %v", err)
	}
	w.must(c)
}

// failing is a Store that fails when it shall.
type failing struct {
	Store
	err error
}

func (f *failing) Load(ctx context.Context, key string) ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Store.Load(ctx, key)
}

func (f *failing) Save(ctx context.Context, key string, value []byte) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Save(ctx, key, value)
}
