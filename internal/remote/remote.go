// Package remote answers one question: did this come from the other end of a connection?
package remote

import (
	"slices"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// Params are the params of a message that another process has sent. They were validated when the
// message was decoded: a Peer that is given a *Params passes the bytes on and does not look at them
// again.
type Params jsonrpc.Raw

// Error is what a call fails with that the other end answered with an error. A handler that returns
// it has failed itself; the code is not its own, unless it says so with Pass.
type Error struct{ Wire *jsonrpc.Error }

// Error returns the text of the answer.
func (e *Error) Error() string { return e.Wire.Error() }

// Unwrap returns the answer, for errors.As and errors.Is.
func (e *Error) Unwrap() error { return e.Wire }

// Pass returns err with the errors of other ends in it as this end's own.
func Pass(err error) error {
	if err == nil {
		return nil
	}
	return &passed{err}
}

type passed struct{ error }

func (e *passed) Unwrap() error { return e.error }

// Own returns the outermost *jsonrpc.Error in err that is this end's own, or nil.
func Own(err error) (wire *jsonrpc.Error) {
	Walk(err, func(e error) bool {
		wire, _ = e.(*jsonrpc.Error) //nolint:errorlint // Walk unwraps
		return wire != nil
	})
	return wire
}

// Walk calls f with err and all that it wraps, in the order of errors.As, until f returns true. It
// leaves out what came from the other end of a connection and was not passed on.
func Walk(err error, f func(error) bool) bool { return walk(err, false, f) }

func walk(err error, all bool, f func(error) bool) bool {
	switch err.(type) { //nolint:errorlint // this is the unwrapping
	case *Error:
		if !all {
			return false
		}
	case *passed:
		all = true
	}
	if f(err) {
		return true
	}
	switch u := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		inner := u.Unwrap()
		return inner != nil && walk(inner, all, f)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(u.Unwrap(), func(inner error) bool {
			return inner != nil && walk(inner, all, f)
		})
	}
	return false
}
