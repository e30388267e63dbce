package farcall_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/stream"
)

// A connection that is idle again, and a pool, hold nothing of a large frame, whatever became of
// it.
func TestLargeFramesAreNotKept(t *testing.T) {
	size := 32 << 20
	if race.Enabled {
		size /= 4
	}
	frames := map[string]string{
		"a call":         `{"jsonrpc":"2.0","id":1,"method":"none","params":["%"]}`,
		"a batch":        `[{"jsonrpc":"2.0","id":1,"method":"none","params":["%"]}]`,
		"an answer":      `{"jsonrpc":"2.0","id":77,"result":"%"}`,
		"not valid":      `{"jsonrpc":"1","id":1,"method":"none","params":["%"]}`,
		"no JSON":        `{"jsonrpc":"2.0","id":1,"method":"none","params":["%"}`,
		"a notification": `{"jsonrpc":"2.0","method":"none","params":["%"]}`,
	}
	for name, frame := range frames {
		large := func() []byte {
			return []byte(strings.Replace(frame, "%", strings.Repeat("x", size), 1))
		}
		t.Run("connection/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				p := farcall.NewPeer(stream.New(theirs, stream.NDJSON, nil), farcall.NewMux(), nil)
				defer p.Close()
				defer ours.Close()
				go io.Copy(io.Discard, ours)
				for _, part := range [][]byte{large(), []byte("\n")} {
					if _, err := ours.Write(part); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if kept := heap(); kept > size/2 {
					t.Errorf("%d MB are kept", kept>>20)
				}
			})
		})
		t.Run("responder/"+name, func(t *testing.T) {
			r := farcall.NewResponder(farcall.NewMux(), nil)
			r.Respond(t.Context(), nil, large(), nil)
			if kept := heap(); kept > size/2 {
				t.Errorf("%d MB are kept", kept>>20)
			}
		})
	}
}
