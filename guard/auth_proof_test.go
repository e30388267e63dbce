package guard_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/guard/internal/replay"
	"github.com/farcall-dev/farcall/httprpc"
)

// A prover has a key to which tokens are bound.
type prover struct{ *authority }

func (p prover) thumbprint() string {
	j := p.jwk()
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + j["x"].(string) + `"}`))
	return b64(sum[:])
}

// proof is one for a POST to an address, but for what changes says.
func (p prover) proof(now time.Time, target, token string, changes map[string]any) string {
	jwk := p.jwk()
	delete(jwk, "kid")
	ath := sha256.Sum256([]byte(token))
	claims := map[string]any{
		"jti": rand.Text(), "htm": "POST", "htu": target, "iat": now.Unix(),
		"ath": b64(ath[:]),
	}
	for name, v := range changes {
		if claims[name] = v; v == nil {
			delete(claims, name)
		}
	}
	return p.sign(map[string]any{"alg": "EdDSA", "typ": "dpop+jwt", "jwk": jwk}, claims)
}

func TestDPoP(t *testing.T) {
	now := newClock()
	a, mine, theirs := newAuthority(t, "1"), prover{newAuthority(t, "")}, prover{newAuthority(t, "")}
	s := newSite(t, everyWay(a, true), &guard.Options{Now: now.Now})
	bound := a.token(now.Now(), map[string]any{"cnf": map[string]any{"jkt": mine.thumbprint()}})
	plain := a.token(now.Now(), nil)
	target := s.url + "/rpc"
	const alice = "user " + issuer + "|alice by jwt"
	call := func(token string, proofs ...string) *reply {
		headers := []string{"Authorization: DPoP " + token}
		for _, p := range proofs {
			headers = append(headers, "DPoP: "+p)
		}
		return s.call("who", "", headers...)
	}
	one := mine.proof(now.Now(), target, bound, nil)
	call(bound, one).wants(t, alice)
	for name, c := range map[string]struct {
		got  *reply
		want any
	}{
		"the proof again": {call(bound, one), replayed},
		"no proof":        {call(bound), unauthenticated},
		"two proofs": {
			call(bound, mine.proof(now.Now(), target, bound, nil),
				mine.proof(now.Now(), target, bound, nil)), unauthenticated,
		},
		"proof of another": {
			call(bound, theirs.proof(now.Now(), target, bound, nil)),
			unauthenticated,
		},
		"token is not bound": {
			call(plain, mine.proof(now.Now(), target, plain, nil)),
			unauthenticated,
		},
		"bound, as bearer": {s.call("who", "", bearer(bound)), unauthenticated},
		"bearer with proof": {
			s.call("who", "", bearer(bound), "DPoP: "+mine.proof(now.Now(), target, bound, nil)),
			unauthenticated,
		},
		"for another address": {
			call(bound, mine.proof(now.Now(), s.url+"/other", bound, nil)),
			unauthenticated,
		},
		"for another host": {
			call(bound, mine.proof(now.Now(), "https://evil.example/rpc", bound, nil)),
			unauthenticated,
		},
		"for another method": {
			call(bound, mine.proof(now.Now(), target, bound, map[string]any{"htm": "GET"})), unauthenticated,
		},
		"for another token": {
			call(bound, mine.proof(now.Now(), target, plain, nil)),
			unauthenticated,
		},
		"without ath": {
			call(bound, mine.proof(now.Now(), target, bound, map[string]any{"ath": nil})), unauthenticated,
		},
		"old": {
			call(bound, mine.proof(now.Now().Add(-6*time.Minute), target, bound, nil)), stale,
		},
		"of the future": {
			call(bound, mine.proof(now.Now().Add(time.Minute), target, bound, nil)), stale,
		},
		"nonce of another server": {
			call(bound, mine.proof(now.Now(), target, bound, map[string]any{"nonce": "x"})), unauthenticated,
		},
		"a key as a token": {
			call(goodKey, mine.proof(now.Now(), target, goodKey, nil)),
			unauthenticated,
		},
	} {
		t.Run(name, func(t *testing.T) { c.got.wants(t, c.want) })
	}
}

