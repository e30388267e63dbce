package guard

import (
	"context"
	"testing"
	"time"
)

type forgetful struct{ forgotten int }

func (f *forgetful) Use(context.Context, string, string, time.Time) (bool, error) {
	return true, nil
}
func (f *forgetful) Forget(context.Context, string) { f.forgotten++ }

// A nonce is forgotten once, when a limit has refused all, and is good for no message that comes
// later.
func TestTicket(t *testing.T) {
	for name, test := range map[string]struct {
		refused []bool // of messages that have ended
		running int
		want    int
	}{
		"no message":              {nil, 0, 0},
		"refused":                 {[]bool{true}, 0, 1},
		"executed":                {[]bool{false}, 0, 0},
		"one of each":             {[]bool{true, false}, 0, 0},
		"refused, one is running": {[]bool{true}, 1, 0},
	} {
		store := &forgetful{}
		x := &ticket{nonces: store, nonce: "x"}
		for _, refused := range test.refused {
			if !x.enter() {
				t.Errorf("%s: refused", name)
			}
			x.leave(refused)
		}
		for range test.running {
			x.enter()
		}
		x.settle(t.Context())
		if x.enter() != (test.want == 0) {
			t.Errorf("%s: a late message: %v", name, x.forgotten)
		}
		x.settle(t.Context())
		if store.forgotten != test.want {
			t.Errorf("%s: forgotten %d times", name, store.forgotten)
		}
	}
}
