package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/lock"
)

func newLockCmd(e *env) *cobra.Command {
	return newGroup("lock", "Lock callers out with credentials that are still valid",
		"There are add, list and remove.", newLockAddCmd(e), newLockListCmd(e), newLockRemoveCmd(e))
}

// lockFlags adds the options that name the target of a lock.
func lockFlags(cmd *cobra.Command, l *lock.Lock) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&l.Principal, "principal", "", "the `name` of a principal: its id, or 'ISSUER|ID'")
	f.StringVar(&l.Key, "key", "",
		"the hash of an API key (sha256:…), the id of a signing key, the kid or DPoP thumbprint of "+
			"tokens, or the SHA-256 of a certificate")
	f.StringVar(&l.JTI, "jti", "", "the `id` of a token: its claim jti")
	f.StringVar(&l.Session, "session", "", "the `id` of an MCP session")
}

func newLockAddCmd(e *env) *cobra.Command {
	var l lock.Lock
	var lasts time.Duration
	cmd := command("add FILE", "Add a lock to a file, which is made if there is none",
		func(_ *cobra.Command, args []string) error {
			if lasts < 0 {
				return usagef("Leave --for out for a lock without an end.", "--for is negative")
			}
			l.Created = time.Now().UTC().Truncate(time.Second)
			if lasts > 0 {
				l.Expires = l.Created.Add(lasts)
			}
			if err := l.Check(); err != nil {
				return usagef("Name one: --principal, --key, --jti or --session.", "%w", err)
			}
			if err := lock.Add(args[0], &l); err != nil {
				return &exitError{code: exitFailure, err: err}
			}
			return e.say("%s", describeLock(&l))
		})
	cmd.Args = oneFile("farcall lock add locks.jsonl --principal ci")
	lockFlags(cmd, &l)
	cmd.Flags().StringVar(&l.Reason, "reason", "", "a `text` for the audit")
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long the lock lasts (default without an end)")
	return cmd
}

func newLockListCmd(e *env) *cobra.Command {
	cmd := command("list FILE", "List the locks of a file",
		func(_ *cobra.Command, args []string) error {
			all, err := lock.Read(args[0])
			if err != nil {
				return locksFailure(err)
			}
			for i := range all {
				fmt.Fprintln(e.stdout, describeLock(&all[i]))
			}
			return nil
		})
	cmd.Args = oneFile("farcall lock list locks.jsonl")
	return cmd
}

func newLockRemoveCmd(e *env) *cobra.Command {
	var l lock.Lock
	var expired bool
	cmd := command("remove FILE", "Remove locks from a file",
		func(_ *cobra.Command, args []string) error {
			if err := l.Check(); err != nil && !expired {
				return usagef("Name one: --principal, --key, --jti or --session; or use --expired.", "%w", err)
			}
			now := time.Now()
			n, err := lock.Remove(args[0], func(other *lock.Lock) bool {
				return other.Same(&l) || expired && !other.Expires.IsZero() && !now.Before(other.Expires)
			})
			switch {
			case err != nil:
				return locksFailure(err)
			case n == 0 && !expired:
				return &exitError{
					code: exitFailure, err: fmt.Errorf("%s has no lock of %s", args[0], l.Target()),
				}
			}
			return e.say("removed %d", n)
		})
	cmd.Aliases = []string{"rm"}
	cmd.Args = oneFile("farcall lock remove locks.jsonl --principal ci")
	lockFlags(cmd, &l)
	cmd.Flags().BoolVar(&expired, "expired", false, "remove the locks that have expired")
	return cmd
}

// locksFailure is the exit for a file of locks that cannot be used.
func locksFailure(err error) error {
	code := exitFailure
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		code = exitUsage // as for every file that cannot be read
	}
	return &exitError{code: code, err: err}
}

// oneFile wants one argument.
func oneFile(example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			name := strings.TrimPrefix(cmd.CommandPath(), "farcall ")
			return usagef("For example: "+example, "%s takes one FILE, not %d", name, len(args))
		}
		return nil
	}
}

func describeLock(l *lock.Lock) string {
	text := l.Target() + " is locked"
	switch {
	case l.Expires.IsZero():
	case time.Now().Before(l.Expires):
		text += " until " + l.Expires.Format(time.RFC3339)
	default:
		text = l.Target() + " was locked until " + l.Expires.Format(time.RFC3339)
	}
	if l.Reason != "" {
		text += ": " + l.Reason
	}
	return tame(text)
}
