package farcall_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/stream"
)

// Shutdown gives an end that reads slowly its answers, and does not wait for one that reads
// nothing.
func TestShutdownOfUnread(t *testing.T) {
	const size = 200_000
	for name, test := range map[string]struct {
		read int // bytes, each 10 ms
		min  time.Duration
		max  time.Duration
	}{
		"nothing":   {0, 2 * time.Second, 6 * time.Second},
		"slowly":    {1000, 2 * time.Second, 3 * time.Second},
		"at a time": {size * 2, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				far, near := net.Pipe() // it has no buffer
				defer far.Close()
				big := strings.Repeat("x", size)
				p := farcall.NewPeer(stream.New(near, stream.NDJSON, nil), farcall.HandlerFunc(
					func(context.Context, *farcall.Request) (any, error) { return big, nil }), nil)
				if _, err := fmt.Fprintln(far, `{"jsonrpc":"2.0","method":"big","id":1}`); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				begun, ended := time.Now(), make(chan error, 1)
				go func() { ended <- p.Shutdown(context.WithoutCancel(t.Context())) }()
				var got bytes.Buffer
				for test.read > 0 {
					if _, err := io.CopyN(&got, far, int64(test.read)); err != nil {
						break
					}
					<-time.After(10 * time.Millisecond)
				}
				err := <-ended
				whole := bytes.HasSuffix(got.Bytes(), []byte("}\n"))
				if whole != (err == nil) || whole != (test.read > 0) {
					t.Errorf("%d bytes came, %v", got.Len(), err)
				}
				if took := time.Since(begun); took < test.min || took > test.max {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A call that Shutdown does not wait for is answered all the same, with those of its batch that
// have ended; its caller knows that it was sent.
func TestShutdownAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		far, near := net.Pipe()
		defer far.Close()
		p := farcall.NewPeer(stream.New(near, stream.NDJSON, nil), farcall.HandlerFunc(
			func(ctx context.Context, r *farcall.Request) (any, error) {
				if r.Method == "slow" {
					<-ctx.Done()
				}
				return r.Method, nil
			}), nil)
		var got bytes.Buffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(&got, far) // until the end
		}()
		for _, m := range []string{
			`{"jsonrpc":"2.0","method":"slow","id":1}`,
			`[{"jsonrpc":"2.0","method":"slow","id":2},{"jsonrpc":"2.0","method":"fast","id":3}]`,
		} {
			if _, err := fmt.Fprintln(far, m); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		if err := p.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-read
		const cut = `{"jsonrpc":"2.0","error":{"code":-32009,"message":"Timeout: this end ` +
			`shuts down, and ` +
			`the call took longer than it waits","data":{"sent":"yes","reason":"shutdown"}},"id":%d}`
		want := fmt.Sprintf(cut+"\n["+cut+`,{"jsonrpc":"2.0","result":"fast","id":3}]`+"\n", 1, 2)
		if got.String() != want {
			t.Errorf("got  %swant %s", got.String(), want)
		}
	})
}
