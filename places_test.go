package farcall_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
)

// Two owners of every pair: one has as many calls running as it gets, and the other still gets one.
func TestResponderPlacesAreShared(t *testing.T) {
	owners := []owner.Key{
		owner.Named("ada"), owner.Named("bob"), owner.Address("192.0.2.1"), owner.Address("198.51.100.7"),
		owner.Session("1", "192.0.2.1"), owner.Session("2", "192.0.2.1"),
		owner.Session("3", "198.51.100.7"),
	}
	for _, greedy := range owners {
		for _, other := range owners {
			if greedy == other {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", greedy, other), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { sharePlaces(t, greedy, other) })
			})
		}
	}
}

func sharePlaces(t *testing.T, greedy, other owner.Key) {
	const places = 64
	stop := make(chan struct{})
	r := farcall.NewResponder(
		farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
			if req.Method == "wait" {
				<-stop
			}
			return true, nil
		}), &farcall.Options{MaxInFlight: places})
	call := func(o owner.Key, method string) string {
		ctx := context.WithValue(t.Context(), owner.ContextKey{}, o)
		return withoutReasons(
			string(r.Respond(ctx, nil, []byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`), nil)))
	}
	answers := make(chan string, 2*places)
	for range 2 * places {
		go func() { answers <- call(greedy, "wait") }()
	}
	synctest.Wait()
	running := 2*places - len(answers)
	if running < places/2 || running >= places {
		t.Errorf("%v has %d of %d places", greedy, running, places)
	}
	if got := call(other, "fast"); !strings.Contains(got, `"result":true`) {
		t.Errorf("%v has %d of %d places, and %v is refused: %s", greedy, running, places, other, got)
	}
	close(stop)
	synctest.Wait()
	if len(answers) != 2*places {
		t.Errorf("%d answers", len(answers))
	}
	for range places/2 + 1 { // everything was given back
		if got := call(greedy, "fast"); !strings.Contains(got, `"result":true`) {
			t.Fatalf("after the flood: %s", got)
		}
	}
}
