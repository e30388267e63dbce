package watch

import (
	"context"
	"errors"
	"io"
	"time"
)

// Follow returns a reader of a file that grows. At its end it calls atEnd, and waits for more,
// until the context ends or atEnd fails.
func Follow(ctx context.Context, in io.Reader, atEnd func() error) io.Reader {
	return &following{ctx, in, atEnd}
}

// followEach is how often a file that grows is looked at.
const followEach = 100 * time.Millisecond

type following struct {
	ctx   context.Context //nolint:containedctx // io.Reader has none
	in    io.Reader
	atEnd func() error
}

// Read implements io.Reader.
func (f *following) Read(p []byte) (int, error) {
	for {
		n, err := f.in.Read(p)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		if err := f.atEnd(); err != nil {
			return 0, err
		}
		select {
		case <-f.ctx.Done():
			return 0, io.EOF
		case <-time.After(followEach):
		}
	}
}
