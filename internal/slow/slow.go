// Package slow answers one question: how long may the other end take to send a frame
// or the body of a request, and to take its answer?
package slow

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// AnswerTime is how long a client may take for each part of an answer.
const AnswerTime = 30 * time.Second

// secondOfBody are the bytes for which a body may take another second.
const secondOfBody = 100 << 10

// A Limit is how long the body of a request may take, and a second more for each
// 100 KB; 0 or less: as long as it likes. Where there is no connection there is no deadline.
type Limit time.Duration

// bounded is a body with a time that is bounded already, by package guard. Asked, it leaves
// deadlines alone but for its own, and says whether that still stands.
type bounded interface{ Bounded() (stands bool) }

func isBounded(r *http.Request) bool {
	b, is := r.Body.(bounded)
	if is {
		b.Bounded()
	}
	return is
}

// Begin bounds the body of a request. It comes before anything is answered: net/http reads what is
// left of a body first.
func (l Limit) Begin(w http.ResponseWriter, r *http.Request) {
	if l > 0 && r.ContentLength != 0 && !isBounded(r) {
		// not supported: then there is none
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Duration(l)))
	}
}

// Body returns the body of a request that has begun.
func (l Limit) Body(w http.ResponseWriter, r *http.Request) io.Reader {
	if l <= 0 || isBounded(r) || r.ContentLength >= 0 && r.ContentLength <= secondOfBody {
		return r.Body
	}
	return &body{r.Body, http.NewResponseController(w), time.Now().Add(time.Duration(l)), secondOfBody}
}

type body struct {
	r     io.Reader
	ctl   *http.ResponseController
	until time.Time
	left  int // bytes, until there is another second
}

// Read moves the deadline as bytes arrive.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= n; b.left <= 0 && err == nil {
		more := 1 - b.left/secondOfBody
		b.left += more * secondOfBody
		b.until = b.until.Add(time.Duration(more) * time.Second)
		_ = b.ctl.SetReadDeadline(b.until) // as in Begin
	}
	return n, err
}

// End takes back what Begin has done: the body is there, and the connection may be silent
// while the answer is made.
func (l Limit) End(w http.ResponseWriter, r *http.Request) {
	if b, ok := r.Body.(bounded); ok && !b.Bounded() {
		return
	}
	if l > 0 && r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as in Begin
	}
}

// Answer gives the client AnswerTime to take what is written next. The server forgets it after the
// answer; until then part of that may be in a buffer.
func Answer(w http.ResponseWriter) {
	// not supported: then there is none
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(AnswerTime))
}

// AnswerNothing writes an answer without a body.
func AnswerNothing(w http.ResponseWriter, status int) {
	Answer(w)
	w.WriteHeader(status)
}

// DefaultFrame is how long a frame may take to arrive, and a second more for each
// 100 KB of it.
const DefaultFrame = 30 * time.Second

// FrameLimit returns the limit for the option of a transport: 0 is the default,
// less than 0 none.
func FrameLimit(d time.Duration) Limit {
	d = cmp.Or(d, DefaultFrame)
	return Limit(d)
}

// TooSlow is the answer to a frame that took longer than the limit.
func (l Limit) TooSlow() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code: jsonrpc.InvalidRequest,
		Message: fmt.Sprintf(
			"Request timeout: the message has begun and did not arrive within %v, and a second for each "+
				"100 KB of it", time.Duration(l)),
	}
}

// A Frame bounds how long a frame may take once it has begun. What counts is its
// progress: single bytes do not keep it open, and a large frame may take the time
// that a slow network needs. Its methods may be called by any number of goroutines
// at once.
//
// One timer runs while frames are incomplete. It is not set again for each of
// them, so a frame that arrives in two parts costs no timer.
type Frame struct {
	limit Limit
	late  func()

	mu    sync.Mutex
	timer *time.Timer
	armed bool
	begun bool
	due   time.Time // of the frame that has begun
	bytes int       // of it, since due was moved
}

// NewFrame returns a Frame that calls late, in its own goroutine, when a
// frame took too long. late must not block.
func NewFrame(l Limit, late func()) *Frame { return &Frame{limit: l, late: late} }

// Begin says that a frame has begun and is incomplete.
func (f *Frame) Begin() {
	if f.limit <= 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun, f.bytes, f.due = true, 0, time.Now().Add(time.Duration(f.limit))
	if f.armed {
		return
	}
	f.armed = true
	if f.timer == nil {
		f.timer = time.AfterFunc(time.Duration(f.limit), f.check)
	} else {
		f.timer.Reset(time.Duration(f.limit))
	}
}

// Add says that n more bytes of it have arrived.
func (f *Frame) Add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes += n
	f.due = f.due.Add(time.Duration(f.bytes/secondOfBody) * time.Second)
	f.bytes %= secondOfBody
}

// End says that the frame is complete, or is not waited for any more.
func (f *Frame) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = false
}

// Stop is End for the last frame.
func (f *Frame) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = false
	if f.timer != nil {
		f.timer.Stop()
	}
}

// check runs when the frame for which the timer was set should be complete.
func (f *Frame) check() {
	f.mu.Lock()
	left := time.Until(f.due)
	late := f.begun && left <= 0
	f.armed = f.begun && !late
	if f.armed {
		f.timer.Reset(left)
	}
	f.mu.Unlock()
	if late {
		f.late()
	}
}
