// Package permit answers one question: may the caller of a method use another one, which the params
// name?
//
// A guard in front of a handler knows the method only. What the params name it cannot tell without
// the handler, so it leaves the handler a Func in the context of the call.
package permit

import "context"

// A Func returns the error to answer with when the caller may not call a method with params.
type Func func(ctx context.Context, method string, params []byte) error

// Key is the key under which a context has a Func.
type Key struct{}

// From returns the Func in a context; nil: everything is permitted.
func From(ctx context.Context) Func {
	f, _ := ctx.Value(Key{}).(Func)
	return f
}

// A Hold keeps an eye on what a call leaves behind: when the caller may no longer call a method
// with params, "" for the call itself, it calls end with the error for the caller, until release is
// called.
type Hold func(ctx context.Context, method string, params []byte, end func(error)) (release func())

// HoldKey is the key under which a context has a Hold.
type HoldKey struct{}

// HoldFrom returns the Hold in a context; nil: what is permitted stays so.
func HoldFrom(ctx context.Context) Hold {
	f, _ := ctx.Value(HoldKey{}).(Hold)
	return f
}
