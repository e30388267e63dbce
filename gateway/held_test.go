package gateway_test

import (
	"context"
	"math"
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

// TestHeldResult bounds what is held of a large result. Before the answer is made of it, that is one
// copy: what was read, with a buffer twice as large at most, where nothing differs, and otherwise
// what was made of that. So there are two while the answer is made, and one while it is written,
// once the goroutine that has read the result goes on.
func TestHeldResult(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const size, mostWritten = 24 << 20, 1.1
	for revision, most := range map[string]float64{legacy: 1.5, modern: 1.1} {
		t.Run(revision, func(t *testing.T) {
			up := child("c", "big", "24")
			up.MaxMessage = 2 * size
			answering := 0.0
			var base uint64
			// The goroutine that has read the result lets go of it when it runs again.
			held := func(most float64) (times float64) {
				for began := time.Now(); ; runtime.Gosched() {
					var m runtime.MemStats
					runtime.GC()
					runtime.GC() // what pools had is kept by one
					runtime.ReadMemStats(&m)
					times = float64(int64(m.HeapAlloc-base)) / size
					if times <= most || time.Since(began) > 10*time.Second {
						return times
					}
				}
			}
			l := newLab(t, &gateway.Options{RPC: &farcall.Options{Interceptors: []farcall.Interceptor{func(next farcall.Handler) farcall.Handler {
				return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
					farcall.OnAnswer(ctx, func(result jsonrpc.Raw, _ error) {
						if len(result) > size {
							answering = held(most)
						}
					})
					return next.ServeRPC(ctx, req)
				})
			}}}}, up)
			c := &benchClient{g: l.Gateway, revision: revision}
			c.begin(t)
			body := strings.Replace(benchCall, "server__greet", "echo", 1)
			if c.modern() {
				body = strings.Replace(body, `"params":{`, `"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"`+modern+
					`","io.modelcontextprotocol/clientCapabilities":{}},`, 1)
			}
			r := c.request(t, body)
			r.Header.Set("Mcp-Name", "echo")
			base = uint64(held(math.Inf(1)) * size)
			w := &heldWriter{header: http.Header{}, held: func() float64 { return held(mostWritten) }}
			l.ServeHTTP(w, r)
			t.Logf("held before the answer is made %.2f times its size, while it is written %.2f", answering, w.begun)
			if w.size < size || answering == 0 {
				t.Fatalf("answered %d bytes", w.size)
			}
			if answering > most || w.begun > mostWritten {
				t.Errorf("at most %.2f and %.2f are right", most, mostWritten)
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