// An issuer with tokens that need a proof, with a nonce of the server.
func TestDPoPNonce(t *testing.T) {
	now := newClock()
	a, mine := newAuthority(t, "1"), prover{newAuthority(t, "")}
	c := everyWay(a, true)
	c.JWT[0].DPoP = "required"
	s := newSite(t, c, &guard.Options{Now: now.Now})
	bound := a.token(now.Now(), map[string]any{"cnf": map[string]any{"jkt": mine.thumbprint()}})
	call := func(nonce any) *reply {
		return s.call("who", "", "Authorization: DPoP "+bound,
			"DPoP: "+mine.proof(now.Now(), s.url+"/rpc", bound, map[string]any{"nonce": nonce}))
	}
	got := call(nil)
	got.wants(t, unauthenticated)
	nonce := got.header.Get("Dpop-Nonce")
	if nonce == "" || !strings.Contains(got.header.Get("Www-Authenticate"), `error="use_dpop_nonce"`) {
		t.Fatalf("%v", got.header)
	}
	call(nonce).wants(t, "user "+issuer+"|alice by jwt")
	call("x"+nonce).wants(t, unauthenticated)
	s.call("who", "", bearer(a.token(now.Now(), nil))).wants(t, unauthenticated)
	now.add(20 * time.Minute)
	bound = a.token(now.Now(), map[string]any{"cnf": map[string]any{"jkt": mine.thumbprint()}})
	if got := call(nonce); got.code != unauthenticated || got.header.Get("Dpop-Nonce") == nonce {
		t.Errorf("an old nonce: %d, %v", got.code, got.header)
	}
}

func TestDPoPRefused(t *testing.T) {
	now := newClock()
	a, mine := newAuthority(t, "1"), prover{newAuthority(t, "")}
	c := everyWay(a, false)
	c.JWT[0].DPoP = "refused"
	s := newSite(t, c, &guard.Options{Now: now.Now})
	bound := a.token(now.Now(), map[string]any{"cnf": map[string]any{"jkt": mine.thumbprint()}})
	s.call("who", "", "Authorization: DPoP "+bound,
		"DPoP: "+mine.proof(now.Now(), s.url+"/rpc", bound, nil)).wants(t, unauthenticated)
	s.call("who", "", bearer(a.token(now.Now(), nil))).wants(t, "user "+issuer+"|alice by jwt")
}

// signedRequest is a call that is signed.
func (s *site) signedRequest(method, params, id string, key any) *http.Request {
	s.t.Helper()
	r := s.request(method, params)
	if err := guard.SignRequest(r, id, key); err != nil {
		s.t.Fatal(err)
	}
	return r
}

func TestSignedRequests(t *testing.T) {
	now := newClock()
	s := newSite(t, everyWay(newAuthority(t, "1"), true), &guard.Options{Now: now.Now})
	key := []byte(secret)
	first := s.signedRequest("who", `{"a":1}`, "partner", key)
	again := first.Clone(t.Context())
	again.Body, _ = first.GetBody()
	s.do(first).wants(t, "service partner by signature")
	s.do(again).wants(t, replayed)
	for name, change := range map[string]func(*http.Request){
		"body": func(r *http.Request) {
			raw, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(bytes.Replace(raw, []byte("who"), []byte("Who"), 1)))
			r.GetBody = nil
		},
		"no body":      func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 },
		"path":         func(r *http.Request) { r.URL.Path = "/stream" },
		"query":        func(r *http.Request) { r.URL.RawQuery = "x=1" },
		"method":       func(r *http.Request) { r.Method = http.MethodPut },
		"content type": func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"Mcp-Name":     func(r *http.Request) { r.Header.Set("Mcp-Name", "other") },
		"no input":     func(r *http.Request) { r.Header.Del("Signature-Input") },
		"no signature": func(r *http.Request) { r.Header.Del("Signature") },
		"two":          func(r *http.Request) { r.Header.Add("Signature", "x=:eA==:") },
		"other digest": func(r *http.Request) { r.Header.Set("Content-Digest", "sha-256=:eA==:") },
		"other host":   func(r *http.Request) { r.Host = "evil.example" },
		"not the label": func(r *http.Request) {
			r.Header.Set("Signature", "x"+r.Header.Get("Signature"))
		},
	} {
		r := s.signedRequest("who", `{"a":1}`, "partner", key)
		change(r)
		if got := s.do(r); got.code != badSignature || got.status != http.StatusUnauthorized {
			t.Errorf("%s was changed: %d %s", name, got.status, got.body)
		}
	}
	s.do(s.signedRequest("who", "", "partner", []byte(secret+"x"))).wants(t, badSignature)
	s.do(s.signedRequest("who", "", "unknown", key)).wants(t, badSignature)
	r := s.signedRequest("who", "", "partner", key)
	r.Header.Set("Authorization", "Bearer "+goodKey)
	s.do(r).wants(t, unauthenticated)
	r = s.signedRequest("who", "", "partner", key)
	now.add(6 * time.Minute)
	s.do(r).wants(t, stale)
}

