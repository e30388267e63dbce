package guard

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/guard/internal/policy"
	"github.com/farcall-dev/farcall/guard/internal/sign"
	"github.com/farcall-dev/farcall/guard/internal/token"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A session is what is known of who calls, and from where. It is not changed.
type session struct {
	principal *Principal
	subject   *policy.Subject // the same, for policies
	owner     owner.Key       // of what is kept for the caller; zero until the request is let in
	remote    string          // address, without the port
	transport string
	local     bool       // of a connection; for HTTP see state.local
	http      *exchange  // nil: the call came otherwise
	attempt   *attempt   // of a message that a ticket is for; nil: none is
	at        *connected // that it is the session of; nil: of a request or a message
}

type sessionKey struct{}

func sessionFrom(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// known is a principal and what is derived of it, once.
type known struct {
	principal *Principal
	subject   *policy.Subject
	owner     owner.Key // zero: anonymous
}

func knownAs(p *Principal) *known {
	key := p.owner()
	if p.shown != nil && p.shown.owner == "" && !key.IsZero() { // the guard has just made it
		p.shown.owner = key.Text()
	}
	return &known{p, &policy.Subject{
		ID: p.ID, Name: p.Name(), Kind: p.Kind, Method: p.Method, Issuer: p.Issuer, Roles: p.Roles,
		Scopes: p.Scopes, Claims: p.Claims,
	}, key}
}

// The ID, the Kind and the Method of an anonymous principal.
const (
	anonymousID   = "anonymous"
	anonymousKind = "anonymous"
	noMethod      = "none"
)

// address returns the owner that stands for the anonymous callers of an address. Callers without a
// known address are one.
func address(remote string) owner.Key {
	return owner.Or(owner.Address(remote), owner.Address("unknown"))
}

// anonymous is who calls without credentials, where that is allowed.
func anonymous() *known {
	return knownAs(
		&Principal{
			ID: anonymousID, Kind: anonymousKind, Method: noMethod, Roles: []string{"anonymous"},
			shown: new(shown),
		})
}

// request finds out who sends a request over HTTP.
func (s *state) request(x *exchange) (*known, *refusal) {
	r := x.r
	if s.g.opts.Authenticate != nil {
		if after := s.g.guesses.wait(r.Header, host(r.RemoteAddr), s.g.now()); after > 0 {
			refused := refuse(jsonrpc.RateLimited,
				"too many wrong credentials from "+host(r.RemoteAddr)+"; this one was not looked at")
			return nil, refused.later(after)
		}
		p, err := s.g.opts.Authenticate(r)
		if err != nil {
			s.g.guesses.refused(r.Header, host(r.RemoteAddr))
			return nil, refuse(jsonrpc.Unauthenticated, err.Error())
		}
		if p != nil {
			return knownAs(p), nil
		}
	}
	headers := r.Header["Authorization"]
	keys := r.Header["X-Api-Key"]
	given, signed := len(headers)+len(keys), sign.HTTPHasSignature(r)
	switch {
	case given > 1, given > 0 && signed:
		return nil, refuse(jsonrpc.Unauthenticated, "there is more than one credential")
	case signed:
		return s.signedRequest(x)
	case len(headers) == 1:
		scheme, value, _ := strings.Cut(headers[0], " ")
		return s.authorization(x, scheme, strings.TrimSpace(value))
	case len(keys) == 1:
		return s.key(keys[0])
	}
	if k, refused := s.certificate(r.TLS); k != nil || refused != nil {
		return k, refused
	}
	if s.c.Anonymous {
		return s.anonymous, nil
	}
	return nil, refuse(jsonrpc.Unauthenticated, noCredentials)
}

// authorization reads the header of that name.
func (s *state) authorization(x *exchange, scheme, value string) (*known, *refusal) {
	switch {
	case value == "":
		return nil, refuse(jsonrpc.Unauthenticated, "the Authorization header has no credential")
	case strings.EqualFold(scheme, "bearer"):
		return s.bearer(x, value)
	case strings.EqualFold(scheme, "dpop") && s.verifier != nil:
		return s.token(x, value, true)
	}
	return nil, refuse(jsonrpc.Unauthenticated,
		fmt.Sprintf("the scheme %.20q of the Authorization header is not accepted", scheme))
}

// bearer looks a key or a token up. What begins as tokens do is looked up as a token first: there
// is one lookup then.
func (s *state) bearer(x *exchange, value string) (*known, *refusal) {
	if s.verifier == nil {
		return s.key(value)
	}
	if strings.HasPrefix(value, "eyJ") {
		k, refused := s.token(x, value, false)
		if refused != nil && len(s.keys) > 0 {
			if k, _ := s.key(value); k != nil {
				return k, nil
			}
		}
		return k, refused
	}
	k, refused := s.key(value)
	if k != nil || strings.HasPrefix(value, madeKey) {
		// a key that is not known is not for an issuer to see
		return k, refused
	}
	return s.token(x, value, false)
}

// key looks an API key up.
func (s *state) key(value string) (*known, *refusal) {
	digest := sha256.Sum256([]byte(value))
	k := s.keys[digest]
	// Anyone who measures the time of the lookup learns of a digest that they cannot choose.
	if k == nil || subtle.ConstantTimeCompare(k.digest[:], digest[:]) != 1 {
		return nil, refuse(jsonrpc.Unauthenticated, "the key is not known")
	}
	if e := k.principal.Expires; !e.IsZero() && !s.g.now().Before(e) {
		return nil, refuse(jsonrpc.Unauthenticated, "the key of "+k.principal.ID+" has expired")
	}
	return &k.known, nil
}

// token checks a JWT, and the proof that the caller owns it.
func (s *state) token(x *exchange, raw string, proved bool) (*known, *refusal) {
	t, err := s.verifier.Verify(s.asking(x), raw)
	if err != nil {
		return nil, tokenRefusal(err)
	}
	k, mode := s.tokenKnown(t, raw), s.c.JWT[t.IssuerIndex].DPoP
	switch {
	case proved && mode == "refused":
		return nil, refuse(jsonrpc.Unauthenticated, "DPoP is not accepted from this issuer")
	case proved:
		if refused := s.proof(x, raw, t, k.owner, mode == "required"); refused != nil {
			return nil, refused
		}
	case t.KeyThumbprint != "":
		return nil, refuse(jsonrpc.Unauthenticated,
			"the token is bound to a key (DPoP) and was sent as a bearer token")
	case mode == "required":
		return nil, refuse(jsonrpc.Unauthenticated,
			"the issuer's tokens need DPoP, and this one is a bearer token")
	}
	if t.CertThumbprint != "" && !hasCertificate(x.r.TLS, t.CertThumbprint) {
		return nil, refuse(jsonrpc.Unauthenticated,
			"the token is bound to a client certificate (RFC 8705) that the connection does not have")
	}
	return k, nil
}

func tokenRefusal(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	if bad := (*token.Error)(nil); errors.As(err, &bad) && bad.Reason == "unavailable" {
		return unavailable(err)
	}
	return refuse(jsonrpc.Unauthenticated, err.Error())
}

// tokenKnown is the principal of a token, which is remembered as long as the token is.
func (s *state) tokenKnown(t *token.Token, raw string) *known {
	if k, ok := t.Memo().(*known); ok {
		return k
	}
	i := &s.c.JWT[t.IssuerIndex]
	k := knownAs(&Principal{
		ID: t.Subject, Kind: or(i.Kind, "user"), Method: "jwt", Issuer: t.Issuer, Roles: t.Roles,
		Scopes: t.Scopes,
		Claims: t.Claims, Expires: t.Expires, shown: &shown{token: func() string {
			return raw
		}, keys: t.Keys()},
	})
	t.SetMemo(k)
	return k
}

func hasCertificate(c *tls.ConnectionState, thumbprint string) bool {
	if c == nil || len(c.PeerCertificates) == 0 {
		return false
	}
	sum := sha256.Sum256(c.PeerCertificates[0].Raw)
	return subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])),
		[]byte(thumbprint)) == 1
}

