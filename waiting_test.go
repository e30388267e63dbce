package farcall_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
)

// A handler that waits for another service leaves its place to others.
func TestWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, unblock := make(chan struct{}), make(chan struct{})
		h := farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			switch req.Method {
			case "block":
				<-unblock
			case "wait":
				resume, again := farcall.Waiting(ctx), farcall.Waiting(ctx)
				<-release
				again()
				resume()
			}
			return req.Method, nil
		})
		r := farcall.NewResponder(h, &farcall.Options{MaxInFlight: 1})
		respond := func(method string) string {
			return withoutReasons(
				string(r.Respond(t.Context(), nil, []byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`),
					nil)))
		}
		done := make(chan struct{})
		for range 3 {
			go func() {
				if got, want := respond("wait"), `{"jsonrpc":"2.0","result":"wait","id":1}`; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				done <- struct{}{}
			}()
			synctest.Wait() // it has left its place
		}
		if got, want := respond("other"), `{"jsonrpc":"2.0","result":"other","id":1}`; got != want {
			t.Errorf("while three wait: got %s, want %s", got, want)
		}
		blocked := make(chan struct{})
		go func() {
			respond("block")
			close(blocked)
		}()
		synctest.Wait()
		if got, want := respond("other"),
			`{"jsonrpc":"2.0","error":{"code":-32010,"message":"Overloaded"},"id":1}`; got != want {
			t.Errorf("while three wait and one works: got %s, want %s", got, want)
		}
		close(unblock)
		<-blocked
		close(release)
		for range 3 {
			<-done
		}
		if got, want := respond("other"), `{"jsonrpc":"2.0","result":"other","id":1}`; got != want {
			t.Errorf("afterwards: got %s, want %s", got, want)
		}
	})
	farcall.Waiting(t.Context())() // outside of a handler
}
