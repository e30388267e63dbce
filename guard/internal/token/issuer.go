package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/fetch"
)

const (
	defaultSkew       = 30 * time.Second
	defaultRefresh    = time.Hour
	defaultKeysMaxAge = 24 * time.Hour
)

var defaultAlgorithms = []string{"RS256", "PS256", "ES256", "ES384", "EdDSA"}

// An issuer has the rules for the tokens of an Issuer, with all defaults in place.
type issuer struct {
	Issuer
	index int
	keys  *source

	introspect *introspector // nil: its tokens are not asked about
}

func newIssuer(v *Verifier, of *Issuer, index int, client *http.Client) (*issuer, error) {
	i := &issuer{Issuer: *of, index: index}
	i.Skew = cmp.Or(i.Skew, defaultSkew)
	i.Refresh = cmp.Or(i.Refresh, defaultRefresh)
	i.KeysMaxAge = cmp.Or(i.KeysMaxAge, max(defaultKeysMaxAge, 2*i.Refresh))
	i.ID = cmp.Or(i.ID, "sub")
	i.Roles = cmp.Or(i.Roles, "roles")
	if len(i.Algorithms) == 0 {
		i.Algorithms = defaultAlgorithms
	}
	if i.Issuer.Issuer == "" {
		return nil, errors.New("it has no name; give the value of the claim iss")
	}
	if len(i.Audience) == 0 || slices.Contains(i.Audience, "") {
		return nil, errors.New(
			"it has no audience, so tokens for anybody else would count; give the value of the claim aud " +
				"that is this server")
	}
	for _, alg := range i.Algorithms {
		if _, known := algorithms[alg]; !known {
			return nil,
				fmt.Errorf("the algorithm %q is not allowed; use %s, with other hashes where there are", alg,
					strings.Join(defaultAlgorithms, ", "))
		}
	}
	if i.Skew < 0 || i.MaxAge < 0 || i.Refresh < 0 || i.KeysMaxAge < 0 {
		return nil, errors.New("a time is negative")
	}
	if i.KeysMaxAge < i.Refresh {
		return nil,
			fmt.Errorf("keys_max_age is %s, less than refresh (%s), so its keys would not count part of "+
				"the time; make it at least twice as long", i.KeysMaxAge, i.Refresh)
	}
	var err error
	if i.introspect, err = newIntrospector(v, i, client); err != nil {
		return nil, err
	}
	if i.Introspection.Opaque && i.JWKS == "" && !strings.Contains(i.Issuer.Issuer, "://") {
		// it has none: all of its tokens are opaque
		i.keys = &source{v: v, of: &i.Issuer, fixed: true, known: true}
		return i, nil
	}
	i.keys, err = newSource(v, &i.Issuer, client)
	return i, err
}

// discovery returns where the metadata of an issuer is: OpenID Connect Discovery 1.0 §4, RFC 8414
// §3.1, and the former as the latter has it (RFC 8414 §5).
func discovery(name string) (issuer *url.URL, addresses []string, err error) {
	u, err := url.Parse(name)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" ||
		u.ForceQuery || u.Fragment != "" {
		return nil, nil, errors.New("its keys cannot be discovered, as it is no URL; say where they are")
	}
	const oidc, oauth = "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"
	if err := fetch.Check(name); err != nil {
		return nil, nil, err
	}
	root := u.Scheme + "://" + u.Host
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	addresses = []string{root + path + oidc, root + oauth + path}
	if path != "" {
		addresses = append(addresses, root+oidc+path)
	}
	return u, addresses, nil
}

// checkHeader refuses tokens by what their header says.
func (i *issuer) checkHeader(p *parsed) error {
	if !slices.Contains(i.Algorithms, p.alg) {
		return refuse("algorithm", "alg is not among those of the issuer")
	}
	if _, there := p.header["jwk"]; there {
		return refuse("malformed", "its header brings a key along")
	}
	switch strings.TrimPrefix(p.typ, "application/") {
	case "", "jwt":
	case "at+jwt":
		p.access = true
	default:
		return refuse("type", "typ is neither at+jwt nor JWT")
	}
	return nil
}

// signer returns the key of the issuer that has signed a token; nil: none of those it may be.
func (i *issuer) signer(ctx context.Context, p *parsed) (*key, error) {
	for again := p.kid == nil; ; again = false {
		keys, err := i.keys.find(ctx, p.kid, p.alg)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			if k.verify(p) == nil {
				return k, nil
			}
		}
		if !again {
			return nil, nil
		}
		// It does not say by which key it is, so that may be a new one.
		if done, err := i.keys.renew(ctx); !done || err != nil {
			return nil, err
		}
	}
}

// read checks the claims of a token that by has signed.
func (i *issuer) read(claims map[string]any, access bool, now time.Time, by *key) (*entry, error) {
	if !access {
		// An ID token is for a client to read, not for a server to let anybody in (RFC 9068 §1).
		for _, name := range []string{"nonce", "at_hash", "c_hash"} {
			if _, there := claims[name]; there {
				return nil, refuse("type",
					"it has %s, so it is an ID token; an access token that has it must have the typ at+jwt", name)
			}
		}
	}
	until, err := i.times(claims, now)
	if err != nil {
		return nil, err
	}
	if err := i.checkAudience(claims); err != nil {
		return nil, err
	}
	t := &Token{Issuer: i.Issuer.Issuer, IssuerIndex: i.index, Claims: claims}
	t.Expires = until
	if by.id != nil {
		t.KeyID = *by.id
	}
	if err := i.fill(t, claims); err != nil {
		return nil, err
	}
	return &entry{token: t, key: by, until: until}, nil
}

