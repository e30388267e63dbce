package farcall_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
)

// A handler that is no Mux gets the method as it was sent, also where the calls of many methods, of
// equal lengths and endings among them, run concurrently.
func TestMethodNames(t *testing.T) {
	t.Parallel()
	r := farcall.NewResponder(
		farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
			return req.Method, nil
		}), nil)
	var wg sync.WaitGroup
	for _, long := range []string{"", "/", strings.Repeat("long", 40)} {
		for n := range 20 {
			wg.Go(func() {
				method := fmt.Sprintf("m%02d%se", n, long)
				for range 50 {
					answer := r.Respond(t.Context(), nil,
						fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q}`, method), nil)
					if want := fmt.Sprintf(`{"jsonrpc":"2.0","result":%q,"id":1}`,
						method); string(answer) != want {
						t.Errorf("got %s, want %s", answer, want)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}
