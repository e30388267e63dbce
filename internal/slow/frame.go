package slow

import (
	"fmt"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// DefaultFrame is how long a frame may take to arrive, and a second more for each
// 100 KB of it.
const DefaultFrame = 30 * time.Second

// FrameLimit returns the limit for the option of a transport: 0 is the default,
// less than 0 none.
func FrameLimit(d time.Duration) Limit {
	if d == 0 {
		d = DefaultFrame
	}
	return Limit(d)
}

// TooSlow is the answer to a frame that took longer than the limit.
func (l Limit) TooSlow() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.InvalidRequest,
		Message: fmt.Sprintf("Request timeout: the message has begun and did not arrive within %v, and a second for each 100 KB of it", time.Duration(l)),
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
