package token

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/fetch"
)

const (
	maxKeys     = 100
	maxTries    = 8 // keys that a token without a kid may be tried with
	maxSetBytes = 1 << 20
	// unknownEvery is how often a kid that is not known may cause a fetch: anyone who makes kids up
	// must not make fetches.
	unknownEvery = 30 * time.Second
	minRetry     = time.Second
	maxRetry     = 5 * time.Minute
	fetchTime    = 30 * time.Second // with discovery
)

// A source has the keys of one issuer.
type source struct {
	v         *Verifier
	of        *Issuer
	client    *fetch.Client
	origin    *url.URL // of what is discovered; nil: of.JWKS says where the keys are
	addresses []string // of metadata
	fixed     bool     // the keys are in the configuration

	mu       sync.Mutex
	keys     []*key
	known    bool      // keys is what the issuer has said, at most KeysMaxAge ago
	fetched  time.Time // when it said so, by the wall clock
	fetching *keyFetch // nil: none
	fetches  int       // that have succeeded
	unknown  time.Time // when a kid that is not known was last the reason of a fetch
	due      time.Time // for the next fetch; zero: no key was needed yet
	failures int       // one after another
	err      error     // of the last fetch
}

// A keyFetch is a fetch that all who need it wait for.
type keyFetch struct{ done chan struct{} }

func newSource(v *Verifier, of *Issuer, client *http.Client) (s *source, err error) {
	s = &source{v: v, of: of}
	set := strings.TrimSpace(of.JWKS)
	switch {
	case set == "":
		s.origin, s.addresses, err = discovery(of.Issuer)
	case set[0] == '{':
		s.fixed = true
		s.keys, err = readKeys([]byte(set))
	case strings.HasPrefix(set, "https://"), strings.HasPrefix(set, "http://"):
		err = fetch.Check(set)
	default:
		s.keys, err = readFile(set)
	}
	s.known, s.fetched = len(s.keys) > 0, wallClock()
	if s.known && !s.fixed {
		s.due = time.Now().Add(jitter(of.Refresh))
	}
	s.client = fetch.New(&fetch.Options{HTTP: client, Private: of.Private, MaxBytes: maxSetBytes})
	return s, err
}

// find returns the keys that may have signed a token: those with its kid, or all without one, that
// fit alg.
func (s *source) find(ctx context.Context, kid *string, alg string) ([]*key, error) {
	began := time.Now()
	if !s.fixed {
		s.v.background(nil)
	}
	s.mu.Lock()
	s.expire()
	before := s.fetches // what was fetched for this token is new enough for it
	if !s.known {
		f := s.begin(began)
		s.mu.Unlock()
		if err := s.wait(ctx, f); err != nil {
			return nil, err
		}
		s.mu.Lock()
	}
	if !s.known {
		err := s.err
		s.mu.Unlock()
		return nil, refuse("unavailable",
			"the keys of the issuer are not known, or older than keys_max_age: %w", err)
	}
	found, there := s.match(kid, alg)
	again := !there && s.fetches == before
	s.mu.Unlock()
	if again {
		if _, err := s.renew(ctx); err != nil {
			return nil, err
		}
		s.mu.Lock()
		found, there = s.match(kid, alg)
		s.mu.Unlock()
	}
	switch {
	case !there:
		return nil, refuse("key", "its issuer has no key of the kid that it names")
	case len(found) == 0:
		return nil, refuse("key", "the key that it names is not for its alg")
	case len(found) > maxTries:
		return nil, refuse("key", "it has no kid, and its issuer has too many keys to try all")
	}
	return found, nil
}

// renew fetches the keys because a token is by none that is known, and reports whether there may be
// others now. It begins a fetch once every unknownEvery at most, but joins one that is under way.
func (s *source) renew(ctx context.Context) (bool, error) {
	now := time.Now()
	s.mu.Lock()
	f := s.fetching
	if f == nil && !s.fixed && now.Sub(s.unknown) >= unknownEvery {
		s.unknown = now
		f = s.begin(now)
	}
	s.mu.Unlock()
	return f != nil, s.wait(ctx, f)
}

// match also reports whether there is a key with the kid, whatever it is for. s.mu is held.
func (s *source) match(kid *string, alg string) (found []*key, there bool) {
	for _, k := range s.keys {
		if kid == nil || k.id != nil && *k.id == *kid {
			there = true
			if k.fits(alg) {
				found = append(found, k)
			}
		}
	}
	return found, there
}

// begin begins a fetch, or joins that which is under way. It returns nil while it is too early to
// try again, and after Close. s.mu is held.
func (s *source) begin(now time.Time) *keyFetch {
	if s.fetching != nil {
		return s.fetching
	}
	if s.failures > 0 && now.Before(s.due) {
		return nil
	}
	f := &keyFetch{done: make(chan struct{})}
	if !s.v.background(func() { s.fetch(f) }) {
		s.err = errClosed
		return nil
	}
	s.fetching = f
	return f
}

var errClosed = errors.New("the verifier is closed")

func (s *source) wait(ctx context.Context, f *keyFetch) error {
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return &Error{Reason: "unavailable", Cause: context.Cause(ctx)}
	}
}

// refresh begins a fetch when one is due, and returns when to look again; zero: when wake says so.
func (s *source) refresh(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	switch end := s.end(); {
	case s.fixed || s.due.IsZero():
		return time.Time{}
	case s.fetching == nil && now.Before(s.due):
		if s.known && end.Before(s.due) {
			return end
		}
		return s.due
	case s.fetching == nil:
		s.begin(now)
	}
	if s.known {
		return s.end() // also while a fetch takes its time
	}
	return time.Time{}
}

