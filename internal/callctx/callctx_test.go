package callctx

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// call is a struct with a context, as the callers of this package have it.
type call struct {
	Context

	end End
}

type callKey struct{}

func (c *call) ContextValue(key any) (any, bool) { return c, key == callKey{} }

func newCall(parent context.Context) (c *call, cancel func()) {
	c = &call{}
	c.Context = Until(parent, c, &c.end)
	return c, func() { c.end.Cancel(context.Canceled) }
}

func TestEnd(t *testing.T) {
	c, cancel := newCall(t.Context())
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
	c, cancel := newCall(t.Context())
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

// The cause of an end is that of the context and of those that were derived before and after.
func TestCause(t *testing.T) {
	c, _ := newCall(t.Context())
	before, stop := context.WithCancel(c)
	defer stop()
	c.end.CancelCause(c.Parent(), errors.New("first"))
	c.end.CancelCause(c.Parent(), errors.New("second"))
	<-before.Done()
	after, stop := context.WithCancel(c)
	defer stop()
	for _, ctx := range []context.Context{c, before, after} {
		if ctx.Err() != context.Canceled || context.Cause(ctx).Error() != "first" {
			t.Errorf("%v, because %v", ctx.Err(), context.Cause(ctx))
		}
	}
	plain, cancel := newCall(t.Context())
	cancel()
	if context.Cause(plain) != context.Canceled { //nolint:errorlint // as package context has it
		t.Error(context.Cause(plain))
	}
}

// What a context has, and what is its parent's.
func TestContext(t *testing.T) {
	type other struct{}
	parent, cancel := context.WithTimeout(context.WithValue(t.Context(), other{}, "theirs"), time.Hour)
	defer cancel()
	at, _ := parent.Deadline()
	over, lasting := &call{}, &call{}
	until, end := newCall(parent)
	over.Context, lasting.Context = Over(parent, over), Over(parent, lasting)
	lasting.Last()
	for name, c := range map[string]*call{"over": over, "until": until, "lasting": lasting} {
		deadline, ok := c.Deadline()
		if ok == (c == lasting) || ok && !deadline.Equal(at) {
			t.Error(name, deadline, ok)
		}
		if c.Value(callKey{}) != c || c.Value(other{}) != "theirs" || c.Value(7) != nil {
			t.Error(name, "values")
		}
		if c.Parent() != parent {
			t.Error(name, "parent")
		}
		if c.Err() != nil || (c.Done() == nil) != (c == lasting) {
			t.Error(name, c.Err(), c.Done())
		}
		if !context.AfterFunc(c, func() {})() {
			t.Error(name, "AfterFunc")
		}
	}
	cancel()
	<-over.Done()
	if over.Err() == nil || until.Err() != nil || lasting.Err() != nil {
		t.Error(over.Err(), until.Err(), lasting.Err())
	}
	end()
	if <-until.Done(); until.Err() == nil {
		t.Error("the end")
	}
	bare := Over(parent, nil)
	if bare.Value(other{}) != "theirs" {
		t.Error("no values")
	}
}

// Contexts that derive from a Context start no goroutine, and end with it.
func TestDerived(t *testing.T) {
	type key struct{}
	bottom, end := newCall(t.Context())
	over := &call{}
	over.Context = Over(bottom, over)
	ctx := WithValue(over, key{}, "value")
	before := runtime.NumGoroutine()
	derived := make([]<-chan struct{}, 100)
	for i := range derived {
		child, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		if child.Value(key{}) != "value" || child.Value(callKey{}) != over {
			t.Error("values")
		}
		derived[i] = child.Done()
	}
	if n := runtime.NumGoroutine(); n >= before+len(derived) {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	end()
	for _, done := range derived {
		<-done
	}
}

// Waiting for no end, a context costs nothing beside the call.
func TestAllocs(t *testing.T) {
	var sink any
	for name, most := range map[string]struct {
		n float64
		f func()
	}{
		"until":     {1, func() { sink, _ = newCall(t.Context()) }},
		"WithValue": {1, func() { sink = WithValue(t.Context(), callKey{}, t) }},
	} {
		if n := testing.AllocsPerRun(100, most.f); n > most.n {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	_ = sink
}

// BenchmarkValue compares ways to give a context a value before others derive from it.
func BenchmarkValue(b *testing.B) {
	bottom, end := newCall(b.Context())
	defer end()
	derive := func(ctx context.Context) {
		_, cancel := context.WithCancel(ctx)
		cancel()
	}
	b.Run("context", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			derive(context.WithValue(bottom, callKey{}, &call{}))
		}
	})
	b.Run("callctx", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c := &call{}
			c.Context = Over(bottom, c)
			derive(c)
		}
	})
}

// BenchmarkEnd compares ways to give a call an end that nothing waits for.
func BenchmarkEnd(b *testing.B) {
	type plain struct{ ctx context.Context }
	var sink any
	b.Run("context", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithCancel(b.Context())
			c := &plain{context.WithValue(ctx, callKey{}, b)}
			sink = c
			cancel()
		}
	})
	b.Run("callctx", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c, cancel := newCall(b.Context())
			sink = c
			cancel()
		}
	})
	_ = sink
}

// keeper has values that outlive their call.
type keeper struct {
	Context

	value string
}

func (k *keeper) ContextValue(key any) (any, bool) { return k.value, key == callKey{} }

func (k *keeper) Kept() Values { return &keeper{value: k.value} }

// TestWithoutCancel looks at what a call leaves behind: the values without their end. Structs with
// contexts are not left, where they have no values, or can keep them apart.
func TestWithoutCancel(t *testing.T) {
	type connKey struct{}
	conn, stop := context.WithCancel(context.WithValue(t.Context(), connKey{}, "conn"))
	bare := &struct {
		Context

		end End
	}{}
	bare.Context = Until(conn, nil, &bare.end)
	freed := make(chan struct{}, 2)
	runtime.AddCleanup(bare, func(int) { freed <- struct{}{} }, 0)
	k := &keeper{value: "kept"}
	k.Context = Over(WithValue(bare, "pair", 1), k)
	runtime.AddCleanup(k, func(int) { freed <- struct{}{} }, 0)
	left := WithoutCancel(k)
	bare.end.Cancel(context.Canceled)
	stop()
	if left.Err() != nil || left.Done() != nil {
		t.Error(left.Err(), left.Done())
	}
	for key, want := range map[any]any{callKey{}: "kept", "pair": 1, connKey{}: "conn"} {
		if got := left.Value(key); got != want {
			t.Errorf("%#v has %v", key, got)
		}
	}
	if _, ok := left.Deadline(); ok {
		t.Error("a deadline is left")
	}
	runtime.GC()
	for range 2 {
		<-freed
	}
	runtime.KeepAlive(left)
	c, cancel := newCall(conn)
	if left := WithoutCancel(c); left.Value(callKey{}) != c || left.Err() != nil {
		t.Error("values that are no Keeper are not there:", left)
	}
	cancel()
}