// proof checks a DPoP proof (RFC 9449, section 4.3).
func (s *state) proof(x *exchange, raw string, t *token.Token, o owner.Key, strict bool) *refusal {
	proofs := x.r.Header["Dpop"]
	if len(proofs) != 1 {
		return refuse(jsonrpc.Unauthenticated,
			fmt.Sprintf("there are %d DPoP headers, and one is wanted", len(proofs)))
	}
	p, err := token.ReadProof(proofs[0], x.r.Method, s.target(x.r), raw)
	if err != nil {
		return refuse(jsonrpc.Unauthenticated, err.Error())
	}
	now := s.g.now()
	switch {
	case t.KeyThumbprint == "":
		return refuse(jsonrpc.Unauthenticated, "the token is not bound to a key, and came with a proof")
	case subtle.ConstantTimeCompare([]byte(p.Thumbprint), []byte(t.KeyThumbprint)) != 1:
		return refuse(jsonrpc.Unauthenticated, "the proof is of another key than the token")
	case p.Nonce == "" && strict, p.Nonce != "" && !s.g.dpop.Valid(p.Nonce, now):
		r := refuse(jsonrpc.Unauthenticated, "the proof lacks a nonce of this server that is still good")
		r.nonce = true
		return r
	}
	if refused := s.window(p.Issued, now); refused != nil {
		return refused
	}
	var refused *refusal
	if forwarded.Vouched(x.r.Context()) {
		return nil
	}
	x.ticket, refused = s.claim(x.r.Context(), o, "dpop "+p.Thumbprint+" "+p.ID, p.Issued)
	return refused
}

