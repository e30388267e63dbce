package token

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeNet answers for every host, by its pages.
type fakeNet struct {
	mu    sync.Mutex
	pages map[string]string // by URL
	asked map[string]int
	down  bool
	hold  chan struct{} // answers wait for it
}

func (n *fakeNet) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	if n.asked == nil {
		n.asked = map[string]int{}
	}
	n.asked[r.URL.String()]++
	page, there := n.pages[r.URL.String()]
	hold, down := n.hold, n.down
	n.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if down {
		return nil, errors.New("the network is down")
	}
	resp := &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1,
		Request: r,
	}
	if !there {
		resp.StatusCode = http.StatusNotFound
	}
	resp.Body = io.NopCloser(strings.NewReader(page))
	return resp, nil
}

func (n *fakeNet) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *fakeNet) count(url string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[url]
}

const testKeys = testIssuer + "/keys"

// fetching returns a verifier that discovers its keys in a fakeNet.
func fetching(t *testing.T, n http.RoundTripper, change func(*Issuer)) *Verifier {
	t.Helper()
	i := Issuer{Issuer: testIssuer, Audience: []string{"https://rpc.example"}}
	if change != nil {
		change(&i)
	}
	v, err := New([]Issuer{i}, &Options{HTTP: &http.Client{Transport: n}, Now: func() time.Time {
		return testNow
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func issuerNet(s ...*signer) *fakeNet {
	return &fakeNet{pages: map[string]string{
		testIssuer + "/.well-known/openid-configuration": text(
			dict{"issuer": testIssuer, "jwks_uri": testKeys}),
		testKeys: set(s...),
	}}
}

func good(t *testing.T, v *Verifier, raw string) {
	t.Helper()
	if _, err := v.Verify(t.Context(), raw); err != nil {
		t.Errorf("%v: %v", err, errors.Unwrap(err))
	}
}

func bad(t *testing.T, v *Verifier, raw, reason string) {
	t.Helper()
	_, err := v.Verify(t.Context(), raw)
	refused(t, err, reason, raw)
}

func TestDiscovery(t *testing.T) {
	s := newSigner(t, "ES256", "k")
	for _, test := range []struct{ issuer, at string }{
		{"https://a.example", "https://a.example/.well-known/openid-configuration"},
		{"https://a.example/", "https://a.example/.well-known/openid-configuration"},
		{"https://a.example", "https://a.example/.well-known/oauth-authorization-server"},
		{"https://a.example/t/1", "https://a.example/t/1/.well-known/openid-configuration"},
		{"https://a.example/t/1/", "https://a.example/t/1/.well-known/openid-configuration"},
		{"https://a.example/t/1", "https://a.example/.well-known/oauth-authorization-server/t/1"},
		{"https://a.example/t/1", "https://a.example/.well-known/openid-configuration/t/1"},
	} {
		net := &fakeNet{pages: map[string]string{
			test.at:                  text(dict{"issuer": test.issuer, "jwks_uri": "https://k.example/"}),
			"https://k.example/":     set(s),
			"https://a.example/keys": "{}",
		}}
		v := fetching(t, net, func(i *Issuer) { i.Issuer = test.issuer })
		good(t, v, s.sign(nil, dict{"iss": test.issuer}))
		v.Close()
	}
	for _, document := range []string{
		text(dict{"issuer": testIssuer + "/", "jwks_uri": testKeys}),
		text(dict{"issuer": "https://evil.example", "jwks_uri": testKeys}),
		text(dict{"jwks_uri": testKeys}), text(dict{"Issuer": testIssuer, "jwks_uri": testKeys}),
		text(dict{"issuer": testIssuer}),
		`{"issuer":"https://evil.example","issuer":"` + testIssuer + `","jwks_uri":"` + testKeys + `"}`,
		"<html>", "", "[]",
		text(dict{"issuer": testIssuer, "jwks_uri": []any{testKeys}}), strings.Repeat(" ", maxSetBytes+1),
	} {
		net := issuerNet(s)
		net.pages[testIssuer+"/.well-known/openid-configuration"] = document
		v := fetching(t, net, nil)
		bad(t, v, s.sign(nil, nil), "unavailable")
		v.Close()
	}
}

// A whole way over HTTP: metadata and keys from a server on loopback.
func TestDiscoveryOverHTTP(t *testing.T) {
	s := newSigner(t, "RS256", "k")
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/oauth-authorization-server/tenant":
			fmt.Fprint(w, text(dict{"issuer": server.URL + "/tenant", "jwks_uri": server.URL + "/keys"}))
		case "/keys":
			fmt.Fprint(w, set(s))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	v, err := New([]Issuer{{
		Issuer:   server.URL + "/tenant",
		Audience: []string{"https://rpc.example"},
	}}, &Options{Now: func() time.Time { return testNow }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	good(t, v, s.sign(nil, dict{"iss": server.URL + "/tenant"}))
	bad(t, v, s.sign(nil, dict{"iss": server.URL}), "issuer")
}

// Keys are fetched again every Refresh; those that are gone take the tokens that were remembered
// with them.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := newSigner(t, "ES256", "old"), newSigner(t, "ES256", "new")
		net := issuerNet(old)
		v := fetching(t, net, nil)
		oldToken, newToken := old.sign(nil, nil), next.sign(nil, nil)
		good(t, v, oldToken)
		net.set(func() { net.pages[testKeys] = set(old, next) })
		good(t, v, newToken) // an unknown kid
		if n := net.count(testKeys); n != 2 {
			t.Errorf("%d fetches", n)
		}
		net.set(func() { net.pages[testKeys] = set(next) })
		good(t, v, oldToken)
		later(defaultRefresh * 111 / 100)
		synctest.Wait()
		if n := net.count(testKeys); n != 3 {
			t.Errorf("%d fetches", n)
		}
		bad(t, v, oldToken, "key")
		good(t, v, newToken)
		// The same kid with another key.
		net.set(func() { net.pages[testKeys] = set(newSigner(t, "ES256", "new")) })
		later(defaultRefresh * 111 / 100)
		synctest.Wait()
		bad(t, v, newToken, "signature")
		v.Close()
	})
}

// All who come with a new key share the fetch that finds it.
func TestRotationShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := newSigner(t, "ES256", "old"), newSigner(t, "ES256", "new")
		net := issuerNet(old)
		v := fetching(t, net, nil)
		good(t, v, old.sign(nil, nil))
		net.set(func() { net.pages[testKeys], net.hold = set(old, next), make(chan struct{}) })
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() { good(t, v, next.sign(nil, dict{"jti": n})) })
			synctest.Wait()
		}
		good(t, v, old.sign(nil, dict{"jti": "tokens with a known key do not wait"}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := v.Verify(ctx, next.sign(nil, nil))
		refused(t, err, "unavailable", "")
		cancel()
		close(net.hold)
		all.Wait()
		if n := net.count(testKeys); n != 2 {
			t.Errorf("%d fetches", n)
		}
		v.Close()
	})
}

