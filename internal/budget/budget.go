// Package budget answers one question: is there memory for this frame?
//
// A [Budget] bounds the bytes that large frames hold together, whatever transport
// they come over. A frame of up to [Free] bytes draws nothing. A larger one draws
// as its buffer grows, through a [Loan], and keeps that until it has been handled.
// Nothing waits for room: what finds none is refused at once.
//
// # Shares
//
// Each loan has an owner, see [By]. Shares are those of [share.Ledger]: an owner may
// hold as much as it leaves free for the others, alone at most a half, and so may
// all unauthenticated connections of one address together. Unauthenticated
// connections have a smaller budget, in which incomplete frames make room: of the
// address that holds most, the oldest goes first.
package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	// Free is the size up to which a frame draws nothing.
	Free = 64 << 10
	// Default is the budget of a process, unless half of its GOMEMLIMIT is less.
	Default = 512 << 20
	// DefaultUnauthenticated is the part for unauthenticated connections.
	DefaultUnauthenticated = 64 << 20
)

// A Budget bounds the bytes that frames of more than 64 KiB hold together, while
// they arrive and while they are handled. Its methods may be called by any number
// of goroutines at once.
type Budget struct {
	books *books
	// all is drawn from the part for unauthenticated connections
	few bool
	by  func() (o owner.Key, unknown bool) // nil: each connection is an owner
}

// New returns a budget of so many bytes, with a smaller one for unauthenticated
// connections. 0 means the default of each: 512 MiB, or half of GOMEMLIMIT where
// that is less, and 64 MiB, or an eighth of the budget where that is less.
func New(bytes, unauthenticated int64) *Budget {
	if bytes <= 0 {
		bytes = Default
		if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
			bytes = max(min(bytes, limit/2), 1<<20)
		}
	}
	unauthenticated = cmp.Or(max(unauthenticated, 0), min(DefaultUnauthenticated, bytes/8))
	return &Budget{books: newBooks(min(bytes, math.MaxInt/4), min(unauthenticated, math.MaxInt/64))}
}

// process is the budget of those who were given none. It is like the pools of
// package sync: it has no setting and no contents that anyone relies on, and it
// must be one for all, because memory is the process's. Two servers in a process
// that know nothing of each other cannot bound it apart.
var process = sync.OnceValue(func() *Budget { return New(0, 0) })

// Or returns b, or the budget of the process where b is nil.
func Or(b *Budget) *Budget {
	if b != nil {
		return b
	}
	return process()
}

// Owner returns the budget for the frames of one owner: all that is drawn from
// it counts together. Without it each connection is an owner.
func (b *Budget) Owner(key string) *Budget {
	o := owner.Named(key)
	return &Budget{books: b.books, few: b.few, by: func() (owner.Key, bool) { return o, false }}
}

// Unauthenticated returns the part of the budget for connections and requests
// that are not authenticated yet. An incomplete frame makes room for a new one:
// its connection gets an error and is closed.
func (b *Budget) Unauthenticated() *Budget { return &Budget{books: b.books, few: true} }

// Of returns the budget for what belongs to the owner in a context, if there is
// one.
func Of(ctx context.Context, b *Budget) *Budget {
	if o := owner.From(ctx); !o.IsZero() {
		return By(b, func() (owner.Key, bool) { return o, false })
	}
	return Or(b)
}

// Named returns b for the frames of an owner that has a name, unless b is an
// owner's already.
func Named(b *Budget, name string) *Budget {
	if b = Or(b); b.by != nil {
		return b
	}
	return b.Owner(name)
}

// Connection returns b for the frames of a connection from an address, "" when
// there is none: what is drawn through any budget that was made with the same id, a
// pointer, counts together.
func Connection(b *Budget, id any, remote string) *Budget {
	return By(b, func() (owner.Key, bool) {
		return owner.Connection(fmt.Sprintf("%p", id), remote), false
	})
}

// By returns the budget for frames with an owner. The owner, and whether it is still
// unauthenticated, is determined for a frame of more than [Free]. The zero
// key means its own owner.
func By(b *Budget, by func() (o owner.Key, unknown bool)) *Budget {
	b = Or(b)
	return &Budget{books: b.books, few: b.few, by: by}
}

// Used returns how many bytes are held now, and by unauthenticated connections.
func (b *Budget) Used() (bytes, unauthenticated int64) { return b.books.used() }

// Overloaded is the answer to a frame for which there is no room.
func Overloaded() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code: jsonrpc.Overloaded,
		Message: "Overloaded: no memory for a frame of this size now; try again later, or send " +
			"less at once",
		Data: jsonrpc.Raw(
			`{"reason":"no memory for a frame of this size now","sent":"no","retryable":true,` +
				`"retryAfterMs":1000}`),
	}
}

// A Loan is what one frame, or the frames of one connection, hold of a budget: see
// [Lend]. Its methods may be called by any number of goroutines at once; it must not
// be copied once it is used.
type Loan struct {
	b    *Budget
	held atomic.Int64 // changed under books.mu

	// Under books.mu.
	draw   *draw // nil: it holds nothing
	closed bool

	evicted atomic.Bool // it is closed, to make room for others
}

