package raw

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// progressBytes bounds the progress of a call that its caller has not taken.
const progressBytes = 8 << 20

var errSlow = &jsonrpc.Error{
	Code: jsonrpc.Overloaded, Message: "More than 8 MiB of progress were not taken; take it faster or ask for less",
}

// progress is what a call over a shared connection reports, on its way to a
// caller that must not hold up others.
type progress struct {
	cancel context.CancelCauseFunc // of the call

	mu     sync.Mutex
	change sync.Cond
	values []jsonrpc.Raw
	bytes  int
	ended  bool
	err    error
}

func newProgress(cancel context.CancelCauseFunc) *progress {
	q := &progress{cancel: cancel}
	q.change.L = &q.mu
	return q
}

// put adds a value. It does not block, nor keep the value.
func (q *progress) put(value jsonrpc.Raw) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.err != nil || value == nil:
		return
	case q.bytes+len(value) > progressBytes:
		q.failLocked(errSlow)
		return
	}
	q.values = append(q.values, slices.Clone(value))
	q.bytes += len(value)
	q.change.Broadcast()
}

func (q *progress) failLocked(err error) {
	q.err, q.values = err, nil
	q.cancel(err)
	q.change.Broadcast()
}

// end notes that there will be no more.
func (q *progress) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.change.Broadcast()
}

func (q *progress) failed() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// next waits for the next value.
func (q *progress) next() (value jsonrpc.Raw, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.values) == 0 && !q.ended && q.err == nil {
		q.change.Wait()
	}
	if len(q.values) == 0 {
		return nil, false
	}
	value, q.values = q.values[0], q.values[1:]
	q.bytes -= len(value)
	return value, true
}

// pump passes the values on to the caller with that context.
func (q *progress) pump(front context.Context) {
	for {
		value, more := q.next()
		if !more {
			return
		}
		if err := farcall.Progress(front, value); err != nil {
			q.mu.Lock()
			q.failLocked(errors.Join(errors.New("raw: the caller has gone"), err))
			q.mu.Unlock()
		}
	}
}

// retoken returns params, an object, with another progress token in their _meta.
func retoken(params, token jsonrpc.Raw) jsonrpc.Raw {
	return replaced(params, "_meta", func(meta []byte) []byte {
		return replaced(meta, "progressToken", func([]byte) []byte { return token })
	})
}

// replaced returns an object with another value for a member. The other values
// keep their bytes.
func replaced(object []byte, name string, value func(old []byte) []byte) []byte {
	out := []byte{'{'}
	scan.Object(object, func(key, v []byte) bool {
		if len(out) > 1 {
			out = append(out, ',')
		}
		if string(key) == name {
			v = value(v)
		}
		out = append(append(scan.AppendQuoted(out, key), ':'), v...)
		return true
	})
	return append(out, '}')
}
