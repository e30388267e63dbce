package callctx

import (
	"context"
	"sync"
	"sync/atomic"
)

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
