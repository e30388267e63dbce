package farcall_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
)

// hanging is a transport whose other end sends one frame and then hangs up.
type hanging struct {
	farcall.Transport

	err  error // that of the end
	sent bool
}

func (h *hanging) Read() ([]byte, error) {
	if !h.sent {
		h.sent = true
		return []byte(`{"jsonrpc":"2.0","method":"work","id":1}`), nil
	}
	return nil, h.err
}

func (h *hanging) Write(...[]byte) error { return nil }
func (h *hanging) Close() error          { return nil }

type bothEnds struct{}

func (bothEnds) Error() string  { return "closed" }
func (bothEnds) Unwrap() error  { return io.EOF }
func (bothEnds) BothEnds() bool { return true }

// A call goes on for a while when the other end may still read its answer, and is
// given up at once when it cannot.
func TestHangUp(t *testing.T) {
	for _, test := range []struct {
		err  error
		want time.Duration
	}{{io.EOF, 10 * time.Second}, {bothEnds{}, 0}, {io.ErrUnexpectedEOF, 0}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ended := make(chan time.Duration, 1)
			h := handle(map[string]farcall.HandlerFunc{"work": func(ctx context.Context, _ *farcall.Request) (any, error) {
				<-ctx.Done()
				ended <- time.Since(began)
				return nil, ctx.Err()
			}})
			p := farcall.NewPeer(&hanging{err: test.err}, h, nil)
			if got := <-ended; got.Round(time.Second) != test.want {
				t.Errorf("%v: the handler went on for %v, not %v", test.err, got, test.want)
			}
			<-p.Done()
			if err := p.Err(); !errors.Is(err, test.err) {
				t.Error(err)
			}
		})
	}
}
