// Package callctx answers one question: how does a call have a context that costs no more than the
// memory of the call?
//
// It has the context type of this module; two more exist where its size would cost each call 32
// bytes (farcall.serving and mcp.call). Package context has everything that one needs, at a
// price (BenchmarkValue, BenchmarkEnd; amd64, Go 1.26):
//
//   - context.WithValue takes an allocation, and a second one for a value that is no pointer. A
//     Context is a part of the struct that has the values: it takes none.
//   - A context that derives from context.WithValue starts a goroutine, unless all below it are of
//     package context. One that derives from a Context does not: it has the method AfterFunc.
//   - context.WithCancel takes three allocations, and a channel once something waits for its end.
//     A Context with an End takes none before.
package callctx

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

type (
	// Observed is the key of the *observe.Call that the handler with the context serves.
	Observed struct{}
	// Numbered is the key of a *uint64, the number of that call in a capture.
	Numbered struct{}
)

// Number returns the number in a capture of the call that the handler with the context serves or
// has served; 0: there is none. So a call that is made in a handler finds the one that has caused
// it.
func Number(ctx context.Context) uint64 {
	if n, _ := ctx.Value(Numbered{}).(*uint64); n != nil {
		return *n
	}
	return 0
}

// Values has the values of a [Context] that its parent does not have.
type Values interface {
	// ContextValue returns the value of key. When ok is false the parent is asked.
	ContextValue(key any) (v any, ok bool)
}

// A Keeper is Values that outlive their call.
type Keeper interface {
	Values

	// Kept returns the same values, without what only the call needs.
	Kept() Values
}

// WithoutCancel is context.WithoutCancel for what a call leaves behind, which may be there for
// long: where ctx is a [Context], the result does not hold the struct that has it, unless its
// values are no [Keeper].
func WithoutCancel(ctx context.Context) context.Context {
	if c, ok := ctx.(interface{ kept() context.Context }); ok {
		return c.kept()
	}
	return context.WithoutCancel(ctx)
}

func (c *Context) kept() context.Context {
	if c.values == nil {
		return WithoutCancel(c.parent)
	}
	if k, ok := c.values.(Keeper); ok {
		return &Context{parent: WithoutCancel(c.parent), values: k.Kept(), lasts: true}
	}
	return context.WithoutCancel(c)
}

// A Context has the values of its parent and others. It ends with its parent, by its own [End], or
// never. It is embedded in the struct that has its values; what points to that struct is
// the context then. Who copies that struct derives the Context of the copy again: go vet finds the
// copies. The zero value is invalid.
type Context struct {
	_      noCopy
	parent context.Context //nolint:containedctx // it is a context itself
	values Values          // nil: it has those of its parent
	end    *End            // nil: its parent's
	lasts  bool            // it has no end
}

// noCopy lets go vet find copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Over returns a context with the values v that ends with its parent.
func Over(parent context.Context, v Values) Context { return Context{parent: parent, values: v} }

// Until returns a context with the values v and its own end, which is not its parent's.
func Until(parent context.Context, v Values, end *End) Context {
	return Context{parent: parent, values: v, end: end}
}

// WithValue is context.WithValue for contexts from which others derive: those start no goroutine.
func WithValue(parent context.Context, key, value any) context.Context {
	x := &struct {
		Context
		pair
	}{pair: pair{key, value}}
	x.Context = Over(parent, &x.pair)
	return x
}

type pair struct{ key, value any }

// ContextValue implements Values.
func (p *pair) ContextValue(key any) (any, bool) { return p.value, p.key == key }

// Kept implements Keeper. The copy is no part of a Context, which would keep its parent as well.
func (p *pair) Kept() Values { own := *p; return &own }

// Parent returns the context that c is over.
func (c *Context) Parent() context.Context { return c.parent }

// Last takes the end and the deadline from a context that no other derives from so far.
func (c *Context) Last() { c.lasts = true }

// Deadline implements context.Context: it is the parent's.
func (c *Context) Deadline() (time.Time, bool) {
	if c.lasts {
		return time.Time{}, false
	}
	return c.parent.Deadline()
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	switch {
	case c.lasts:
		return nil
	case c.end != nil:
		return c.end.Done()
	}
	return c.parent.Done()
}

// Err implements context.Context.
func (c *Context) Err() error {
	switch {
	case c.lasts:
		return nil
	case c.end != nil:
		return c.end.Err()
	}
	return c.parent.Err()
}

// Value implements context.Context.
func (c *Context) Value(key any) any {
	if c.values != nil {
		if v, ok := c.values.ContextValue(key); ok {
			return v
		}
	}
	if c.end != nil {
		return c.end.Values(c.parent).Value(key)
	}
	return c.parent.Value(key)
}

// AfterFunc lets package context derive from this context without a goroutine (see
// context.AfterFunc).
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	switch {
	case c.lasts:
		return func() bool { return true }
	case c.end != nil:
		return c.end.AfterFunc(f)
	}
	return context.AfterFunc(c.parent, f)
}

// An End is the end of a [Context], which costs nothing until a goroutine waits for it. The zero
// value has not come yet.
type End struct {
	mu    sync.Mutex
	done  chan struct{} // made when first asked for
	err   error
	after map[*func()]struct{} // what to run

	because atomic.Pointer[context.Context] // has the cause; nil: the end has none
}

// Done returns a channel that is closed at the end.
func (e *End) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.err != nil {
			close(e.done)
		}
	}
	return e.done
}

// Err returns nil before the end.
func (e *End) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// AfterFunc runs f at the end, in its own goroutine, unless stop is called
// before. It lets package context derive contexts without a goroutine.
func (e *End) AfterFunc(f func()) (stop func() bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		go f()
		return func() bool { return false }
	}
	if e.after == nil {
		e.after = map[*func()]struct{}{}
	}
	key := &f
	e.after[key] = struct{}{}
	return func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		_, ok := e.after[key]
		delete(e.after, key)
		return ok
	}
}

// Before calls f unless the end has come, which waits for f.
func (e *End) Before(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		f()
	}
}

// Cancel brings the end. Only the first call counts.
func (e *End) Cancel(err error) { e.cancel(err, nil) }

// CancelCause brings the end with [context.Canceled], and with a cause for [context.Cause].
// parent is that of the context. Only the first call counts.
func (e *End) CancelCause(parent context.Context, cause error) {
	ctx, cancel := context.WithCancelCause(parent)
	cancel(cause)
	e.cancel(context.Canceled, &ctx)
}

// Values returns what has the other values of a context with this end: its parent, or a
// context that knows the cause of the end.
func (e *End) Values(parent context.Context) context.Context {
	if ctx := e.because.Load(); ctx != nil {
		return *ctx
	}
	return parent
}

func (e *End) cancel(err error, because *context.Context) {
	e.mu.Lock()
	if e.err != nil {
		e.mu.Unlock()
		return
	}
	e.because.Store(because)
	e.err = err
	if e.done != nil {
		close(e.done)
	}
	after := e.after
	e.after = nil
	e.mu.Unlock()
	for f := range after {
		go (*f)()
	}
}
