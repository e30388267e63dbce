package httprpc

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

// events is an answer that is an event stream. It begins with the first event.
// The keep-alive runs in the goroutine of a timer; mu keeps it and the handler
// apart.
type events struct {
	w         http.ResponseWriter
	keepAlive time.Duration
	rpc       *farcall.Options
	started   bool // used by the handler's goroutines only

	mu    sync.Mutex
	ctl   *http.ResponseController
	out   *sse.Writer
	timer *time.Timer
	ended bool
	seen  func() // tells the observer of the end; nil: there is none, or no event
	err   error  // sticky
}

// begin sends the headers.
func (e *events) begin() {
	e.started = true
	header := e.w.Header()
	header["Content-Type"] = sseHeader
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // else nginx holds events back
	e.ctl = http.NewResponseController(e.w)
	e.out = sse.NewWriter(e.w, e.ctl.Flush)
	if e.keepAlive > 0 {
		e.timer = time.AfterFunc(e.keepAlive, e.beat)
	}
	e.w.WriteHeader(http.StatusOK)
	e.seen = e.rpc.Observer.Begin(observe.Lifetime{Kind: observe.Stream, Transport: e.rpc.Transport})
}

// open begins the stream before there is an event.
func (e *events) open() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin()
	return e.writeLocked(e.ctl.Flush)
}

// send sends one event.
func (e *events) send(data []byte) error { return e.event(sse.Event{Data: data}) }

func (e *events) event(ev sse.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.started {
		e.begin()
	}
	return e.writeLocked(func() error { return e.out.Event(ev) })
}

// beat shows that the connection is alive.
func (e *events) beat() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		_ = e.writeLocked(func() error { return e.out.Comment("") }) // sticky
	}
}

func (e *events) writeLocked(write func() error) error {
	if e.err != nil {
		return e.err
	}
	if err := e.ctl.SetWriteDeadline(time.Now().Add(slow.AnswerTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		e.err = err
		return err
	}
	if e.err = write(); e.err == nil && e.timer != nil {
		e.timer.Reset(e.keepAlive)
	}
	return e.err
}

// end ends the stream.
func (e *events) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	if e.seen != nil {
		e.seen()
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	if e.ctl != nil && e.err == nil {
		slow.Answer(e.w) // the end is still to be written, and the last event may be long ago
	}
}
