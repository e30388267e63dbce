package token

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// proof returns a DPoP proof for POST https://rpc.example/mcp.
func (s *signer) proof(header, claims dict) string {
	h := dict{"alg": s.alg, "typ": "dpop+jwt", "jwk": s.jwk()}
	c := dict{"jti": "id-1", "htm": "POST", "htu": "https://rpc.example/mcp", "iat": testNow.Unix()}
	return s.raw(text(over(h, header)), text(over(c, claims)))
}

func TestReadProof(t *testing.T) {
	const access = "token"
	for alg := range algorithms {
		s := newSigner(t, alg, "")
		p, err := ReadProof(s.proof(nil, dict{"ath": sum(access), "nonce": "n"}), "POST",
			"https://rpc.example/mcp?query#fragment", access)
		if err != nil {
			t.Fatal(alg, err, errors.Unwrap(err))
		}
		m, _ := readObject([]byte(text(s.jwk())))
		k, _ := readKey(m)
		if want := (Proof{Thumbprint: k.thumbprint, ID: "id-1", Issued: testNow, Nonce: "n"}); *p !=
			want {
			t.Errorf("%+v", p)
		}
	}
	s, other := newSigner(t, "ES256", ""), newSigner(t, "ES256", "")
	private := s.jwk()
	private["d"] = b64(bytes.Repeat([]byte{1}, 32))
	for name, test := range map[string]struct{ raw, reason string }{
		"typ JWT":     {s.proof(dict{"typ": "JWT"}, nil), "type"},
		"typ missing": {s.proof(dict{"typ": nil}, nil), "type"},
		"alg none":    {s.proof(dict{"alg": "none"}, nil), "algorithm"},
		"alg HS256": {
			s.proof(dict{"alg": "HS256", "jwk": dict{"kty": "oct", "k": "AQ"}}, nil),
			"algorithm",
		},
		"alg of another key": {s.proof(dict{"alg": "RS256"}, nil), "key"},
		"jwk missing":        {s.proof(dict{"jwk": nil}, nil), "key"},
		"jwk a string":       {s.proof(dict{"jwk": "k"}, nil), "key"},
		"jwk private":        {s.proof(dict{"jwk": private}, nil), "key"},
		"jwk symmetric":      {s.proof(dict{"jwk": dict{"kty": "oct", "k": "AQ"}}, nil), "key"},
		"jwk of another":     {s.proof(dict{"jwk": other.jwk()}, nil), "signature"},
		"jku":                {s.proof(dict{"jku": "https://evil.example"}, nil), "malformed"},
		"crit":               {s.proof(dict{"crit": []any{"a"}, "a": 1}, nil), "malformed"},
		"psychic": {
			s.proof(nil, nil)[:len(s.proof(nil, nil))-86] + strings.Repeat("A", 86),
			"signature",
		},
		"htm other":         {s.proof(nil, dict{"htm": "GET"}), "claims"},
		"htm in other case": {s.proof(nil, dict{"htm": "post"}), "claims"},
		"htm missing":       {s.proof(nil, dict{"htm": nil}), "claims"},
		"htu other path":    {s.proof(nil, dict{"htu": "https://rpc.example/mcp/admin"}), "claims"},
		"htu other host":    {s.proof(nil, dict{"htu": "https://evil.example/mcp"}), "claims"},
		"htu other scheme":  {s.proof(nil, dict{"htu": "http://rpc.example/mcp"}), "claims"},
		"htu other port":    {s.proof(nil, dict{"htu": "https://rpc.example:444/mcp"}), "claims"},
		"htu with a user": {
			s.proof(nil, dict{"htu": "https://rpc.example@rpc.example/mcp"}),
			"claims",
		},
		"htu path only":        {s.proof(nil, dict{"htu": "/mcp"}), "claims"},
		"htu path in capitals": {s.proof(nil, dict{"htu": "https://rpc.example/MCP"}), "claims"},
		"htu missing":          {s.proof(nil, dict{"htu": nil}), "claims"},
		"jti missing":          {s.proof(nil, dict{"jti": nil}), "claims"},
		"jti empty":            {s.proof(nil, dict{"jti": ""}), "claims"},
		"jti a number":         {s.proof(nil, dict{"jti": 1}), "claims"},
		"jti long":             {s.proof(nil, dict{"jti": strings.Repeat("j", maxProofID+1)}), "claims"},
		"iat missing":          {s.proof(nil, dict{"iat": nil}), "claims"},
		"iat a string":         {s.proof(nil, dict{"iat": "1"}), "claims"},
		"nonce a number":       {s.proof(nil, dict{"nonce": 1}), "claims"},
		"duplicate htu": {s.raw(text(dict{"alg": "ES256", "typ": "dpop+jwt", "jwk": s.jwk()}),
			`{"htu":"https://rpc.example/mcp","htu":"https://x.example"}`), "malformed"},
		"two proofs": {s.proof(nil, nil) + ", " + s.proof(nil, nil), "malformed"},
		"too large":  {s.proof(nil, dict{"a": strings.Repeat("a", maxProof)}), "malformed"},
		"nothing":    {"", "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := ReadProof(test.raw, "POST", "https://rpc.example/mcp", "")
			if err == nil {
				t.Fatalf("it passed: %+v", p)
			}
			refused(t, err, test.reason, test.raw)
		})
	}
	for name, raw := range map[string]string{
		"ath missing": s.proof(nil, nil), "ath of another token": s.proof(nil, dict{"ath": sum("other")}),
		"ath a number": s.proof(nil, dict{"ath": 1}),
	} {
		if _, err := ReadProof(raw, "POST", "https://rpc.example/mcp", access); err == nil {
			t.Errorf("%s passed", name)
		}
	}
}

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		"https://a.example":                      "https://a.example/",
		"HTTPS://A.Example:443/":                 "https://a.example/",
		"http://a.example:80/x":                  "http://a.example/x",
		"http://a.example:443/x":                 "http://a.example:443/x",
		"https://a.example/x?q=1#f":              "https://a.example/x",
		"https://a.example/%7euser/%2f%c3":       "https://a.example/~user/%2F%C3",
		"https://a.example/a/./b/../c":           "https://a.example/a/c",
		"https://a.example/a/b/..":               "https://a.example/a/",
		"https://a.example/../../x":              "https://a.example/x",
		"https://a.example/a/.":                  "https://a.example/a/",
		"https://a.example/%2e%2e/x":             "https://a.example/x",
		"https://a.example//x":                   "https://a.example//x",
		"https://[2001:DB8::1]:8443/x":           "https://[2001:db8::1]:8443/x",
		"https://a.example/x;y=1/é":              "https://a.example/x;y=1/%C3%A9",
		"":                                       "",
		"a.example/x":                            "",
		"ftp://a.example/x":                      "",
		"https:a.example":                        "",
		"https:///x":                             "",
		"https://u:p@a.example/":                 "",
		"https://a.example/%zz":                  "",
		"https://a.example:port/":                "",
		"https://a.example/" + string(rune(127)): "",
	} {
		got, err := normalize(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestNonces(t *testing.T) {
	key := bytes.Repeat([]byte{7}, minNonceKey)
	n, err := NewNonces(key, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	same, _ := NewNonces(key, time.Minute)
	other, _ := NewNonces(nil, time.Minute)
	nonce := n.Issue(testNow)
	for d, want := range map[time.Duration]bool{
		0: true, time.Minute: true, -2 * time.Minute: false,
		2 * time.Minute: false, time.Hour: false,
	} {
		if n.Valid(nonce, testNow.Add(d)) != want || same.Valid(nonce, testNow.Add(d)) != want ||
			other.Valid(nonce, testNow.Add(d)) {
			t.Errorf("after %s", d)
		}
	}
	for i := range nonce {
		if forged := nonce[:i] + string(nonce[i]^1) + nonce[i+1:]; n.Valid(forged, testNow) {
			t.Errorf("%s passed", forged)
		}
	}
	for _, forged := range []string{
		"", "A", nonce + "A", nonce[1:], nonce + "\n",
		strings.Repeat("A", 1000),
	} {
		if n.Valid(forged, testNow) {
			t.Errorf("%q passed", forged)
		}
	}
	if _, err := NewNonces(key[1:], 0); err == nil {
		t.Error("a short key passed")
	}
	if d, _ := NewNonces(nil, 0); d.life != 5*time.Minute {
		t.Error(d.life)
	}
}

func BenchmarkReadProof(b *testing.B) {
	for _, alg := range []string{"ES256", "EdDSA"} {
		raw := newSigner(b, alg, "").proof(nil, dict{"ath": sum("token")})
		b.Run(alg, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ReadProof(raw, "POST", "https://rpc.example/mcp", "token"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