// target is the address of a request as its sender knows it.
func (s *state) target(r *http.Request) string {
	if s.origin != "" {
		return s.origin + r.URL.EscapedPath()
	}
	scheme := "http://"
	if forwarded.Secure(r) {
		scheme = "https://"
	}
	return scheme + r.Host + r.URL.EscapedPath()
}

// signature admits a signature that is genuine. The nonce of one that another node has let in was
// claimed there.
func (s *state) signature(
	ctx context.Context, sig *sign.Signature, letIn bool,
) (*known, *ticket, *refusal) {
	now := s.g.now()
	if refused := s.window(sig.Created, now); refused != nil {
		return nil, nil, refused
	}
	if !sig.Expires.IsZero() && !now.Before(sig.Expires) {
		return nil, nil, refuse(jsonrpc.Stale, "the signature has expired")
	}
	k := s.signers[sig.KeyID]
	if letIn {
		return k, nil, nil
	}
	t, refused := s.claim(ctx, k.owner, "sig "+sig.KeyID+" "+sig.Nonce, sig.Created)
	return k, t, refused
}

func (s *state) signedRequest(x *exchange) (*known, *refusal) {
	// The sender may have signed it for another server, which sends it on.
	if s.host != "" && !strings.EqualFold(x.r.Host, s.host) {
		return nil, refuse(jsonrpc.BadSignature,
			fmt.Sprintf("it is for the host %.100q, and this is %q", x.r.Host, s.host))
	}
	sig, err := sign.VerifyHead(x.r, x.r.ContentLength != 0, s.verify)
	if err != nil {
		return nil, refuse(jsonrpc.BadSignature, err.Error())
	}
	k, t, refused := s.signature(x.r.Context(), sig, forwarded.Vouched(x.r.Context()))
	if refused != nil {
		return nil, refused
	}
	x.ticket = t
	body, err := x.body(k) // only for the owner of a key
	if errors.Is(err, budget.ErrNoRoom) {
		return nil, refuse(jsonrpc.Overloaded, err.Error()).later(time.Second)
	}
	if err != nil {
		return nil, refuse(jsonrpc.BadSignature, "the body of the request cannot be read: "+err.Error())
	}
	if err := sign.CheckBody(x.r, body); err != nil {
		return nil, refuse(jsonrpc.BadSignature, err.Error())
	}
	return k, nil
}