// Lend returns a loan that holds nothing. b may be nil: see [Or].
func Lend(b *Budget) Loan { return Loan{b: Or(b)} }

// Held returns what is held.
func (l *Loan) Held() int64 { return l.held.Load() }

// Grow makes the loan hold size bytes, nothing up to Free. It reports false, and
// changes nothing, when there is no room, and after Close. What shrinks always
// fits.
func (l *Loan) Grow(size int) bool { return l.set(size, nil, false) }

// Begin is Grow for a frame that is incomplete. Where the budget is one in which
// incomplete frames make room for others, the frame may be evicted until the next
// Grow, Force or Close.
func (l *Loan) Begin(size int, f Frame) bool { return l.set(size, f, false) }

// A Frame is what arrives.
type Frame interface {
	// Remote is the address that it comes from; "" when there is none.
	Remote() string
	// Evicted is called, once at most and by another goroutine, when the frame has
	// made room for another one: its loan is closed by then. It must not block.
	Evicted()
}

// Force makes the loan hold size bytes although there may be no room: of a frame
// that is in memory anyway.
func (l *Loan) Force(size int) { l.set(size, nil, true) }

func (l *Loan) set(size int, f Frame, force bool) bool {
	n := size
	if n <= Free {
		n = 0
	}
	if n == 0 && l.held.Load() == 0 {
		return true
	}
	return l.b.set(l, n, f, force)
}

// Overdrawn reports whether the loan holds something, and more is held of its budget than there is:
// by Force.
func (l *Loan) Overdrawn() bool { return l.held.Load() > 0 && l.b.books.overdrawn(l) }

// Evicted reports whether the frame has made room for another one.
func (l *Loan) Evicted() bool { return l.evicted.Load() }

// Release gives everything back. It reports whether the loan can be used again,
// which it cannot once the frame was evicted.
func (l *Loan) Release() bool {
	if l.held.Load() > 0 {
		l.Force(0)
	}
	return !l.evicted.Load()
}

// Close gives everything back, for good. Of a nil loan it does nothing.
func (l *Loan) Close() {
	if l != nil {
		l.b.books.close(l)
	}
}

var (
	// ErrTooLarge is the failure of a body of more than the limit.
	ErrTooLarge = errors.New("budget: the body is too large")
	// ErrNoRoom is the failure of a body for which there is no room.
	ErrNoRoom = errors.New(
		"budget: overloaded: no memory for a message of this size now; try again later")
)

// leastRead is how large a buffer of unknown use begins.
const leastRead = 4 << 10

// ReadAll appends the whole of r to buf, and makes the loan hold the buffer. length
// is the declared length, or -1: no more than Free is allocated on its word alone.
// f may be nil. It fails with ErrTooLarge when there are more than limit bytes, and
// with ErrNoRoom, and returns what it has read all the same; the loan holds that
// until Grow(0) or Close. A nil loan reads what is unbounded by the budget.
func (l *Loan) ReadAll(buf []byte, r io.Reader, length int64, limit int, f Frame) ([]byte, error) {
	if length > int64(limit) {
		return buf, ErrTooLarge
	}
	if length >= 0 && length <= Free { // exactly the declared length: no read beyond it, no growth
		if int(length) > cap(buf) {
			buf = make([]byte, 0, length)
		}
		n, err := io.ReadFull(r, buf[:length])
		return buf[:n], err
	}
	for {
		if len(buf) == cap(buf) {
			size := max(2*cap(buf), leastRead)
			if length >= 0 {
				size = min(size, int(length)+1) // one more, to see the end
			}
			if l != nil && !l.Begin(size, f) {
				return buf, ErrNoRoom
			}
			buf = slices.Grow(buf, max(size-len(buf), 1))
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit:
			return buf[:limit], ErrTooLarge
		case err == io.EOF: // a reader returns it bare; a wrapped one is a broken connection
			if l != nil && l.Held() > 0 {
				l.Force(cap(buf)) // it is not incomplete any more
				if l.Evicted() {
					return buf, ErrNoRoom
				}
			}
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}

// Body returns the body of a request over HTTP, as a Frame with an owner that is that of the
// request's context; nil when the declared length is Free or less, which draws nothing.
// It is never used again: who evicts it may read it after the request has ended.
func Body(w http.ResponseWriter, r *http.Request) Frame {
	if r.ContentLength >= 0 && r.ContentLength <= Free {
		return nil
	}
	return &request{w, r}
}

// A request is what Body returns.
type request struct {
	w http.ResponseWriter
	r *http.Request
}

// Owner returns the owner in the context of the request, or the zero key.
func (q *request) Owner() owner.Key { return owner.From(q.r.Context()) }

// Remote implements Frame.
func (q *request) Remote() string { return q.r.RemoteAddr }

// Evicted implements Frame: the read that waits for the body fails.
func (q *request) Evicted() {
	// without a connection nothing waits
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Unix(1, 0))
}
