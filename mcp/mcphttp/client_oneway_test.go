package mcphttp_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/http1/http1test"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// A notification with a context that ends while its answer comes harms none that follows over the
// same connection.
func TestEndedContextHarmsNoOther(t *testing.T) {
	web := http1test.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer web.Close()
	c, err := mcphttp.Dial(web.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	notice := []byte(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	send := func(ctx context.Context) error {
		return c.Exchange(ctx, notice, func([]byte) error { return nil })
	}
	began := time.Now()
	for range 20 {
		if err := send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	usual := time.Since(began) / 20
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(4*usual))))
				_ = send(ctx)
				cancel()
			}
		})
		wg.Go(func() {
			for range 1000 {
				if err := send(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
