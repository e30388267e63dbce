package mcphttp

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/observe"
)

const (
	// retryAfter is how long a client waits before it comes back.
	retryAfter = time.Second
)

// events is one HTTP answer that is an event stream, or becomes one with its
// first event. The heartbeat runs in the goroutine of a timer.
type events struct {
	w    http.ResponseWriter
	beat time.Duration
	done chan struct{} // closed at the end; may be nil
	rpc  *farcall.Options

	mu    sync.Mutex
	out   *sse.Writer // nil until it is an event stream
	ctl   *http.ResponseController
	timer *time.Timer
	ended bool
	seen  func() // tells the observer of the end; nil: there is none, or it is no event stream
	err   error  // sticky
}

var errStreamEnded = errors.New("mcphttp: the event stream has ended")

// send sends one event without an id.
func (e *events) send(data []byte) error { return e.event(sse.Event{Data: data}) }

// event sends one event.
func (e *events) event(ev sse.Event) error {
	return e.write(func() error { return e.out.Event(ev) })
}

// comment sends what clients pass over, and makes it an event stream.
func (e *events) comment(text string) error {
	return e.write(func() error { return e.out.Comment(text) })
}

// prime sends an event without data; the client can come back with its id, and
// how soon it should (SEP-1699).
func (e *events) prime(id string) error {
	return e.write(func() error {
		if err := e.out.Event(sse.Event{ID: id}); err != nil {
			return err
		}
		return e.out.Retry(retryAfter)
	})
}

// open makes it an event stream.
func (e *events) open() error {
	return e.write(func() error { return e.flush() })
}

// header sets a header, or takes it back, unless it is too late for that.
func (e *events) header(name, value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.out != nil || e.ended:
	case value == "":
		delete(e.w.Header(), name)
	default:
		e.w.Header()[name] = []string{value}
	}
}

// rouse makes it an event stream, unless it is one, so that no proxy in between
// takes the connection for dead.
func (e *events) rouse() {
	e.mu.Lock()
	silent := e.out == nil
	e.mu.Unlock()
	if silent {
		e.tick()
	}
}

// plain answers without an event stream, and ends. It reports false when it is
// too late for that.
func (e *events) plain(answer func(w http.ResponseWriter)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.out != nil || e.ended {
		return false
	}
	answer(e.w)
	e.endLocked()
	return true
}

// write begins the stream when it is new, and calls f.
func (e *events) write(f func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return errStreamEnded
	}
	if e.out == nil {
		e.begin()
	}
	return e.writeLocked(f)
}

// begin sends the headers.
func (e *events) begin() {
	header := e.w.Header()
	header["Content-Type"] = eventsHeader
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // else nginx holds events back
	e.ctl = http.NewResponseController(e.w)
	e.out = sse.NewWriter(timedWriter{e.w, e.ctl}, e.flush)
	if e.beat > 0 && e.timer == nil {
		e.timer = time.AfterFunc(e.beat, e.tick)
	}
	e.w.WriteHeader(http.StatusOK)
	e.seen = e.rpc.Observer.Begin(observe.Lifetime{Kind: observe.Stream, Transport: e.rpc.Transport})
}

// flush makes the client see what was written, unless something in between
// cannot.
func (e *events) flush() error {
	if err := e.ctl.Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// tick shows that the connection is alive.
func (e *events) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return
	}
	if e.out == nil {
		e.begin()
	}
	if e.writeLocked(func() error { return e.out.Comment("") }) != nil {
		e.endLocked()
	}
}

func (e *events) writeLocked(f func() error) error {
	if e.err != nil {
		return e.err
	}
	if err := e.ctl.SetWriteDeadline(time.Now().Add(slow.AnswerTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		e.err = err
		return err
	}
	if e.err = f(); e.err == nil && e.timer != nil {
		e.timer.Reset(e.beat)
	}
	return e.err
}

// end ends the answer: nothing is written any more. It may be called more than
// once.
func (e *events) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endLocked()
}

func (e *events) endLocked() {
	if e.ended {
		return
	}
	e.ended = true
	if e.timer != nil {
		e.timer.Stop()
	}
	if e.ctl != nil && e.err == nil {
		slow.Answer(e.w) // the end is still to be written, and the last event may be long ago
	}
	if e.seen != nil {
		e.seen()
	}
	if e.done != nil {
		close(e.done)
	}
}