// certificate names the holder of a client certificate with the chain that the listener has
// checked. Neither a principal nor a refusal: there is none.
func (s *state) certificate(c *tls.ConnectionState) (*known, *refusal) {
	if len(s.c.MTLS) == 0 || c == nil || len(c.PeerCertificates) == 0 {
		return nil, nil
	}
	if len(c.VerifiedChains) == 0 {
		return nil, refuse(jsonrpc.Unauthenticated,
			"the listener has not checked the client certificate; it needs the authorities")
	}
	leaf := c.PeerCertificates[0]
	sum := sha256.Sum256(leaf.Raw)
	now := s.g.now()
	if now.After(leaf.NotAfter) { // of a connection that outlives it
		return nil, refuse(jsonrpc.Unauthenticated, "the client certificate has expired")
	}
	for i := range s.c.MTLS {
		m := &s.c.MTLS[i]
		for _, san := range names(leaf) {
			if matchSAN(m.SAN, san) && s.signedFor(i, c) {
				return knownAs(&Principal{
					ID: or(m.ID, san), Kind: or(m.Kind, "service"), Method: "mtls", Roles: m.Roles,
					Expires: leaf.NotAfter, shown: &shown{keys: []string{hashName(sum[:])}},
				}), nil
			}
		}
	}
	return nil, refuse(jsonrpc.Unauthenticated,
		fmt.Sprintf("the client certificate is for %.200q of %.200q, and no entry under mtls has the "+
			"name with that authority", names(leaf), leaf.Issuer.String()))
}

func names(c *x509.Certificate) []string {
	list := slices.Clone(c.DNSNames)
	for _, u := range c.URIs {
		list = append(list, u.String())
	}
	return list
}

// matchSAN matches a name by segments: a * is one of them, or a part of one, and at the end of a
// URI all that follow. A name with dots and slashes is never taken for another one's.
func matchSAN(pattern, name string) bool {
	if strings.Contains(pattern, "://") != strings.Contains(name, "://") {
		return false
	}
	if !strings.Contains(pattern, "://") {
		pattern, name = strings.ToLower(pattern), strings.ToLower(name)
	}
	return wild(pattern, name)
}

func wild(pattern, name string) bool {
	before, after, ok := strings.Cut(pattern, "*")
	if !ok {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, before)
	if !ok {
		return false
	}
	uri := strings.Contains(pattern, "://")
	if after == "" && uri {
		return rest != ""
	}
	for i := 0; i <= len(rest); i++ {
		if i > 0 && wild(after, rest[i:]) {
			return true
		}
		if i < len(rest) && (rest[i] == '/' || rest[i] == '.' && !uri) {
			break
		}
	}
	return false
}

// conn finds out who is at the other end of a connection. Neither: only messages that are signed
// count.
func (s *state) conn(ctx context.Context, c *Conn) (*known, *refusal) {
	if c.Principal != nil {
		return s.again(ctx, c)
	}
	if c.Transport == "stdio" {
		return s.stdio(ctx)
	}
	if k, refused := s.certificate(c.TLS); k != nil || refused != nil {
		return k, refused
	}
	if s.c.Anonymous {
		return s.anonymous, nil
	}
	return nil, nil
}

// again finds out whether who was known at the handshake of a connection still is, and with which
// roles: the configuration may be another one since.
func (s *state) again(ctx context.Context, c *Conn) (*known, *refusal) {
	p := c.Principal
	if p.shown == nil {
		return knownAs(p), nil
	}
	var k *known
	switch p.Method {
	case "key":
		if found := s.keys[p.shown.secret]; found != nil {
			k = &found.known
		}
	case "signature":
		if k = s.signers[p.ID]; k != nil && k.principal.shown.secret != p.shown.secret {
			k = nil
		}
	case "jwt":
		if s.verifier == nil {
			break
		}
		t, err := s.verifier.Verify(ctx, p.Token())
		if err != nil {
			return nil, tokenRefusal(err)
		}
		if s.c.JWT[t.IssuerIndex].DPoP != "required" || t.KeyThumbprint != "" {
			k = s.tokenKnown(t, p.Token())
		}
	case "mtls":
		var refused *refusal
		if k, refused = s.certificate(c.TLS); refused != nil {
			return nil, refused
		}
	case noMethod:
		if s.c.Anonymous {
			k = s.anonymous
		}
	}
	if k == nil {
		return nil, refuse(jsonrpc.Unauthenticated,
			"the credentials of "+p.Name()+" count no more: the configuration has changed")
	}
	return k, nil
}