// An issuer with keys that have no kid may change its key as well; what is made up causes no more
// fetches than a kid does.
func TestRotationWithoutKid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next, evil := newSigner(t, "ES256", ""), newSigner(t, "ES256", ""), newSigner(t, "ES256", "")
		net := issuerNet(old)
		v := fetching(t, net, nil)
		good(t, v, old.sign(nil, nil))
		net.set(func() { net.pages[testKeys] = set(next) })
		good(t, v, next.sign(nil, nil))
		for n := range 100 {
			bad(t, v, evil.sign(nil, dict{"jti": n}), "signature")
		}
		if n := net.count(testKeys); n != 2 {
			t.Errorf("%d fetches", n)
		}
		v.Close()
	})
}

// Anyone who makes kids up makes one fetch in 30 s.
func TestUnknownKid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, evil := newSigner(t, "ES256", "k"), newSigner(t, "ES256", "")
		net := issuerNet(s)
		v := fetching(t, net, nil)
		began := time.Now()
		for n := range 1000 {
			bad(t, v, evil.sign(dict{"kid": fmt.Sprint(n)}, nil), "key")
			later(100 * time.Millisecond)
		}
		// The first of all, and one every 30 s.
		if n, most := net.count(testKeys), 2+int(time.Since(began)/unknownEvery); n > most || n < most-1 {
			t.Errorf("%d fetches, %d allowed", n, most)
		}
		// Those that are refused before their key is looked for make none.
		before := net.count(testKeys)
		later(time.Minute)
		for _, raw := range []string{
			evil.sign(dict{"kid": "x", "alg": "HS256"}, nil),
			evil.sign(dict{"kid": "x"}, dict{"iss": "https://x.example"}),
			evil.sign(dict{"kid": "x", "jku": "https://x.example"}, nil), s.sign(nil, dict{"exp": 1}),
		} {
			if _, err := v.Verify(t.Context(), raw); err == nil {
				t.Error("it passed")
			}
		}
		if n := net.count(testKeys); n != before {
			t.Errorf("%d fetches", n-before)
		}
		v.Close()
	})
}

func TestUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, "ES256", "k")
		net := issuerNet(s)
		net.down = true
		v := fetching(t, net, nil)
		at := testIssuer + "/.well-known/openid-configuration"
		raw := s.sign(nil, nil)
		for range 100 {
			bad(t, v, raw, "unavailable")
		}
		if n := net.count(at); n != 1 {
			t.Errorf("%d fetches at once", n)
		}
		// It is retried, more and more seldom.
		later(time.Hour)
		synctest.Wait()
		if n := net.count(at); n < 15 || n > 30 {
			t.Errorf("%d fetches in an hour", n)
		}
		net.set(func() { net.down = false })
		later(maxRetry * 111 / 100)
		synctest.Wait()
		good(t, v, raw)
		// What is known stays for KeysMaxAge, when nothing is to be had.
		net.set(func() { net.down = true })
		later(23 * time.Hour)
		good(t, v, s.sign(nil, dict{"jti": "another"}))
		v.Close()
		good(t, v, raw)
	})
}

// Many who need keys first share one fetch, which one of them who goes away does not end.
func TestSharedFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, "ES256", "k")
		net := issuerNet(s)
		net.hold = make(chan struct{})
		v := fetching(t, net, nil)
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() { _, err := v.Verify(ctx, s.sign(nil, nil)); first <- err }()
		synctest.Wait()
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() { good(t, v, s.sign(nil, dict{"jti": fmt.Sprint(n)})) })
		}
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(net.hold)
		all.Wait()
		if n := net.count(testKeys); n != 1 {
			t.Errorf("%d fetches", n)
		}
		v.Close()
	})
}

// Close ends a fetch that is under way, and who waits for it.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, "ES256", "k")
		net := issuerNet(s)
		net.hold = make(chan struct{})
		v := fetching(t, net, nil)
		var waiting sync.WaitGroup
		waiting.Go(func() { bad(t, v, s.sign(nil, nil), "unavailable") })
		synctest.Wait()
		v.Close()
		waiting.Wait()
		v.Close()
		bad(t, v, s.sign(nil, nil), "unavailable")
		if n := net.count(testIssuer + "/.well-known/openid-configuration"); n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

// A fetch that never ends is given up.
func TestFetchTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, "ES256", "k")
		net := issuerNet(s)
		net.hold = make(chan struct{})
		v := fetching(t, net, nil)
		began := time.Now()
		bad(t, v, s.sign(nil, nil), "unavailable")
		if d := time.Since(began); d > fetchTime {
			t.Error(d)
		}
		v.Close()
	})
}

func TestKeysInFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := newSigner(t, "ES256", "old"), newSigner(t, "EdDSA", "new")
		path := filepath.Join(t.TempDir(), "keys.json")
		write := func(s string) {
			if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(set(old))
		v := fetching(t, nil, func(i *Issuer) { i.JWKS = path })
		good(t, v, old.sign(nil, nil))
		write(set(next))
		good(t, v, next.sign(nil, nil)) // an unknown kid
		bad(t, v, old.sign(nil, nil), "key")
		write("{")
		later(2 * defaultRefresh)
		good(t, v, next.sign(nil, nil))
		write(set(old))
		later(2 * maxRetry)
		synctest.Wait()
		good(t, v, old.sign(nil, nil))
		bad(t, v, next.sign(nil, nil), "key")
		v.Close()
	})
	for _, s := range []string{
		"{", `{"keys":[]}`, strings.Repeat(" ", maxSetBytes) + set(newSigner(t, "EdDSA", "")),
	} {
		path := filepath.Join(t.TempDir(), "keys.json")
		os.WriteFile(path, []byte(s), 0o600)
		if _, err := New([]Issuer{{Issuer: "a", Audience: []string{"a"}, JWKS: path}}, nil); err == nil {
			t.Errorf("%.20q passed", s)
		}
	}
}

func TestReadKeys(t *testing.T) {
	s := newSigner(t, "ES256", "k")
	many := make([]*signer, maxKeys+1)
	for i := range many {
		many[i] = s
	}
	for name, set := range map[string]string{
		"too many": set(many...), "duplicate members": `{"keys":[],"keys":[` + text(s.jwk()) + `]}`,
		"no list": `{"keys":{}}`, "Keys": `{"Keys":[` + text(s.jwk()) + `]}`,
		"duplicate members of a key": `{"keys":[{"kty":"oct",` + text(s.jwk())[1:] + `]}`,
		"a key":                      text(s.jwk()), "words": `{"keys":["a",1,null]}`,
		"empty": `{"keys":[]}`,
		"deep":  `{"keys":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
	} {
		if keys, err := readKeys([]byte(set)); err == nil {
			t.Errorf("%s: %v", name, keys)
		} else if strings.Contains(err.Error(), "%!") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Without a kid, not all keys are tried.
	signers := make([]*signer, maxTries+1)
	for i := range signers {
		signers[i] = newSigner(t, "EdDSA", fmt.Sprint(i))
	}
	bad(t, verifier(t, nil, signers...), signers[0].sign(dict{"kid": nil}, nil), "key")
	good(t, verifier(t, nil, signers[1:]...), signers[maxTries].sign(dict{"kid": nil}, nil))
}

// later lets the time of a bubble pass.
func later(d time.Duration) { <-time.After(d) }
