package upstream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// TestLogsOfMany goes over connections that pass from call to call as fast as they can.
// What is logged goes to the call that it is about, all of it.
func TestLogsOfMany(t *testing.T) {
	u := newLab(t, legacy).upstream(Options{Asks: true})
	var logs atomic.Int64
	var wg sync.WaitGroup
	for k := range 40 {
		wg.Go(func() {
			who := asker(fmt.Sprint("s", k))
			ask := toolCall("ask", "q", who)
			ask.Ask = answerWith("")
			mustDo(t, u, ask, "q q")
			for i := range 50 {
				id := fmt.Sprint(k, "-", i)
				c := toolCall("tell", id, who)
				c.LogLevel = "info"
				c.Notice = func(_ context.Context, _ string, params jsonrpc.Raw) {
					if logs.Add(1); !strings.Contains(string(params), `"`+id+`"`) {
						t.Errorf("%s got %s", id, params)
					}
				}
				mustDo(t, u, c, id)
			}
		})
	}
	wg.Wait()
	if n := logs.Load(); n != 40*50*3 {
		t.Errorf("%d messages came, want %d", n, 40*50*3)
	}
}
