package guard

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/farcall-dev/farcall/internal/lock"
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
		all[i] = lock.Lock{Principal: l.Principal, Key: l.Key, JTI: l.JTI, Session: l.Session, Reason: l.Reason, Expires: l.Expires}
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
		if subject.Session = r.Header.Get("Mcp-Session-Id"); subject.Session == "" && r.URL.RawQuery != "" {
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