// A signed request is held in memory, as much of it as is allowed.
func TestSignedRequestIsBounded(t *testing.T) {
	t.Parallel()
	c := everyWay(newAuthority(t, "1"), false)
	c.Limits.MaxBody = 1000
	s := newSite(t, c, nil)
	s.do(s.signedRequest("who", `{"a":"`+strings.Repeat("x", 100)+`"}`, "partner", []byte(secret))).
		wants(t, "service partner by signature")
	got := s.do(
		s.signedRequest("who", `{"a":"`+strings.Repeat("x", 1000)+`"}`, "partner", []byte(secret)))
	if got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", got.status, got.body)
	}
	r := s.signedRequest("who", `{"a":"`+strings.Repeat("x", 1000)+`"}`, "partner", []byte(secret))
	r.ContentLength = -1 // in chunks
	if got := s.do(r); got.status == http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Two servers that share what was used refuse each other's replays, however the message came.
func TestReplayAcrossNodes(t *testing.T) {
	now := newClock()
	a, mine := newAuthority(t, "1"), prover{newAuthority(t, "")}
	shared := replay.New(1000, now.Now)
	c := everyWay(a, true)
	c.Resource.URL = audience // one address for both
	var nodes [2]*site
	for i := range nodes {
		nodes[i] = newSite(t, c, &guard.Options{Now: now.Now, Nonces: shared})
	}
	alone := newSite(t, c, &guard.Options{Now: now.Now})

	r := nodes[0].request("who", "", "Host: rpc.example")
	if err := guard.SignRequest(r, "partner", []byte(secret)); err != nil {
		t.Fatal(err)
	}
	at := func(s *site) *http.Request {
		other := r.Clone(t.Context())
		u, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		other.URL.Host, other.Host = u.Host, "rpc.example"
		other.Body, _ = r.GetBody()
		return other
	}
	nodes[0].do(at(nodes[0])).wants(t, "service partner by signature")
	nodes[1].do(at(nodes[1])).wants(t, replayed)
	alone.do(at(alone)).wants(t, "service partner by signature") // it shares nothing

	message := string(signed(t, "who", `{}`, "partner", audience, []byte(secret)))
	nodes[1].call("who", message).wants(t, "service partner by signature")
	nodes[0].call("who", message).wants(t, replayed)

	token := a.token(now.Now(), map[string]any{"cnf": map[string]any{"jkt": mine.thumbprint()}})
	headers := []string{
		"Authorization: DPoP " + token,
		"DPoP: " + mine.proof(now.Now(), audience, token, nil),
	}
	nodes[0].call("who", "", headers...).wants(t, "user "+issuer+"|alice by jwt")
	nodes[1].call("who", "", headers...).wants(t, replayed)
}

// A ca issues certificates.
type ca struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
}

func newCA(t *testing.T) *ca {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &ca{cert, key}
}

// issue issues a certificate for a URI, or else for DNS names.
func (c *ca) issue(t *testing.T, uri string, dns ...string) tls.Certificate {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "spiffe://example.org/agent/common-name"}, DNSNames: dns,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// newSecureSite serves JSON-RPC over TLS, and asks for certificates of the authority.
func newSecureSite(
	t *testing.T, c *guard.Config, o *guard.Options, authority *ca, auth tls.ClientAuthType,
	more ...*ca,
) (*site, func(...tls.Certificate) *site) {
	t.Helper()
	g := newGuard(t, c, o)
	rpc := &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}}
	server := httptest.NewUnstartedServer(
		g.HTTP(httprpc.NewHandler(newMux(), &httprpc.Options{RPC: rpc})))
	pool := x509.NewCertPool()
	for _, a := range append(more, authority) {
		pool.AddCert(a.cert)
	}
	server.TLS = &tls.Config{ClientAuth: auth, ClientCAs: pool}
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	with := func(certs ...tls.Certificate) *site {
		web := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}}
		t.Cleanup(web.CloseIdleConnections)
		return &site{Guard: g, t: t, url: server.URL, web: &http.Client{Transport: web}}
	}
	return with(), with
}

