package rpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
)

// TestSubscribesAgain cuts the connection of a subscription, several times: it goes on over the
// next one, and the reader gets to know of it. It ends with the client.
func TestSubscribesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var news farcall.Topic[int]
		farcall.HandleTopic(l.mux, "news", func(context.Context, struct{}) (*farcall.Topic[int], error) {
			return &news, nil
		})
		connected := 0
		c := l.client(&Options{OnConnect: func(context.Context, *farcall.Peer) error {
			connected++
			return nil
		}})
		sub, err := farcall.Subscribe[int](t.Context(), c, "news", nil)
		if err != nil {
			t.Fatal(err)
		}
		type pair struct {
			event int
			err   error
		}
		pairs := make(chan pair)
		go func() {
			defer close(pairs)
			for event, err := range sub.Events() {
				pairs <- pair{event, err}
			}
		}()
		for i := range 3 {
			if err := news.Publish(i); err != nil {
				t.Fatal(err)
			}
			if got := <-pairs; got.event != i || got.err != nil {
				t.Errorf("%d: %+v", i, got)
			}
			l.cut(i == 1)
			if i == 1 {
				time.AfterFunc(time.Minute, l.up)
			}
			var gap *farcall.GapError
			if got := <-pairs; !errors.As(got.err, &gap) || !errors.Is(gap.Lost, farcall.ErrClosed) ||
				gap.Dropped != 0 {
				t.Errorf("%d, cut: %+v", i, got)
			}
			if n := news.Subscribers(); n != 1 || connected != i+2 {
				t.Errorf("%d subscribers over %d connections", n, connected)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if got := <-pairs; !errors.Is(got.err, farcall.ErrClosed) {
			t.Errorf("closed: %+v", got)
		}
		if got, ok := <-pairs; ok {
			t.Errorf("after the end: %+v", got)
		}
		<-c.Done()
	})
}

// TestSubscribesAgainRefused has a server that has no such subscription after it came back.
func TestSubscribesAgainRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var news farcall.Topic[int]
		farcall.HandleTopic(l.mux, "news", func(context.Context, struct{}) (*farcall.Topic[int], error) {
			return &news, nil
		})
		c := l.client(nil)
		sub, err := farcall.Subscribe[int](t.Context(), c, "news", nil)
		if err != nil {
			t.Fatal(err)
		}
		l.mux = farcall.NewMux()
		l.cut(false)
		n := 0
		for _, err := range sub.Events() {
			if n++; err == nil || err.Error() != "Method not found (code -32601)" {
				t.Error(err)
			}
		}
		if n != 1 {
			t.Errorf("%d pairs", n)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSubscribeContext ends a subscription while there is no connection.
func TestSubscribeContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var news farcall.Topic[int]
		farcall.HandleTopic(l.mux, "news", func(context.Context, struct{}) (*farcall.Topic[int], error) {
			return &news, nil
		})
		c := l.client(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sub, err := farcall.Subscribe[int](ctx, c, "news", nil)
		if err != nil {
			t.Fatal(err)
		}
		l.cut(true)
		for _, err := range sub.Events() {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		if news.Subscribers() != 0 {
			t.Error("a subscriber is left")
		}
	})
}
