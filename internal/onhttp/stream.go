package onhttp

import (
	"errors"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/observe"
)

var eventsHeader = []string{sse.ContentType}

// A Stream is an answer that is an event stream once it has begun. Its methods must not be called
// by two goroutines at once.
type Stream struct {
	W     http.ResponseWriter
	Beat  time.Duration // when so long nothing was written, tick is called; 0: never
	RPC   *farcall.Options
	Holds bool // W may be unable to flush

	out   *sse.Writer // nil until it has begun
	ctl   *http.ResponseController
	timer *time.Timer
	seen  func() // tells the observer of the end; nil: there is none, or it has not begun
	err   error  // sticky
}

// Begun reports whether it is an event stream.
func (s *Stream) Begun() bool { return s.out != nil }

// Begin sends the headers.
func (s *Stream) Begin(tick func()) {
	header := s.W.Header()
	header["Content-Type"] = eventsHeader
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // else nginx holds events back
	s.ctl = http.NewResponseController(s.W)
	s.out = sse.NewWriter(timedWriter{s.W, s.ctl}, s.flush)
	if s.Beat > 0 {
		s.timer = time.AfterFunc(s.Beat, tick)
	}
	s.W.WriteHeader(http.StatusOK)
	s.seen = s.RPC.Observer.Begin(observe.Lifetime{Kind: observe.Stream, Transport: s.RPC.Transport})
}

func (s *Stream) flush() error {
	if err := s.ctl.Flush(); !s.Holds || !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// Write calls f, which writes events. After an error it only returns that.
func (s *Stream) Write(f func(out *sse.Writer) error) error {
	if s.err != nil {
		return s.err
	}
	if s.err = (timedWriter{s.W, s.ctl}).extend(); s.err != nil {
		return s.err
	}
	if s.err = f(s.out); s.err == nil && s.timer != nil {
		s.timer.Reset(s.Beat)
	}
	return s.err
}

// Open makes the client see the headers.
func (s *Stream) Open() error {
	return s.Write(func(*sse.Writer) error { return s.flush() })
}

// Comment writes what clients pass over.
func (s *Stream) Comment(text string) error {
	return s.Write(func(out *sse.Writer) error { return out.Comment(text) })
}

// Event writes an event.
func (s *Stream) Event(e sse.Event) error {
	return s.Write(func(out *sse.Writer) error { return out.Event(e) })
}

// End is called once.
func (s *Stream) End() {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.ctl != nil && s.err == nil {
		slow.Answer(s.W) // the end is still to be written, and the last event may be long ago
	}
	if s.seen != nil {
		s.seen()
	}
}
