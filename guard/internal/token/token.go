// Package token answers one question: is this token (a JWT, a DPoP proof) genuine?
//
// A token is read strictly before anything is believed of it: the compact form of RFC 7515 with
// base64url as RFC 4648 has it, JSON without duplicate members, an algorithm that its issuer may
// use. Which issuer that is, the unverified claim iss says; from then on only the keys and the
// rules of this issuer count. Nothing in a token leads to a key: kid is a name among the keys of
// the issuer, and what would bring a key along (jwk, jku, x5u, x5c) is refused.
package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
)

// An Issuer is guard.Issuer, and converts from it; the zero values of Algorithms, Skew, ID, Roles
// and Refresh are the defaults that are documented there. Kind and DPoP are not read here.
type Issuer struct {
	Issuer        string
	JWKS          string
	Audience      []string
	Algorithms    []string
	Skew, MaxAge  time.Duration
	ID, Roles     string
	Kind          string
	Claims        map[string]string
	DPoP          string
	Private       bool
	Refresh       time.Duration
	KeysMaxAge    time.Duration
	Introspection struct {
		URL, ClientID, ClientSecret, Auth string
		Opaque, AnyAudience               bool
		TTL, Timeout                      time.Duration
	}
}

// Options adjust a Verifier. The zero value, and nil, mean the defaults.
type Options struct {
	HTTP   *http.Client     // as in fetch.Options
	Logger *slog.Logger     // takes fetches of keys that failed; default: nothing is logged
	Now    func() time.Time // what claims are checked against; default time.Now
	// Admit is asked before an issuer is asked about a token (RFC 7662), with the caller, and for
	// room; its error is that of Verify, and release is called when the issuer has answered. Nil: all
	// are admitted.
	Admit func(ctx context.Context) (by owner.Key, release func(), err error)
}

// A Token is what a genuine token says. It must not be changed: it is shared with
// all who present the same one.
type Token struct {
	Issuer, Subject, ClientID string
	Scopes, Roles             []string
	Claims                    map[string]any // numbers are float64
	// when it will be refused: exp, or the end of MaxAge, and Skew
	Expires time.Time
	// cnf.jkt: it needs a DPoP proof by this key (RFC 9449 §6)
	KeyThumbprint string
	KeyID         string // kid of the key that signed it
	// cnf.x5t#S256: it needs this client certificate (RFC 8705 §3.1)
	CertThumbprint string
	IssuerIndex    int // among the issuers of New

	memo atomic.Pointer[any]
}

// Keys are the names by which the key of the issuer, and that of the caller, can be locked.
func (t *Token) Keys() []string {
	return slices.DeleteFunc([]string{t.KeyID, t.KeyThumbprint}, func(s string) bool {
		return s == ""
	})
}

// Memo returns what SetMemo has kept with the token, which a cache may return again, or nil.
func (t *Token) Memo() any {
	if v := t.memo.Load(); v != nil {
		return *v
	}
	return nil
}

// SetMemo keeps a value as long as the token is remembered.
func (t *Token) SetMemo(v any) { t.memo.Store(&v) }

// An Error says why a token was refused. Neither it nor its cause has words of the token.
type Error struct {
	// Reason is "expired", "not-yet", "audience", "issuer", "algorithm", "signature", "key",
	// "malformed", "claims", "type", "inactive": its issuer says so, or "unavailable": the keys of the
	// issuer cannot be had, or it cannot be asked, which is no fault of the token.
	Reason string
	Cause  error // for the log
}

func (e *Error) Error() string { return "token: " + e.Reason }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func refuse(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Cause: fmt.Errorf(format, args...)}
}

// A Verifier verifies tokens. Its methods may be called by any number of goroutines at once. Keys
// are fetched when the first token needs them, and again every Refresh and when a token names one
// that is not known.
type Verifier struct {
	issuers map[string]*issuer
	cache   cache
	now     func() time.Time
	log     *slog.Logger
	admit   func(context.Context) (owner.Key, func(), error)
	opaque  *issuer // with tokens that need not be JWT; nil: none

	ctx  context.Context //nolint:containedctx // ends with Close
	stop context.CancelFunc
	wake chan struct{} // a fetch has ended
	work sync.WaitGroup

	mu      sync.Mutex
	started bool // the goroutine that refreshes
	closed  bool
}

// New returns a verifier. It fetches nothing yet, but reads the keys that are in files.
func New(issuers []Issuer, o *Options) (*Verifier, error) {
	o = cmp.Or(o, &Options{})
	v := &Verifier{
		issuers: make(map[string]*issuer, len(issuers)), cache: newCache(), now: o.Now,
		log: o.Logger, admit: o.Admit, wake: make(chan struct{}, 1),
	}
	if v.now == nil {
		v.now = time.Now
	}
	v.log = cmp.Or(v.log, slog.New(slog.DiscardHandler))
	v.ctx, v.stop = context.WithCancel(context.Background()) //nolint:forbidigo // keys outlive the call that needs them first, and end with Close
	var errs []error
	for n := range issuers {
		i, err := newIssuer(v, &issuers[n], n, o.HTTP)
		if err == nil && v.issuers[i.Issuer.Issuer] != nil {
			err = errors.New("it is there twice")
		}
		if err == nil && i.Introspection.Opaque {
			if v.opaque != nil {
				err = errors.New(
					"another issuer has opaque tokens as well, and a token does not name its issuer; only one " +
						"of them can")
			}
			v.opaque = i
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("issuer %q: %w", issuers[n].Issuer, err))
			continue
		}
		v.issuers[i.Issuer.Issuer] = i
	}
	if len(errs) > 0 {
		v.stop()
		return nil, fmt.Errorf("token: %w", errors.Join(errs...))
	}
	return v, nil
}