func (i *issuer) checkAudience(claims map[string]any) error {
	audience, ok := list(claims["aud"], false)
	if !ok || !slices.ContainsFunc(audience, func(s string) bool {
		return slices.Contains(i.Audience, s)
	}) {
		return refuse("audience", "aud has none of %q", i.Audience)
	}
	return nil
}

// fill reads what the claims say about the principal, after those that must have a value.
func (i *issuer) fill(t *Token, claims map[string]any) error {
	for path, want := range i.Claims {
		if v, there := lookup(claims, path); !there || !holds(v, want) {
			return refuse("claims", "the claim %s is not %q", path, want)
		}
	}
	id, _ := lookup(claims, i.ID)
	var ok bool
	if t.Subject, ok = id.(string); !ok || t.Subject == "" {
		return refuse("claims", "the claim %s, which names the principal, is missing or no string", i.ID)
	}
	if roles, there := lookup(claims, i.Roles); there {
		if t.Roles, ok = list(roles, true); !ok {
			return refuse("claims", "the claim %s is no list of roles", i.Roles)
		}
	}
	return t.readClient(claims)
}

// times checks the claims about time (RFC 7519 §4.1.4 to §4.1.6), and returns when the token
// ends, as far as this server's clock goes.
func (i *issuer) times(claims map[string]any, now time.Time) (until time.Time, err error) {
	exp, there, err := date(claims, "exp")
	if err != nil {
		return until, err
	}
	if !there {
		return until, refuse("claims", "it has no exp, so it would be valid for ever")
	}
	if until = exp.Add(i.Skew); !now.Before(until) {
		return until, refuse("expired", "exp was %s ago", now.Sub(exp).Round(time.Second))
	}
	for _, name := range []string{"nbf", "iat"} {
		at, _, err := date(claims, name)
		if err != nil {
			return until, err
		}
		if at.After(now.Add(i.Skew)) {
			return until, refuse("not-yet", "%s is %s ahead of the clock here", name,
				at.Sub(now).Round(time.Second))
		}
	}
	if i.MaxAge > 0 {
		iat, there, _ := date(claims, "iat")
		if !there {
			return until, refuse("claims", "it has no iat, so its age is not known")
		}
		if end := iat.Add(i.MaxAge + i.Skew); end.Before(until) {
			until = end
		}
		if !now.Before(until) {
			return until, refuse("expired", "it was issued %s ago; %s are allowed",
				now.Sub(iat).Round(time.Second), i.MaxAge)
		}
	}
	return until, nil
}

// readClient reads what is not about the issuer: the audience and the purpose of the token, and to
// what it is bound (RFC 7800).
func (t *Token) readClient(claims map[string]any) error {
	for _, name := range []string{"azp", "client_id"} {
		if s, ok := claims[name].(string); ok {
			t.ClientID = s
		}
	}
	for _, name := range []string{"scp", "scope"} {
		if v, there := claims[name]; there {
			scopes, ok := list(v, true)
			if !ok {
				return refuse("claims", "%s is no list", name)
			}
			t.Scopes = scopes
		}
	}
	v, there := claims["cnf"]
	if !there {
		return nil
	}
	cnf, _ := v.(map[string]any)
	t.KeyThumbprint, _ = cnf["jkt"].(string)
	t.CertThumbprint, _ = cnf["x5t#S256"].(string)
	if t.KeyThumbprint == "" && t.CertThumbprint == "" {
		return refuse("claims", "cnf binds it to something that cannot be checked here")
	}
	return nil
}

// date reads a NumericDate (RFC 7519 §2).
func date(claims map[string]any, name string) (at time.Time, there bool, err error) {
	v, there := claims[name]
	if !there {
		return at, false, nil
	}
	f, ok := v.(float64)
	if !ok || !(f >= 0 && f < 1<<38) { // the year 10680
		return at, true, refuse("claims", "%s is no time", name)
	}
	whole, part := math.Modf(f)
	return time.Unix(int64(whole), int64(part*1e9)), true, nil
}

// list reads strings: a list of them, or one, which may be several with spaces between them.
func list(v any, spaces bool) ([]string, bool) {
	switch v := v.(type) {
	case string:
		if spaces {
			return strings.Fields(v), true
		}
		return []string{v}, true
	case []any:
		all := make([]string, len(v))
		for n, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, false
			}
			all[n] = s
		}
		return all, true
	}
	return nil, false
}

// lookup returns the claim at a path with dots. A name that has dots itself counts first.
func lookup(claims map[string]any, path string) (any, bool) {
	if v, there := claims[path]; there {
		return v, true
	}
	for n, c := range path {
		if c == '.' {
			if inner, ok := claims[path[:n]].(map[string]any); ok {
				if v, there := lookup(inner, path[n+1:]); there {
					return v, true
				}
			}
		}
	}
	return nil, false
}

// holds reports whether a claim has a value: it is it, or a list with it.
func holds(v any, want string) bool {
	switch v := v.(type) {
	case string:
		return v == want
	case bool:
		return strconv.FormatBool(v) == want
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64) == want
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { s, ok := e.(string); return ok && s == want })
	}
	return false
}
