package farcall

import "context"

// A Transport carries frames between two ends. A frame is one JSON text: a
// message or a batch.
//
// A Peer reads in one goroutine and writes in one goroutine at a time; both
// may happen at once, and Close may be called at any time by any goroutine.
type Transport interface {
	// Read returns the next frame. It fails with io.EOF when the other end closed in order; calls in
	// flight are still answered, unless the error has a method BothEnds() bool that reports true; one
	// with a method HalfClosed() bool that reports true says that the other end still reads (see
	// Options.Linger). A *jsonrpc.Error (as errors.As finds it) refuses one frame only, too large for
	// example: the peer answers with it and reads on. A method Begins() []byte of the error returns
	// the beginning of the frame, so that the peer can fail the call that waits for it. Any other
	// error ends the connection.
	//
	// The frame belongs to the caller, unless the transport is a Keeper.
	Read() ([]byte, error)
	// Write writes whole frames in order. It may block until Close. It does not
	// keep the frames.
	Write(frames ...[]byte) error
	// Close closes both directions and unblocks Read and Write. It may be
	// called more than once.
	Close() error
}

// A Keeper is a Transport that reuses its memory: what Read returns is valid
// only until the next Read, unless Keep is called before it. Then that memory
// is left alone for good.
type Keeper interface {
	Keep()
}

// A Buffered transport knows whether the next Read returns without waiting for
// the other end. A Peer delays its answers while more input is there, so that
// they share system calls.
type Buffered interface {
	Buffered() bool
}

// A TryWriter writes as much as it can without blocking and keeps a copy of
// the rest. When it reports done as false, the rest goes out with the next
// Write, which may have none.
type TryWriter interface {
	TryWrite(frames ...[]byte) (done bool, err error)
}

// An Exchanger is a transport with answers that belong to one request, such as
// HTTP. It must allow concurrent calls.
type Exchanger interface {
	// Exchange sends one frame and gives each frame of the answer to reply, in
	// order, until the answer ends. There may be none. The context ends the
	// exchange. A frame given to reply belongs to the callee.
	Exchange(ctx context.Context, frame []byte, reply func(frame []byte) error) error
	// Close ends what is under way.
	Close() error
}