// Verify returns what a token says when it is genuine, or an *Error. What it has verified it
// remembers, as long as the token and the key that signed it are valid. It waits for keys as long
// as ctx lasts.
func (v *Verifier) Verify(ctx context.Context, raw string) (*Token, error) {
	if len(raw) > maxToken {
		return nil, refuse("malformed", "it has %d bytes; %d are allowed", len(raw), maxToken)
	}
	if v.opaque != nil && !looksLikeJWT(raw) {
		return v.opaque.introspect.ask(ctx, raw)
	}
	hash, now := v.cache.hash(raw), v.now()
	t := v.cache.get(hash, raw, now)
	if t == nil {
		e, err := v.verify(ctx, raw, now)
		if err != nil {
			return nil, err
		}
		kept := raw // raw itself would be allocated for each call
		e.raw = &kept
		v.cache.put(hash, e, now)
		t = e.token
	}
	if n := v.issuers[t.Issuer].introspect; n != nil {
		if err := n.confirm(ctx, raw); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// looksLikeJWT reports whether a token has the form of a JWT: an opaque one may have dots, too.
func looksLikeJWT(raw string) bool {
	return strings.HasPrefix(raw, "eyJ") && strings.Count(raw, ".") == 2
}

// Introspects reports whether the issuer of a token is asked whether it is still active.
func (v *Verifier) Introspects(name string) bool {
	i := v.issuers[name]
	return i != nil && i.introspect != nil
}

func (v *Verifier) verify(ctx context.Context, raw string, now time.Time) (*entry, error) {
	p, err := parse(raw)
	if err != nil {
		return nil, err
	}
	name, _ := p.claims["iss"].(string)
	i := v.issuers[name]
	if i == nil {
		return nil, refuse("issuer", "iss names no issuer that is configured")
	}
	if err := i.checkHeader(p); err != nil {
		return nil, err
	}
	by, err := i.signer(ctx, p)
	if err != nil {
		return nil, err
	}
	if by == nil {
		return nil, refuse("signature", "the signature is not by the key that it names")
	}
	return i.read(p.claims, p.access, now, by)
}

// Close ends what runs in the background, and waits for it. Tokens with keys that are not known are
// "unavailable" afterwards.
func (v *Verifier) Close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.stop()
	v.work.Wait()
}

// background runs f until it returns, unless the verifier is closed. With the first the goroutine
// that refreshes starts; nil is for that only.
func (v *Verifier) background(f func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	if !v.started {
		v.started = true
		v.work.Go(v.refresh)
	}
	if f != nil {
		v.work.Go(f)
	}
	return true
}

// refresh fetches keys when they are due. There is one of it, from the first fetch to Close.
func (v *Verifier) refresh() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var next time.Time
		for _, i := range v.issuers {
			if due := i.keys.refresh(time.Now()); !due.IsZero() && (next.IsZero() || due.Before(next)) {
				next = due
			}
		}
		wait := time.Hour
		if !next.IsZero() {
			wait = time.Until(next)
		}
		timer.Reset(wait)
		select {
		case <-v.ctx.Done():
			return
		case <-v.wake:
		case <-timer.C:
		}
	}
}

const (
	maxCached  = 10_000
	hashedTail = 43 // characters: 32 bytes, which the shortest signature has
)

// A cache has the tokens that were verified, by a hash with a secret seed. An entry is compared in
// full, and the time of that tells nothing: an attacker cannot make a token that gets there without
// knowing the seed, or the token.
type cache struct {
	seed    maphash.Seed
	mu      sync.RWMutex
	entries map[uint64]*entry
}

func newCache() cache { return cache{seed: maphash.MakeSeed(), entries: map[uint64]*entry{}} }

// hash is that of the end of a token, which is its signature: two genuine tokens have different
// ones.
func (c *cache) hash(raw string) uint64 {
	return maphash.String(c.seed, raw[max(0, len(raw)-hashedTail):])
}

type entry struct {
	raw   *string // a pointer: it is not printed
	token *Token
	key   *key      // that signed it
	until time.Time // it is not genuine any more: exp, or MaxAge
}

func (e *entry) good(now time.Time) bool { return now.Before(e.until) && !e.key.gone.Load() }

func (c *cache) get(hash uint64, raw string, now time.Time) *Token {
	c.mu.RLock()
	e := c.entries[hash]
	c.mu.RUnlock()
	if e == nil || *e.raw != raw || !e.good(now) {
		return nil
	}
	return e.token
}

// put remembers an entry. When there is no room one goes: a bad one among the
// first few that the map gives, in its random order, or else the last of these.
func (c *cache) put(hash uint64, e *entry, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.entries[hash]; !there && len(c.entries) >= maxCached {
		tries := 8
		for s, old := range c.entries {
			if tries--; tries == 0 || !old.good(now) {
				delete(c.entries, s)
				break
			}
		}
	}
	c.entries[hash] = e
}