func TestClientCertificates(t *testing.T) {
	now := newClock()
	authority := newCA(t)
	for _, anonymous := range []bool{false, true} {
		nobody, with := newSecureSite(t, everyWay(newAuthority(t, "1"), anonymous),
			&guard.Options{Now: now.Now}, authority, tls.VerifyClientCertIfGiven)
		none := any(unauthenticated)
		if anonymous {
			none = "anonymous anonymous by none"
		}
		nobody.call("who", "").wants(t, none)
		nobody.call("who", "", bearer(goodKey)).wants(t, "service ci by key")
		for name, c := range map[string]struct {
			cert tls.Certificate
			want any
		}{
			"SPIFFE": {
				authority.issue(t, "spiffe://example.org/agent/a/b"),
				"agent spiffe://example.org/agent/a/b by mtls",
			},
			"DNS": {
				authority.issue(t, "", "a.svc.example.org"),
				"service a.svc.example.org by mtls",
			},
			"capitals": {
				authority.issue(t, "", "A.SVC.example.org"),
				"service A.SVC.example.org by mtls",
			},
			"second name": {
				authority.issue(t, "", "x.example", "b.svc.example.org"),
				"service b.svc.example.org by mtls",
			},
			"other trust domain":   {authority.issue(t, "spiffe://evil.org/agent/a"), unauthenticated},
			"other path":           {authority.issue(t, "spiffe://example.org/user/a"), unauthenticated},
			"nothing after":        {authority.issue(t, "spiffe://example.org/agent/"), unauthenticated},
			"two labels":           {authority.issue(t, "", "a.b.svc.example.org"), unauthenticated},
			"more behind":          {authority.issue(t, "", "a.svc.example.org.evil.org"), unauthenticated},
			"no names but a CN":    {authority.issue(t, ""), unauthenticated},
			"a DNS name as an URI": {authority.issue(t, "", "spiffe.example.org"), unauthenticated},
		} {
			with(c.cert).call("who", "").wants(t, c.want)
			_ = name
		}
	}
}

// The names count at the time of the call, not of the handshake.
func TestCertificateExpiresOnConnection(t *testing.T) {
	now := newClock()
	authority := newCA(t)
	_, with := newSecureSite(t, everyWay(newAuthority(t, "1"), true), &guard.Options{Now: now.Now},
		authority, tls.VerifyClientCertIfGiven)
	s := with(authority.issue(t, "spiffe://example.org/agent/a"))
	s.call("who", "").wants(t, "agent spiffe://example.org/agent/a by mtls")
	now.add(2 * time.Hour)
	s.call("who", "").wants(t, unauthenticated)
}

// A listener that asks for certificates and does not check them must not let anybody in.
func TestUncheckedCertificate(t *testing.T) {
	untrusted := newCA(t)
	_, with := newSecureSite(t, everyWay(newAuthority(t, "1"), true), nil, newCA(t),
		tls.RequestClientCert)
	with(untrusted.issue(t, "spiffe://example.org/agent/a")).call("who", "").wants(t, unauthenticated)
}

// A token that is bound to a certificate (RFC 8705).
func TestTokenOfCertificate(t *testing.T) {
	now := newClock()
	authority, a := newCA(t), newAuthority(t, "1")
	c := everyWay(a, false)
	c.MTLS = nil
	nobody, with := newSecureSite(t, c, &guard.Options{Now: now.Now}, authority,
		tls.VerifyClientCertIfGiven)
	mine, theirs := authority.issue(t, "", "mine"), authority.issue(t, "", "theirs")
	sum := sha256.Sum256(mine.Certificate[0])
	token := bearer(a.token(now.Now(), map[string]any{"cnf": map[string]any{"x5t#S256": b64(sum[:])}}))
	with(mine).call("who", "", token).wants(t, "user "+issuer+"|alice by jwt")
	with(theirs).call("who", "", token).wants(t, unauthenticated)
	nobody.call("who", "", token).wants(t, unauthenticated)
}

// On a connection that is no HTTP it is the same.
func TestCertificateOfConn(t *testing.T) {
	authority := newCA(t)
	cert := authority.issue(t, "spiffe://example.org/agent/a")
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	g := newGuard(t, everyWay(newAuthority(t, "1"), false), nil)
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	expect(t, "not checked",
		ask(t, over(t, g, &guard.Conn{Transport: "tcp+tls", TLS: state}), "who", nil), unauthenticated)
	state = &tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{leaf},
		VerifiedChains:   [][]*x509.Certificate{{leaf, authority.cert}},
	}
	expect(t, "checked", ask(t, over(t, g, &guard.Conn{Transport: "tcp+tls", TLS: state}), "who", nil),
		"agent spiffe://example.org/agent/a by mtls")
}
