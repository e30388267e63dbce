package wirelog

import (
	"errors"
	"io"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Transport returns t with its frames in the log, t itself when the log is nil.
// A frame is logged before it is sent, and when it was received.
func (l *Log) Transport(t farcall.Transport) farcall.Transport {
	if l == nil {
		return t
	}
	w := &transport{Transport: t, log: l, conn: l.connection()}
	w.keeper, _ = t.(farcall.Keeper)
	w.buffered, _ = t.(farcall.Buffered)
	if try, ok := t.(farcall.TryWriter); ok {
		return &tryTransport{w, try}
	}
	return w
}

// transport passes on what the one below can do beyond the interface.
type transport struct {
	farcall.Transport

	log      *Log
	conn     uint64
	keeper   farcall.Keeper
	buffered farcall.Buffered
	over     sync.Once
}

// Read implements farcall.Transport.
func (t *transport) Read() ([]byte, error) {
	frame, err := t.Transport.Read()
	var refused *jsonrpc.Error
	switch {
	case err == nil:
		t.log.Frame(t.conn, Received, frame)
	case errors.As(err, &refused) && !errors.Is(err, io.EOF):
		t.log.note(t.conn, "a frame is refused: %v", err)
	default:
		t.ended(err)
	}
	return frame, err
}

// Write implements farcall.Transport.
func (t *transport) Write(frames ...[]byte) error {
	t.sent(frames)
	return t.wrote(t.Transport.Write(frames...))
}

func (t *transport) sent(frames [][]byte) {
	for _, frame := range frames {
		t.log.Frame(t.conn, Sent, frame)
	}
}

func (t *transport) wrote(err error) error {
	if err != nil {
		t.ended(err)
	}
	return err
}

// ended notes the end of the connection, once.
func (t *transport) ended(err error) {
	t.over.Do(func() { t.log.note(t.conn, "the connection has ended: %v", err) })
}

// Busy is that of the transport, if it has one: see package accept.
func (t *transport) Busy(f func() bool) {
	if b, ok := t.Transport.(interface{ Busy(f func() bool) }); ok {
		b.Busy(f)
	}
}

// Keep implements farcall.Keeper: what is no Keeper keeps every frame.
func (t *transport) Keep() {
	if t.keeper != nil {
		t.keeper.Keep()
	}
}

// Buffered implements farcall.Buffered: false promises nothing.
func (t *transport) Buffered() bool { return t.buffered != nil && t.buffered.Buffered() }

// tryTransport is a transport where there is a TryWriter.
type tryTransport struct {
	*transport

	try farcall.TryWriter
}

// TryWrite implements farcall.TryWriter.
func (t *tryTransport) TryWrite(frames ...[]byte) (done bool, err error) {
	t.sent(frames)
	done, err = t.try.TryWrite(frames...)
	return done, t.wrote(err)
}