// stdio is who started this process.
func (s *state) stdio(ctx context.Context) (*known, *refusal) {
	c := &s.c.Stdio
	if c.TokenEnv == "" {
		if c.Trust != nil && !*c.Trust {
			return nil, nil
		}
		return knownAs(
			&Principal{ID: or(c.ID, "local"), Kind: "process", Method: "process", Roles: c.Roles}), nil
	}
	value := os.Getenv(c.TokenEnv)
	if value == "" {
		return nil, refuse(jsonrpc.Unauthenticated,
			"there is no token in the environment variable "+c.TokenEnv)
	}
	if k, refused := s.key(value); k != nil || s.verifier == nil {
		return k, refused
	}
	t, err := s.verifier.Verify(ctx, value)
	if err != nil {
		return nil, tokenRefusal(err)
	}
	if t.KeyThumbprint != "" || t.CertThumbprint != "" || s.c.JWT[t.IssuerIndex].DPoP == "required" {
		return nil, refuse(jsonrpc.Unauthenticated,
			"the token in "+c.TokenEnv+
				" is bound to a key, or has to be, and standard input has no way to prove that")
	}
	return s.tokenKnown(t, value), nil
}

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

// readHash reads the hash of a key.
func readHash(text string) (digest [sha256.Size]byte, err error) {
	raw, ok := strings.CutPrefix(text, "sha256:")
	b, bad := hex.DecodeString(raw)
	if !ok || bad != nil || len(b) != len(digest) {
		return digest, errors.New("it is not sha256: and 64 hexadecimal digits")
	}
	copy(digest[:], b)
	return digest, nil
}

// madeKey begins the keys that farcall makes.
const madeKey = "fk_"

// askingKey is the key of the address for which an issuer is asked about a token.
type askingKey struct{}

// asking is the context in which a token of a request is verified.
func (s *state) asking(x *exchange) context.Context {
	ctx := x.r.Context()
	if !slices.ContainsFunc(s.c.JWT, func(i Issuer) bool { return i.Introspection.URL != "" }) {
		return ctx
	}
	return context.WithValue(ctx, askingKey{}, host(x.r.RemoteAddr))
}

// newIntrospections bounds what callers make this server ask issuers: of each address 100 tokens,
// and 10 a second, 16 at once; of all 128 at once, and none takes more than a fair share.
func newIntrospections(now func() time.Time) *limit.Limiter {
	return limit.New(&limit.Options{
		Rates: []limit.Rate{{Per: "address", Limit: 10, Burst: 100, Every: time.Second}}, Concurrent: 16,
		Total: 128, Now: now,
	})
}

// admitIntrospection is token.Options.Admit. Open connections, when their tokens are asked about
// again, are bounded otherwise.
func (g *Guard) admitIntrospection(ctx context.Context) (by owner.Key, release func(), err error) {
	remote, ok := ctx.Value(askingKey{}).(string)
	if !ok {
		return by, func() {}, nil
	}
	by = address(remote)
	release, err = g.introspections.Take(&limit.Caller{Owner: by, Address: remote}, "introspect")
	if full := (*limit.Exceeded)(nil); errors.As(err, &full) {
		r := refuse(jsonrpc.RateLimited,
			"too many tokens from "+remote+" that the issuer has to be asked about")
		r.after = full.RetryAfter
		return by, nil, r
	}
	return by, release, err
}

// revoked reports whether the token of an open connection no longer counts, where its issuer is
// asked.
func (s *state) revoked(ctx context.Context, c *Conn) bool {
	p := c.Principal
	if p == nil || p.shown == nil || p.Method != "jwt" || s.verifier == nil ||
		!s.verifier.Introspects(p.Issuer) {
		return false
	}
	_, refused := s.again(ctx, c)
	return refused != nil && refused.status == http.StatusUnauthorized
}
