package guard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

// Keys and tokens cannot be guessed, passwords can. So after guessBurst refusals from an address
// Options.Authenticate is asked about no more requests of that address than guessLimit in a minute:
// the others get 429, whether their credential is right or wrong, or else an attacker would go on.
// An attacker must not lock out others behind the same address, such as a proxy's: credentials that
// were accepted within provenFor are not held up.
const (
	guessBurst = 20
	guessLimit = 10
	maxProven  = 10_000
	provenFor  = 8 * time.Hour
)

// guesses bound how fast Options.Authenticate can be tried.
type guesses struct {
	limiter *limit.Limiter // refusals, by address

	mu     sync.Mutex
	key    [32]byte // of digests: a memory dump has no fast hash of a password
	proven *share.Table[[sha256.Size]byte, time.Time]
}

func (g *guesses) init(now func() time.Time) {
	_, _ = rand.Read(g.key[:]) // it does not fail
	g.limiter = limit.New(&limit.Options{Rates: []limit.Rate{{Per: "address", Limit: guessLimit, Burst: guessBurst, Every: time.Minute}}, Now: now})
	g.proven = share.NewTable[[sha256.Size]byte, time.Time](share.Bounds{Total: maxProven})
}

// digest is of the headers of a request that have credentials; false: there are none.
func (g *guesses) digest(h http.Header) (sum [sha256.Size]byte, ok bool) {
	mac := hmac.New(sha256.New, g.key[:])
	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
		for _, value := range h[name] {
			ok = true
			part := sha256.Sum256([]byte(name + ": " + value))
			mac.Write(part[:])
		}
	}
	mac.Sum(sum[:0])
	return sum, ok
}

// wait returns how long a request of an address has to wait before it may be tried; 0: not at all.
func (g *guesses) wait(h http.Header, remote string, now time.Time) time.Duration {
	after := g.limiter.Wait(&limit.Caller{Address: remote}, "authenticate")
	if after == 0 {
		return 0
	}
	if sum, ok := g.digest(h); ok {
		g.mu.Lock()
		defer g.mu.Unlock()
		if until, _, ok := g.proven.Get(sum); ok && now.Before(until) {
			return 0
		}
	}
	return after
}

// refused counts a refusal. Credentials that are refused now are no longer proven.
func (g *guesses) refused(h http.Header, remote string) {
	_, _ = g.limiter.Take(&limit.Caller{Address: remote}, "authenticate") // full: then it is full
	if sum, ok := g.digest(h); ok {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.proven.Remove(sum)
	}
}

// accepted remembers the credentials of an owner.
func (g *guesses) accepted(h http.Header, o owner.Key, now time.Time) {
	sum, ok := g.digest(h)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if until, _, ok := g.proven.Get(sum); !ok || until.Sub(now) < provenFor/2 {
		g.proven.Put(o, sum, now.Add(provenFor), 1)
	}
}
