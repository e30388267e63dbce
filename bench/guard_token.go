package main

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// What the tokens below say.
const (
	tokenIssuer   = "https://id.example.com/realms/bench"
	tokenAudience = "https://rpc.example.com/mcp"

	apiKey = "fk_bench_9f2c4e61d07b48a5b3c6e1f0a8d27c45"
)

func apiKeyHash() string {
	sum := sha256.Sum256([]byte(apiKey))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// tokens are JWTs by RS256, as identity providers issue them, and the key that they are verified
// with.
type tokens struct {
	jwks string
	list [inFlight]string
}

// newTokens makes a token for each caller, once.
var newTokens = sync.OnceValues(func() (*tokens, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	coded := base64.RawURLEncoding.EncodeToString
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "kid": "2026-a", "alg": "RS256", "use": "sig",
		"n": coded(key.N.Bytes()), "e": "AQAB",
	}}})
	if err != nil {
		return nil, err
	}
	t := &tokens{jwks: string(set)}
	now := time.Now()
	for i := range t.list {
		claims, err := json.Marshal(map[string]any{
			"iss": tokenIssuer, "aud": []string{tokenAudience},
			"sub": fmt.Sprintf("3f0f8d1a-6a5e-4c53-9d0b-7d1f4e5a%04d", i),
			"azp": "desktop", "client_id": "desktop", "scope": "openid profile email calls",
			"roles": []string{"reader", "dev"}, "email": fmt.Sprintf("user%d@example.com", i),
			"name": "A User",
			"jti":  rand.Text(), "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		})
		if err != nil {
			return nil, err
		}
		text := coded([]byte(`{"alg":"RS256","typ":"at+jwt","kid":"2026-a"}`)) + "." + coded(claims)
		sum := sha256.Sum256([]byte(text))
		sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
		if err != nil {
			return nil, err
		}
		t.list[i] = text + "." + coded(sig)
	}
	return t, nil
})

// headers are what a caller shows.
func (t *tokens) headers(way string, caller int) map[string]string {
	switch way {
	case unguarded:
		return nil
	case guardKey:
		return map[string]string{"X-API-Key": apiKey}
	}
	return map[string]string{"Authorization": "Bearer " + t.list[caller]}
}

// ed25519Keys returns a public key, as a configuration has it, and its other half.
func ed25519Keys() (string, ed25519.PrivateKey) {
	private := ed25519.NewKeyFromSeed([]byte("a seed for the bench, not a key!"))
	return base64.StdEncoding.EncodeToString(private.Public().(ed25519.PublicKey)), private
}
