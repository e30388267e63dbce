package mcp

import (
	"errors"
	"io"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// watch returns the transport, and with it what becomes of reading from it. The
// connection lives on when the other end sends no more, for calls in flight are
// answered.
func watch(t farcall.Transport) (farcall.Transport, *reading) {
	w := &watched{Transport: t, reading: reading{ended: make(chan struct{})}}
	w.keeper, _ = t.(farcall.Keeper)
	w.buffered, _ = t.(farcall.Buffered)
	if try, ok := t.(farcall.TryWriter); ok {
		return &watchedTry{w, try}, &w.reading
	}
	return w, &w.reading
}

// reading is what became of reading from a transport.
type reading struct {
	ended chan struct{} // closed when nothing more can come
	once  sync.Once
	err   error // why; set before
}

func (r *reading) failed(err error) {
	if wire := new(jsonrpc.Error); errors.As(err, &wire) && !errors.Is(err, io.EOF) {
		return // one frame is refused
	}
	r.once.Do(func() {
		r.err = err
		close(r.ended)
	})
}

// closedInOrder reports whether the other end said that it sends no more.
func (r *reading) closedInOrder() bool {
	select {
	case <-r.ended:
		return errors.Is(r.err, io.EOF)
	default:
		return false
	}
}

// watched passes on what the transport can do beyond the interface.
type watched struct {
	farcall.Transport

	keeper   farcall.Keeper
	buffered farcall.Buffered
	reading  reading
}

// Read implements farcall.Transport.
func (w *watched) Read() ([]byte, error) {
	frame, err := w.Transport.Read()
	if err != nil {
		w.reading.failed(err)
	}
	return frame, err
}

// Busy is that of the transport, if it has one: see package accept.
func (w *watched) Busy(f func() bool) {
	if b, ok := w.Transport.(interface{ Busy(f func() bool) }); ok {
		b.Busy(f)
	}
}

// Keep implements farcall.Keeper: what is no Keeper keeps every frame.
func (w *watched) Keep() {
	if w.keeper != nil {
		w.keeper.Keep()
	}
}

// Buffered implements farcall.Buffered: false promises nothing.
func (w *watched) Buffered() bool { return w.buffered != nil && w.buffered.Buffered() }

// watchedTry is watched where there is a TryWriter.
type watchedTry struct {
	*watched
	farcall.TryWriter
}
