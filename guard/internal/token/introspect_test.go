package token

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
)

// An endpoint answers introspection requests (RFC 7662) over HTTP.
type endpoint struct {
	*httptest.Server
	asked atomic.Int32

	mu     sync.Mutex
	answer func(token string) (status int, body string)
	last   *http.Request
}

func newEndpoint(t *testing.T, answer func(token string) (int, string)) *endpoint {
	t.Helper()
	e := &endpoint{answer: answer}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.asked.Add(1)
		_ = r.ParseForm()
		e.mu.Lock()
		e.last = r
		answer := e.answer
		e.mu.Unlock()
		status, body := answer(r.PostForm.Get("token"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) set(answer func(token string) (int, string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = answer
}

// asker has one issuer with tokens that are introspected.
func asker(t *testing.T, e *endpoint, o *Options, change func(*Issuer)) *Verifier {
	t.Helper()
	i := Issuer{Issuer: testIssuer, Audience: []string{"https://rpc.example"}}
	asked := &i.Introspection
	asked.URL, asked.ClientID, asked.ClientSecret, asked.Opaque = e.URL, "rpc", "s3cr et", true
	if change != nil {
		change(&i)
	}
	if o == nil {
		o = &Options{}
	}
	v, err := New([]Issuer{i}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func active(sub string, exp time.Time) string {
	return fmt.Sprintf(`{"active":true,"sub":%q,"aud":"https://rpc.example","scope":"read `+
		`write","roles":["builder"],"exp":%d}`, sub, exp.Unix())
}

func TestIntrospection(t *testing.T) {
	e := newEndpoint(t, func(token string) (int, string) {
		switch token {
		case "good":
			return 200, active("alice", time.Now().Add(time.Hour))
		case "other-audience":
			return 200, strings.Replace(active("alice", time.Now().Add(time.Hour)), "rpc.example",
				"bank.example", 1)
		case "other-issuer":
			return 200, `{"active":true,"sub":"alice","aud":"https://rpc.example",` +
				`"iss":"https://evil.example"}`
		case "expired":
			return 200, active("alice", time.Now().Add(-time.Hour))
		case "no-sub":
			return 200, `{"active":true,"aud":"https://rpc.example"}`
		case "no-audience":
			return 200, `{"active":true,"sub":"alice"}`
		case "truthy":
			return 200, `{"active":"true","sub":"alice","aud":"https://rpc.example"}`
		case "twice":
			return 200, `{"active":false,"active":true,"sub":"alice","aud":"https://rpc.example"}`
		case "broken":
			return 200, `{"active":`
		case "large":
			return 200, `{"active":true,"sub":"alice","aud":"https://rpc.example","x":"` + strings.Repeat(
				"x", maxAnswer) + `"}`
		case "down":
			return 503, active("alice", time.Now().Add(time.Hour))
		case "denied":
			return 401, active("alice", time.Now().Add(time.Hour))
		case "redirected":
			return 307, active("alice", time.Now().Add(time.Hour))
		}
		return 200, `{"active":false}`
	})
	v := asker(t, e, nil, nil)
	got, err := v.Verify(t.Context(), "good")
	if err != nil || got.Subject != "alice" || got.Issuer != testIssuer || len(got.Scopes) != 2 ||
		len(got.Roles) != 1 || got.Expires.IsZero() {
		t.Fatalf("%+v, %v", got, err)
	}
	if user, password, ok := e.last.BasicAuth(); !ok || user != "rpc" || password != "s3cr+et" ||
		e.last.PostForm.Get("token_type_hint") != "access_token" {
		t.Errorf("%q %q %v", user, password, e.last.PostForm)
	}
	for token, reason := range map[string]string{
		"unknown": "inactive", "other-audience": "audience", "other-issuer": "issuer",
		"expired": "expired", "no-sub": "claims", "no-audience": "audience",
		"truthy": "unavailable", "twice": "unavailable", "broken": "unavailable", "large": "unavailable",
		"down": "unavailable", "denied": "unavailable", "redirected": "unavailable",
	} {
		_, err := v.Verify(t.Context(), token)
		refused(t, err, reason, token)
	}
	lax := asker(t, e, nil, func(i *Issuer) {
		i.Introspection.AnyAudience, i.Introspection.Auth = true, "post"
	})
	if _, err := lax.Verify(t.Context(), "no-audience"); err != nil {
		t.Error(err)
	}
	if e.last.PostForm.Get("client_id") != "rpc" ||
		e.last.PostForm.Get("client_secret") != "s3cr et" || e.last.Header.Get("Authorization") != "" {
		t.Errorf("%v %v", e.last.PostForm, e.last.Header)
	}
	_, err = lax.Verify(t.Context(), "other-audience")
	refused(t, err, "audience", "other-audience")
	token := asker(t, e, nil, func(i *Issuer) { i.Introspection.Auth = "bearer" })
	if _, err := token.Verify(t.Context(), "good"); err != nil ||
		e.last.Header.Get("Authorization") != "Bearer s3cr et" {
		t.Error(err, e.last.Header)
	}
	e.CloseClientConnections()
	e.Close()
	_, err = v.Verify(t.Context(), "another")
	refused(t, err, "unavailable", "another")
}

// An answer is remembered for TTL, and never longer than the token is valid; a failure is not.
func TestIntrospectionCache(t *testing.T) {
	now := time.Now()
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	add := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	e := newEndpoint(t, func(token string) (int, string) {
		if token == "short" {
			return 200, active("bob", clock().Add(-25*time.Second)) // within the skew for 5 s
		}
		return 200, active("alice", clock().Add(time.Hour))
	})
	v := asker(t, e, &Options{Now: clock}, nil)
	verify := func(token, reason string, asked int32) {
		t.Helper()
		_, err := v.Verify(t.Context(), token)
		if reason == "" && err != nil {
			t.Error(err)
		} else if reason != "" {
			refused(t, err, reason, token)
		}
		if n := e.asked.Load(); n != asked {
			t.Errorf("%s: it was asked %d times, want %d", token, n, asked)
		}
	}
	verify("a", "", 1)
	verify("a", "", 1)
	e.set(func(string) (int, string) { return 200, `{"active":false}` })
	add(29 * time.Second)
	verify("a", "", 1)
	add(time.Second)
	verify("a", "inactive", 2) // revoked
	verify("a", "inactive", 2)
	e.set(func(string) (int, string) { return 500, "" })
	add(30 * time.Second)
	verify("a", "unavailable", 3)
	verify("a", "unavailable", 4)
	e.set(func(string) (int, string) { return 200, active("bob", clock().Add(-25*time.Second)) })
	verify("short", "", 5)
	add(6 * time.Second)
	e.set(func(string) (int, string) { return 200, `{"active":false}` })
	verify("short", "inactive", 6) // 24 s before its TTL
}

// A JWT with a signature that is right counts no longer when its issuer has revoked it.
func TestIntrospectionOfJWT(t *testing.T) {
	s := newSigner(t, "ES256", "k")
	e := newEndpoint(t, func(string) (int, string) { return 200, `{"active":true}` })
	v := asker(t, e, nil, func(i *Issuer) { i.JWKS, i.Introspection.TTL = set(s), time.Nanosecond })
	raw := s.sign(nil, dict{"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()})
	if got, err := v.Verify(t.Context(), raw); err != nil || got.Subject != "alice" {
		t.Fatal(got, err)
	}
	e.set(func(string) (int, string) { return 200, `{"active":false}` })
	_, err := v.Verify(t.Context(), raw)
	refused(t, err, "inactive", raw)
	e.set(func(string) (int, string) { return 502, "" })
	_, err = v.Verify(t.Context(), raw)
	refused(t, err, "unavailable", raw)
	asked := e.asked.Load()
	_, err = v.Verify(t.Context(), raw[:len(raw)-8]+"AAAAAAAA") // not worth a question
	refused(t, err, "signature", raw)
	if e.asked.Load() != asked {
		t.Error("the issuer was asked about a token that it has not signed")
	}
}

// Those who show one token at the same time share one request, which outlives each of them.
func TestIntrospectionIsShared(t *testing.T) {
	hold, arrived := make(chan struct{}), make(chan struct{}, 100)
	e := newEndpoint(t, func(string) (int, string) {
		arrived <- struct{}{}
		<-hold
		return 200, active("alice", time.Now().Add(time.Hour))
	})
	v := asker(t, e, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := v.Verify(ctx, "token")
		first <- err
	}()
	<-arrived
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := v.Verify(t.Context(), "token"); err != nil {
				t.Error(err)
			}
		})
	}
	cancel()
	if err := <-first; err == nil {
		t.Error("who gives up gets an answer")
	}
	close(hold)
	wg.Wait()
	if n := e.asked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

// An issuer that does not answer holds nothing up for longer than the timeout.
func TestIntrospectionTimeout(t *testing.T) {
	hold := make(chan struct{})
	e := newEndpoint(t, func(string) (int, string) { <-hold; return 200, "{}" })
	defer close(hold)
	v := asker(t, e, nil, func(i *Issuer) { i.Introspection.Timeout = 50 * time.Millisecond })
	_, err := v.Verify(t.Context(), "token")
	refused(t, err, "unavailable", "token")
}

// A caller without room is refused before the issuer is asked; what is remembered needs
// none, and stays while another caller shows many tokens.
func TestIntrospectionIsAdmitted(t *testing.T) {
	e := newEndpoint(t, func(token string) (int, string) {
		return 200, active(token, time.Now().Add(time.Hour))
	})
	full := errors.New("too many")
	var released atomic.Int32
	type from struct{}
	v := asker(t, e, &Options{Admit: func(ctx context.Context) (owner.Key, func(), error) {
		name, _ := ctx.Value(from{}).(string)
		if name == "refused" {
			return owner.Key{}, nil, full
		}
		return owner.Address(name), func() { released.Add(1) }, nil
	}}, nil)
	if _, err := v.Verify(context.WithValue(t.Context(), from{}, "refused"),
		"a"); !errors.Is(err, full) || e.asked.Load() != 0 {
		t.Errorf("%v, asked %d", err, e.asked.Load())
	}
	if _, err := v.Verify(context.WithValue(t.Context(), from{}, "192.0.2.1"), "mine"); err != nil {
		t.Fatal(err)
	}
	for n := range 300 {
		if _, err := v.Verify(context.WithValue(t.Context(), from{}, "192.0.2.2"),
			fmt.Sprint("theirs ", n)); err != nil {
			t.Fatal(err)
		}
	}
	asked := e.asked.Load()
	if _, err := v.Verify(context.WithValue(t.Context(), from{}, "refused"), "mine"); err != nil ||
		e.asked.Load() != asked {
		t.Errorf("what is remembered needs no room: %v, asked %d more", err, e.asked.Load()-asked)
	}
	v.Close()
	if released.Load() != 301 {
		t.Errorf("%d of 301 were released", released.Load())
	}
}

func TestIntrospectionOfWrongIssuers(t *testing.T) {
	for want, change := range map[string]func(*Issuer){
		"has no url": func(i *Issuer) { i.Introspection.URL = "" },
		"must be https": func(i *Issuer) {
			i.Introspection.URL = "http://id.example/introspect"
		},
		"has no client_secret":    func(i *Issuer) { i.Introspection.ClientSecret = "" },
		"has no client_id":        func(i *Issuer) { i.Introspection.ClientID = "" },
		`has the auth "digest"`:   func(i *Issuer) { i.Introspection.Auth = "digest" },
		"a time of its introspec": func(i *Issuer) { i.Introspection.TTL = -1 },
	} {
		i := Issuer{Issuer: testIssuer, Audience: []string{"a"}}
		i.Introspection.URL, i.Introspection.ClientID,
			i.Introspection.ClientSecret = "https://id.example/introspect", "a", "b"
		i.Introspection.Opaque = true
		change(&i)
		if v, err := New([]Issuer{i}, nil); err == nil || !strings.Contains(err.Error(), want) {
			if v != nil {
				v.Close()
			}
			t.Errorf("%v, want %s", err, want)
		}
	}
	i := Issuer{Issuer: testIssuer, Audience: []string{"a"}}
	i.Introspection.URL, i.Introspection.ClientID, i.Introspection.ClientSecret,
		i.Introspection.Opaque = "https://id.example/introspect", "a", "b", true
	other := i
	other.Issuer = "https://other.example"
	if _, err := New([]Issuer{i, other}, nil); err == nil ||
		!strings.Contains(err.Error(), "only one of them can") {
		t.Error(err)
	}
}
