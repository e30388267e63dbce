package farcall_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
)

// connections is a caller that has one connection after the other.
type connections struct {
	farcall.Caller
	first *farcall.Peer
	next  chan *farcall.Peer
}

// connectionsTo connects to one server after the other.
func connectionsTo(t *testing.T, o *farcall.Options, servers ...*farcall.Mux) connections {
	t.Helper()
	c := connections{next: make(chan *farcall.Peer, len(servers))}
	for _, mux := range servers {
		a, b := farcall.Pipe()
		p, _ := connect(t, a, b, nil, mux, o, nil)
		c.next <- p
		if c.first == nil {
			c.Caller, c.first = p, p
		}
	}
	return c
}

// Peer returns the next connection.
func (c connections) Peer(context.Context) (*farcall.Peer, error) { return <-c.next, nil }

// A call that subscribes again may be answered as a whole, though the first one was not.
func TestPartialResultsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, _ := tickMux()
		second := farcall.NewMux()
		second.Handle("time/ticks",
			farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
				return []string{"a", "b"}, nil
			}))
		c := connectionsTo(t, partialResults(), first, second)
		sub, err := farcall.Subscribe[string](t.Context(), c, "time/ticks", nil) // 0 1 2, and no end
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for v, err := range sub.Events() {
			gap, lost := errors.AsType[*farcall.GapError](err)
			switch {
			case lost && gap.Lost != nil:
				got = append(got, "gap")
			case err != nil:
				t.Error(err)
			default:
				got = append(got, v)
			}
			if v == "2" {
				c.first.Close()
			}
		}
		if all := strings.Join(got, " "); all != "0 1 2 gap a b" {
			t.Error(all)
		}
	})
}

// A subscription that was subscribed to again has a gap, also when it has ended before Subscribe
// knows that it is there.
func TestSubscriptionEndsAtOnce(t *testing.T) {
	late := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			result, err := next.ServeRPC(ctx, req)
			synctest.Wait() // until all events have come
			return result, err
		})
	}
	for name, end := range map[string]error{"0 1 2 gap a": nil, "0 1 2 gap a bad": errors.New("bad")} {
		synctest.Test(t, func(t *testing.T) {
			first, _ := tickMux()
			second := farcall.NewMux()
			farcall.HandleSubscription(second, "time/ticks",
				func(context.Context, tickParams) (iter.Seq2[string, error], error) {
					return func(yield func(string, error) bool) {
						if yield("a", nil) && end != nil {
							yield("", end)
						}
					}, nil
				})
			o := &farcall.Options{CallInterceptors: []farcall.Interceptor{late}}
			c := connectionsTo(t, o, first, second)
			sub, err := farcall.Subscribe[string](t.Context(), c, "time/ticks", nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for v, err := range sub.Events() {
				_, lost := errors.AsType[*farcall.GapError](err)
				switch {
				case lost:
					v = "gap"
				case err != nil:
					v = "bad"
				case v == "2":
					c.first.Close()
				}
				got = append(got, v)
			}
			if all := strings.Join(got, " "); all != name {
				t.Errorf("%s, want %s", all, name)
			}
		})
	}
}
