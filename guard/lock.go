package guard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/internal/lock"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Lock refuses callers with credentials that are still valid. Exactly one of Principal, Key, JTI
// and Session is given.
type Lock struct {
	// Principal is the name of a principal: its ID, or ISSUER|ID where an issuer vouches for it.
	Principal string
	// Key is the hash of an API key, the keyid of signatures, the kid or the DPoP thumbprint (jkt) of
	// tokens, or the SHA-256 of a client certificate (sha256:…, in hex).
	Key string
	// JTI is the claim jti of a token.
	JTI string
	// Session is the id of an MCP session over HTTP.
	Session string
	// Reason is for the audit, and for callers with Options.Details.
	Reason  string
	Expires time.Time // zero: never
}

func (c *Config) compileLocks(s *state, f *finder) {
	all := make([]lock.Lock, len(c.Locks))
	for i, l := range c.Locks {
		all[i] = lock.Lock{
			Principal: l.Principal, Key: l.Key, JTI: l.JTI, Session: l.Session,
			Reason: l.Reason, Expires: l.Expires,
		}
		if err := all[i].Check(); err != nil {
			f.bad(fmt.Sprintf("locks[%d]", i), err.Error(), "make an entry for each")
			return
		}
	}
	s.locks, _ = lock.NewSet(all) // they were checked
	if c.LocksFile != "" {
		if _, err := lock.Read(c.LocksFile); err != nil {
			f.bad("locks_file", err.Error(), "")
		}
	}
}

// followLocks reads the file of locks, and follows it.
func (s *state) followLocks(old *state) (err error) {
	switch {
	case s.c.LocksFile == "":
	case old != nil && old.file != nil && old.c.LocksFile == s.c.LocksFile:
		s.file = old.file
	default:
		g := s.g
		s.file, err = lock.Follow(s.c.LocksFile, func() {
			g.opts.Logger.Info("the locks have changed", "file", s.c.LocksFile)
			g.streams.soon()
		}, func(err error) {
			g.opts.Logger.Error("the file of locks cannot be used", "error", err)
		})
	}
	return err
}

// locked refuses a caller that a lock is about.
func (s *state) locked(who *session) *refusal {
	file := s.file.Set()
	if s.locks == nil && file == nil || who == nil || who.principal == nil {
		return nil
	}
	return s.lockedBy(file, who)
}

// lockedBy is locked where there are locks. It is apart for its frame: what each call goes through
// should not make the stack of a connection grow.
func (s *state) lockedBy(file *lock.Set, who *session) *refusal {
	p := who.principal
	subject := lock.Subject{Principal: p.Name(), Keys: p.keys()}
	subject.JTI, _ = p.Claims["jti"].(string)
	if who.http != nil {
		r := who.http.r
		if subject.Session = r.Header.Get("Mcp-Session-Id"); subject.Session == "" &&
			r.URL.RawQuery != "" {
			subject.Session = r.URL.Query().Get("sessionId") // HTTP+SSE of MCP 2024-11-05
		}
	}
	now := s.g.now()
	l, ok := s.locks.Find(&subject, now)
	if !ok {
		if l, ok = file.Find(&subject, now); !ok {
			return nil
		}
	}
	reason := "locked: " + l.Target()
	if l.Reason != "" {
		reason += ": " + l.Reason
	}
	r := refuse(jsonrpc.Unauthenticated, reason)
	r.locked = true
	return r
}

// keys are the names of the keys that a principal was authenticated by.
func (p *Principal) keys() []string {
	if p.shown == nil {
		return nil
	}
	return p.shown.keys
}

// hashName is the name of a key by its SHA-256.
func hashName(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

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
	g.limiter = limit.New(
		&limit.Options{
			Rates: []limit.Rate{{Per: "address", Limit: guessLimit, Burst: guessBurst, Every: time.Minute}},
			Now:   now,
		})
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
