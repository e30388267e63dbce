package farcall_test

import (
	"bytes"
	"context"
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
