package budget

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
)

var (
	// ErrTooLarge is the failure of a body of more than the limit.
	ErrTooLarge = errors.New("budget: the body is too large")
	// ErrNoRoom is the failure of a body for which there is no room.
	ErrNoRoom = errors.New("budget: overloaded: no memory for a message of this size now; try again later")
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
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Unix(1, 0)) // without a connection nothing waits
}
