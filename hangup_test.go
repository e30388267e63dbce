package farcall_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
)

// hanging is a transport; its other end sends one frame and then hangs up.
type hanging struct {
	farcall.Transport

	frame string
	err   error // that of the end
	sent  bool
	wrote []string
}

func (h *hanging) Read() ([]byte, error) {
	if !h.sent {
		h.sent = true
		return []byte(h.frame), nil
	}
	return nil, h.err
}

func (h *hanging) Write(frames ...[]byte) error {
	for _, f := range frames {
		h.wrote = append(h.wrote, string(f))
	}
	return nil
}
func (h *hanging) Close() error { return nil }

type bothEnds struct{}

func (bothEnds) Error() string  { return "closed" }
func (bothEnds) Unwrap() error  { return io.EOF }
func (bothEnds) BothEnds() bool { return true }

type halfClosed struct{ bothEnds }

func (halfClosed) BothEnds() bool   { return false }
func (halfClosed) HalfClosed() bool { return true }

// A call goes on when the other end may still read its answer, and is given up at once when it
// cannot. What takes too long is answered, too.
func TestHangUp(t *testing.T) {
	const hour = time.Hour
	for _, test := range []struct {
		err        error
		linger     time.Duration
		takes      time.Duration
		want       time.Duration
		wantAnswer string
	}{
		{
			io.EOF, 0, hour, 10 * time.Second,
			`"code":-32009,"message":"Timeout: the input ended, and the call took more than 10s ` +
				`after that"`,
		},
		{io.EOF, 0, 9 * time.Second, 9 * time.Second, `"result":true`},
		{io.EOF, time.Minute, hour, time.Minute, "more than 1m0s"},
		{io.EOF, -1, hour, hour, `"result":true`},
		{halfClosed{}, 0, hour, hour, `"result":true`},
		{halfClosed{}, time.Second, hour, time.Second, "more than 1s"},
		{bothEnds{}, 0, hour, 0, ""},
		{bothEnds{}, -1, hour, 0, ""},
		{io.ErrUnexpectedEOF, 0, hour, 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ended := make(chan time.Duration, 1)
			h := handle(
				map[string]farcall.HandlerFunc{"work": func(
					ctx context.Context, _ *farcall.Request,
				) (any, error) {
					select {
					case <-ctx.Done():
					case <-time.After(test.takes):
					}
					ended <- time.Since(began)
					return true, ctx.Err()
				}})
			transport := &hanging{frame: `{"jsonrpc":"2.0","method":"work","id":1}`, err: test.err}
			p := farcall.NewPeer(transport, h, &farcall.Options{Linger: test.linger})
			if got := <-ended; got.Round(time.Second) != test.want {
				t.Errorf("%v: the handler went on for %v, not %v", test.err, got, test.want)
			}
			<-p.Done()
			if err := p.Err(); !errors.Is(err, test.err) {
				t.Error(err)
			}
			answers := strings.Join(transport.wrote, "\n")
			if test.wantAnswer == "" && answers != "" || !strings.Contains(answers, test.wantAnswer) ||
				len(transport.wrote) > 1 {
				t.Errorf("%v: the answers are %q", test, answers)
			}
		})
	}
}

// A batch with an element that takes too long is answered as a batch: with the answers of the
// others, in their order.
func TestHangUpInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context, _ *farcall.Request) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		h := handle(map[string]farcall.HandlerFunc{
			"wait": wait,
			"fast": func(context.Context, *farcall.Request) (any, error) { return true, nil },
		})
		transport := &hanging{err: io.EOF, frame: `[{"jsonrpc":"2.0","method":"fast","id":1},` +
			`{"jsonrpc":"2.0","method":"wait","id":2},{"jsonrpc":"2.0","method":"none","id":null},5,` +
			`{"jsonrpc":"2.0","method":"wait","id":2},{"jsonrpc":"2.0","method":"fast"},{"jsonrpc":"2.0",` +
			`"method":"wait","id":null}]`}
		p := farcall.NewPeer(transport, h, &farcall.Options{Linger: time.Minute})
		<-p.Done()
		const late = `"error":{"code":-32009,"message":"Timeout: the input ended, and the call took ` +
			`more than 1m0s after that",` +
			`"data":{"sent":"yes","reason":"input ended"}}`
		want := `[{"jsonrpc":"2.0","result":true,"id":1},{"jsonrpc":"2.0",` + late + `,"id":2},` +
			`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":null},` +
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":null},` +
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":2},` +
			`{"jsonrpc":"2.0",` + late + `,"id":null}]`
		if len(transport.wrote) != 1 || withoutReasons(transport.wrote[0]) != withoutReasons(want) {
			t.Errorf("answered %q", transport.wrote)
		}
	})
}
