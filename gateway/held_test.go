package gateway_test

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// TestHeldResult bounds what is held of a large result before the answer is made of it, and while
// it is written: what was made of the result, once, and, as long as the goroutine that has read it
// does not go on, what was read, in a buffer that is larger by a third here.
func TestHeldResult(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const size, most = 24 << 20, 2.4
	for _, revision := range []string{legacy, modern} {
		t.Run(revision, func(t *testing.T) {
			up := child("c", "big", "24")
			up.MaxMessage = 2 * size
			answering := 0.0
			var base uint64
			held := func() float64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.GC() // what pools had is kept by one
				runtime.ReadMemStats(&m)
				return float64(int64(m.HeapAlloc-base)) / size
			}
			l := newLab(t,
				&gateway.Options{RPC: &farcall.Options{Interceptors: []farcall.Interceptor{func(
					next farcall.Handler,
				) farcall.Handler {
					return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
						farcall.OnAnswer(ctx, func(result jsonrpc.Raw, _ error) {
							if len(result) > size {
								answering = held()
							}
						})
						return next.ServeRPC(ctx, req)
					})
				}}}}, up)
			c := &benchClient{g: l.Gateway, revision: revision}
			c.begin(t)
			body := strings.Replace(benchCall, "server__greet", "echo", 1)
			if c.modern() {
				body = strings.Replace(body, `"params":{`,
					`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"`+modern+
						`","io.modelcontextprotocol/clientCapabilities":{}},`, 1)
			}
			r := c.request(t, body)
			r.Header.Set("Mcp-Name", "echo")
			base = uint64(held() * size)
			w := &heldWriter{header: http.Header{}, held: held}
			l.ServeHTTP(w, r)
			t.Logf("held before the answer is made %.2f times its size, while it is written %.2f",
				answering, w.begun)
			if w.size < size || answering == 0 {
				t.Fatalf("answered %d bytes", w.size)
			}
			if max(answering, w.begun) > most {
				t.Errorf("at most %.2f are right", most)
			}
		})
	}
}

// heldWriter notes what is held at the first byte of an answer.
type heldWriter struct {
	header http.Header
	size   int
	held   func() float64
	begun  float64
}

func (w *heldWriter) Header() http.Header              { return w.header }
func (w *heldWriter) WriteHeader(int)                  {}
func (w *heldWriter) Flush()                           {}
func (w *heldWriter) SetReadDeadline(time.Time) error  { return nil }
func (w *heldWriter) SetWriteDeadline(time.Time) error { return nil }

func (w *heldWriter) Write(p []byte) (int, error) {
	if w.size == 0 {
		w.begun = w.held()
	}
	w.size += len(p)
	return len(p), nil
}
