// Package lock answers one question: is this caller locked out?
//
// A lock refuses a principal, a key, a token or a session with credentials that are still
// valid, until it expires or is removed. Locks are a list, or a file with one JSON object
// on each line, which a running server follows.
package lock

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// A Lock locks one target: exactly one of Principal, Key, JTI and Session is given.
type Lock struct {
	// Principal is the name of a principal: its id, or ISSUER|ID where an issuer vouches for it.
	Principal string `json:"principal,omitempty"`
	// Key is the hash of an API key (sha256:…), the keyid of signatures, the kid or the DPoP
	// thumbprint (jkt) of tokens, or the SHA-256 of a client certificate (sha256:…).
	Key string `json:"key,omitempty"`
	// JTI is the claim jti of a token.
	JTI string `json:"jti,omitempty"`
	// Session is the id of an MCP session over HTTP.
	Session string `json:"session,omitempty"`
	// Reason is for the audit, the log, and callers who may know it.
	Reason string `json:"reason,omitempty"`
	// Expires is the end of the lock; zero: it has none.
	Expires time.Time `json:"expires,omitzero"`
	// Created is when it was made, for people.
	Created time.Time `json:"created,omitzero"`
}

// A target is what a lock is about: the name of the member, and its value.
type target struct{ kind, value string }

func (l *Lock) targets() (all []target) {
	for _, t := range []target{{"principal", l.Principal}, {"key", l.Key}, {"jti", l.JTI}, {"session", l.Session}} {
		if t.value != "" {
			all = append(all, t)
		}
	}
	return all
}

// Target returns what the lock is about, for people: principal ci.
func (l *Lock) Target() string {
	if all := l.targets(); len(all) == 1 {
		return all[0].kind + " " + all[0].value
	}
	return "no target"
}

// Same reports whether two locks are about the same target.
func (l *Lock) Same(other *Lock) bool {
	a, b := l.targets(), other.targets()
	return len(a) == 1 && len(b) == 1 && a[0] == b[0]
}

// Check returns what is wrong with a lock.
func (l *Lock) Check() error {
	if n := len(l.targets()); n != 1 {
		return fmt.Errorf("a lock names one of principal, key, jti and session, and this names %d", n)
	}
	return nil
}

// A Set finds locks. It is not changed. A nil Set has none.
type Set struct{ by map[target]Lock }

// NewSet returns a set of valid locks. Of two about one target the one that lasts longer counts.
func NewSet(locks []Lock) (*Set, error) {
	if len(locks) == 0 {
		return nil, nil
	}
	s := &Set{by: make(map[target]Lock, len(locks))}
	for i := range locks {
		l := &locks[i]
		if err := l.Check(); err != nil {
			return nil, fmt.Errorf("lock %d: %w", i+1, err)
		}
		t := l.targets()[0]
		if old, there := s.by[t]; !there || !old.Expires.IsZero() && (l.Expires.IsZero() || l.Expires.After(old.Expires)) {
			s.by[t] = *l
		}
	}
	return s, nil
}

// A Subject is what a caller can be locked by.
type Subject struct {
	Principal string
	Keys      []string
	JTI       string
	Session   string
}

// Find returns a lock that counts at a time.
func (s *Set) Find(who *Subject, now time.Time) (Lock, bool) {
	if s == nil {
		return Lock{}, false
	}
	for _, t := range [...]target{{"principal", who.Principal}, {"jti", who.JTI}, {"session", who.Session}} {
		if l, ok := s.at(t, now); ok {
			return l, true
		}
	}
	for _, key := range who.Keys {
		if l, ok := s.at(target{"key", key}, now); ok {
			return l, true
		}
	}
	return Lock{}, false
}

func (s *Set) at(t target, now time.Time) (Lock, bool) {
	if t.value == "" {
		return Lock{}, false
	}
	l, ok := s.by[t]
	return l, ok && (l.Expires.IsZero() || now.Before(l.Expires))
}

// maxLocks bounds a file of locks.
const maxLocks = 100_000

// Parse reads locks, one JSON object on each line. Empty lines, and those that begin with #, are
// skipped.
func Parse(text []byte) (all []Lock, err error) {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var l Lock
		if err := jsonv2.UnmarshalStrict(line, &l); err != nil {
			return nil, fmt.Errorf("line %d: %s", n, strings.TrimPrefix(err.Error(), "json: "))
		}
		if err := l.Check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if all = append(all, l); len(all) > maxLocks {
			return nil, errors.New("it has more than 100,000 locks: remove those that have expired")
		}
	}
	return all, nil
}

// appendLine appends the line of a lock.
func (l *Lock) appendLine(dst []byte) ([]byte, error) {
	dst, err := jsonv2.Append(dst, l)
	return append(dst, '\n'), err
}