// wallClock is the time without the monotonic clock, which stands still while the machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// end is when the keys that are known no longer count. s.mu is held.
func (s *source) end() time.Time { return s.fetched.Add(s.of.KeysMaxAge) }

// expire forgets keys that are too old: anyone who keeps the issuer away must not keep keys valid
// that it has taken back. Tokens that were verified by them are refused as well. s.mu is held.
func (s *source) expire() {
	if s.fixed || !s.known || wallClock().Before(s.end()) {
		return
	}
	s.replace(nil)
	s.known = false
	s.v.log.Error(
		"the keys of an issuer no longer count: its tokens are refused until it can be reached",
		"issuer", s.of.Issuer, "keys_max_age", s.of.KeysMaxAge, "error", s.err)
}

func (s *source) fetch(f *keyFetch) {
	ctx, cancel := context.WithTimeout(s.v.ctx, fetchTime)
	keys, err := s.load(ctx)
	cancel()

	s.mu.Lock()
	if err == nil {
		s.replace(keys)
		s.known, s.failures, s.fetched = true, 0, wallClock()
		s.fetches++
		s.due = time.Now().Add(jitter(s.of.Refresh))
	} else {
		// What is known stays until KeysMaxAge: a short outage of an issuer must not lock all callers
		// out.
		s.due = time.Now().Add(jitter(min(minRetry<<min(s.failures, 16), maxRetry)))
		s.failures++
	}
	s.err = err
	s.fetching = nil
	known, end := s.known, s.end()
	s.mu.Unlock()

	if err != nil && s.v.ctx.Err() == nil {
		log := s.v.log.With("issuer", s.of.Issuer, "error", err)
		if known {
			log = log.With("keys_count_until", end)
		}
		log.Warn("keys of an issuer could not be fetched")
	}
	close(f.done)
	select {
	case s.v.wake <- struct{}{}:
	default:
	}
}

// replace puts other keys in the place of those that are known. Those that are in both stay the
// same, and the tokens by them remembered. s.mu is held.
func (s *source) replace(keys []*key) {
	for _, old := range s.keys {
		stays := false
		for n, k := range keys {
			if k.thumbprint == old.thumbprint && k.alg == old.alg && (k.id == nil) == (old.id == nil) &&
				(k.id == nil || *k.id == *old.id) {
				keys[n], stays = old, true
			}
		}
		if !stays {
			old.gone.Store(true)
		}
	}
	s.keys = keys
}

// jitter spreads what would happen everywhere at once.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1) //nolint:gosec // guessing it gains nothing
}

func (s *source) load(ctx context.Context) ([]*key, error) {
	set := strings.TrimSpace(s.of.JWKS)
	if s.origin == nil && !strings.HasPrefix(set, "https://") && !strings.HasPrefix(set, "http://") {
		return readFile(set)
	}
	if s.origin != nil {
		var err error
		if set, err = s.discover(ctx); err != nil {
			return nil, err
		}
	}
	b, err := s.get(ctx, s.origin, set)
	if err != nil {
		return nil, err
	}
	return readKeys(b)
}

// discover returns where the keys of an issuer are, by its metadata.
func (s *source) discover(ctx context.Context) (string, error) {
	var errs []error
	for _, address := range s.addresses {
		b, err := s.get(ctx, nil, address)
		if err != nil {
			errs = append(errs, err)
			if !errors.Is(err, errStatus) {
				break // the host is the same for all
			}
			continue
		}
		keys, err := readMetadata(b, s.of.Issuer)
		if err == nil {
			return keys, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
	}
	return "", errors.Join(errs...)
}

var errStatus = errors.New("the answer is no document")

func (s *source) get(ctx context.Context, origin *url.URL, address string) ([]byte, error) {
	b, _, status, err := s.client.Get(ctx, origin, address)
	if err == nil && status != http.StatusOK {
		address, _, _ = strings.Cut(address, "?") // a query may be secret
		return nil, fmt.Errorf("fetch %s: %w: status %d", address, errStatus, status)
	}
	return b, err
}

// readMetadata reads the metadata of an issuer, which must name itself exactly so (RFC 8414 §3.3):
// else one issuer could make its keys those of another.
func readMetadata(b []byte, issuer string) (keys string, err error) {
	m, err := readObject(b)
	if err != nil {
		return "", err
	}
	if m["issuer"] != issuer {
		return "", errors.New("the metadata is of another issuer")
	}
	if keys, _ = m["jwks_uri"].(string); keys == "" {
		return "", errors.New("the metadata has no jwks_uri")
	}
	return keys, nil
}

func readFile(path string) ([]*key, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(b) > maxSetBytes {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxSetBytes)
	}
	keys, err := readKeys(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// readKeys reads a JWK set (RFC 7517 §5). Keys that are of no use here are passed over, as it says;
// none that is of use is an error.
func readKeys(b []byte) (keys []*key, err error) {
	m, err := readObject(b)
	if err != nil {
		return nil, fmt.Errorf("a set of keys: %w", err)
	}
	list, ok := m["keys"].([]any)
	if !ok {
		return nil, errors.New(`a set of keys: it has no list "keys"`)
	}
	if len(list) > maxKeys {
		return nil, fmt.Errorf("a set of keys: it has %d; %d are allowed", len(list), maxKeys)
	}
	if len(list) == 0 {
		return nil, errors.New(`a set of keys: its list "keys" is empty`)
	}
	var errs []error
	for n, e := range list {
		m, _ := e.(map[string]any)
		k, err := readKey(m)
		if err != nil {
			errs = append(errs, fmt.Errorf("key %d: %w", n, err))
			continue
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("a set of keys: none is for signatures: %w", errors.Join(errs...))
	}
	return keys, nil
}
