package cancel

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// ctx is a context as it is made with an End.
type ctx struct {
	context.Context
	end End
}

func (c *ctx) Done() <-chan struct{}          { return c.end.Done() }
func (c *ctx) Err() error                     { return c.end.Err() }
func (c *ctx) AfterFunc(f func()) func() bool { return c.end.AfterFunc(f) }
func (c *ctx) Value(key any) any              { return c.end.Values(c.Context).Value(key) }
func newCtx(t *testing.T) (c *ctx, cancel func()) {
	c = &ctx{Context: t.Context()}
	return c, func() { c.end.Cancel(context.Canceled) }
}

func TestEnd(t *testing.T) {
	c, cancel := newCtx(t)
	child, stop := context.WithCancel(c)
	defer stop()
	given, stopGiven := context.WithCancel(c)
	stopGiven()
	ran := 0
	c.end.Before(func() { ran++ })
	if c.Err() != nil || child.Err() != nil || given.Err() == nil {
		t.Error(c.Err(), child.Err(), given.Err())
	}
	done := c.Done()
	var all sync.WaitGroup
	for range 4 {
		all.Go(cancel)
	}
	all.Wait()
	<-done
	<-child.Done()
	c.end.Cancel(context.DeadlineExceeded)
	c.end.Before(func() { ran++ })
	if !errors.Is(c.Err(), context.Canceled) || !errors.Is(child.Err(), context.Canceled) || ran != 1 {
		t.Error(c.Err(), child.Err(), ran)
	}
}

func TestEnded(t *testing.T) {
	c, cancel := newCtx(t)
	stop := context.AfterFunc(c, func() { t.Error("it was stopped before") })
	if !stop() || stop() {
		t.Error("stop")
	}
	cancel()
	<-c.Done()
	ran := make(chan struct{})
	if stop := c.AfterFunc(func() { close(ran) }); stop() {
		t.Error("it has begun")
	}
	<-ran
}
