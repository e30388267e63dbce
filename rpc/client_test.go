package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
)

// A lab is a server that connections can be cut to, and that can be down.
type lab struct {
	t   *testing.T
	mux *farcall.Mux

	mu      sync.Mutex
	down    bool
	current *farcall.Peer // of the server's end
	dials   int
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, mux: farcall.NewMux()}
	farcall.Handle(l.mux, "double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	farcall.Handle(l.mux, "wait", func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	return l
}

func (l *lab) dial(context.Context) (farcall.Transport, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dials++
	if l.down {
		return nil, errors.New("the server is down")
	}
	mine, theirs := farcall.Pipe()
	l.current = farcall.NewPeer(theirs, l.mux, nil)
	return mine, nil
}

// cut ends the connection, and says whether the server is down from now on.
func (l *lab) cut(down bool) {
	l.mu.Lock()
	l.down = down
	p := l.current
	l.mu.Unlock()
	_ = p.Close()
}

func (l *lab) up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

func (l *lab) client(o *Options) *Client {
	l.t.Helper()
	c := newClient(o)
	c.dial = l.dial
	if err := c.begin(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = c.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		_ = l.current.Close()
	})
	return c
}

func (l *lab) double(ctx context.Context, c *Client) {
	l.t.Helper()
	if n, err := farcall.Call[int](ctx, c, "double", []int{21}); n != 42 || err != nil {
		l.t.Error(n, err)
	}
}

func TestStateString(t *testing.T) {
	broken := errors.New("broken pipe")
	for want, s := range map[string]State{
		"connected":                       {Connected: true},
		"closed: broken pipe":             {Closed: true, Err: broken},
		"attempt 2 in 150ms: broken pipe": {Attempt: 2, Wait: 150*time.Millisecond + 1, Err: broken},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestConnectsAnew cuts the connection while calls are in flight: those fail with ErrUnknown, later
// ones wait for the next connection, and OnState gets each change of state.
func TestConnectsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var states []State
		var logins int
		c := l.client(&Options{
			OnState:   func(s State) { states = append(states, s) },
			OnConnect: func(context.Context, *farcall.Peer) error { logins++; return nil },
		})
		l.double(t.Context(), c)
		inFlight := make(chan error)
		go func() { inFlight <- c.Call(t.Context(), "wait", nil, nil) }()
		synctest.Wait()
		l.cut(true)
		if err := <-inFlight; !errors.Is(err, ErrUnknown) || !errors.Is(err, farcall.ErrClosed) ||
			errors.Is(err, farcall.ErrNotSent) {
			t.Error(err)
		}
		time.AfterFunc(10*time.Second, l.up)
		begun := time.Now()
		l.double(t.Context(), c)
		if d := time.Since(begun); d < 10*time.Second || d > 40*time.Second {
			t.Errorf("the call took %v", d)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		last := len(states) - 1
		if !states[0].Connected || states[1].Attempt != 1 || states[1].Err == nil ||
			states[2].Attempt != 2 || !states[last-1].Connected || !states[last].Closed {
			t.Errorf("%+v", states)
		}
		for i, s := range states[1 : last-1] {
			if most := 150 * time.Millisecond << i; s.Wait > min(most, 45*time.Second) {
				t.Errorf("attempt %d waits %v", s.Attempt, s.Wait)
			}
		}
		if logins != 2 {
			t.Errorf("OnConnect was called %d times", logins)
		}
		if err := c.Call(t.Context(), "double", []int{1}, nil); !errors.Is(err, farcall.ErrClosed) ||
			!errors.Is(err, farcall.ErrNotSent) {
			t.Error(err)
		}
	})
}

// TestNothingIsLostOrMadeTwice calls all the time while the connection is cut again and again. A
// call either has its answer, once, or fails with ErrUnknown.
func TestNothingIsLostOrMadeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var mu sync.Mutex
		seen := map[int]int{}
		farcall.Handle(l.mux, "count", func(_ context.Context, n int) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			seen[n]++
			return n, nil
		})
		c := l.client(&Options{MinDelay: time.Millisecond})
		cutting, stop := context.WithCancel(t.Context())
		var cutter, callers sync.WaitGroup
		cutter.Go(func() {
			for cutting.Err() == nil {
				<-time.After(3 * time.Millisecond)
				l.cut(false)
			}
		})
		for n := range 200 {
			callers.Go(func() {
				<-time.After(time.Duration(n) * time.Millisecond)
				got, err := farcall.Call[int](t.Context(), c, "count", []int{n})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && (got != n || seen[n] != 1):
					t.Errorf("call %d: %d, made %d times", n, got, seen[n])
				case err != nil && (!errors.Is(err, ErrUnknown) || seen[n] > 1):
					t.Errorf("call %d, made %d times: %v", n, seen[n], err)
				}
			})
		}
		callers.Wait()
		stop()
		cutter.Wait()
	})
}

func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var last State
		c := l.client(&Options{MaxAttempts: 3, OnState: func(s State) { last = s }})
		l.cut(true)
		synctest.Wait()
		err := c.Call(t.Context(), "double", []int{1}, nil)
		if !errors.Is(err, farcall.ErrClosed) || !errors.Is(err, farcall.ErrNotSent) {
			t.Error(err)
		}
		synctest.Wait()
		if !last.Closed || last.Err == nil || l.dials != 4 {
			t.Errorf("%+v, %d attempts", last, l.dials)
		}
	})
}

// TestBrokenAtOnce connects to a server that ends each connection at once, as a child process does
// that cannot start: the back-off grows, and MaxAttempts counts. A connection that lasts ends that.
func TestBrokenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var states []State
		var broken atomic.Bool
		c := l.client(&Options{
			MaxAttempts: 8,
			OnState:     func(s State) { states = append(states, s) },
			OnConnect: func(_ context.Context, p *farcall.Peer) error {
				if broken.Load() {
					go l.cut(false)
				}
				return nil
			},
		})
		broken.Store(true)
		l.cut(false)
		<-time.After(time.Second)
		l.mu.Lock()
		if l.dials < 3 || l.dials > 6 { // 0.1, 0.2, 0.4 s, give or take a half
			t.Errorf("%d attempts in a second", l.dials)
		}
		l.mu.Unlock()
		broken.Store(false)
		<-time.After(time.Minute)
		l.double(t.Context(), c)
		synctest.Wait()
		states = nil
		broken.Store(true)
		l.cut(false)
		<-c.Done()
		synctest.Wait()
		for i, s := range states[:len(states)-1] {
			if want := i/2 + 1; s.Connected != (i%2 == 1) || !s.Connected && s.Attempt != want {
				t.Errorf("state %d is %v", i, s)
			}
		}
		if last := states[len(states)-1]; !last.Closed || len(states) != 2*8+1 {
			t.Errorf("%d states, at last %v", len(states), last)
		}
	})
}

// TestShutdown answers the call that the server has made before the client ends.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		mine := farcall.NewMux()
		farcall.Handle(mine, "slow", func(context.Context, struct{}) (int, error) {
			<-time.After(time.Second)
			return 42, nil
		})
		c := l.client(&Options{Handler: mine})
		answered := make(chan error, 1)
		go func() {
			n, err := farcall.Call[int](t.Context(), l.current, "slow", nil)
			if err == nil && n != 42 {
				err = fmt.Errorf("got %d", n)
			}
			answered <- err
		}()
		synctest.Wait()
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

// TestCloseWhileConnecting closes the client at any moment of connecting again: nothing is left
// behind.
func TestCloseWhileConnecting(t *testing.T) {
	for wait := range 20 {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			c := l.client(
				&Options{
					MinDelay: 10 * time.Millisecond,
					OnConnect: func(context.Context, *farcall.Peer) error {
						<-time.After(5 * time.Millisecond)
						return nil
					},
				})
			l.cut(false)
			<-time.After(time.Duration(wait) * time.Millisecond)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWaitEndsWithContext lets a call wait for a connection no longer than its context lasts.
func TestWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		c := l.client(nil)
		l.cut(true)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := c.Call(ctx, "double", []int{1}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, farcall.ErrNotSent) {
			t.Error(err)
		}
	})
}

// TestOnConnectFails has OnConnect refuse connections: they carry no calls.
func TestOnConnectFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var times int
		c := l.client(&Options{OnConnect: func(ctx context.Context, p *farcall.Peer) error {
			times++
			if times == 2 || times == 3 {
				return fmt.Errorf("login %d was refused", times)
			}
			return p.Call(ctx, "double", []int{1}, nil)
		}})
		l.cut(false)
		synctest.Wait()
		l.double(t.Context(), c)
		if times != 4 {
			t.Errorf("OnConnect was called %d times", times)
		}
	})
}

// A client that is closed has not lost its connection.
func TestCloseIsNoBreak(t *testing.T) {
	t.Parallel()
	for range 200 {
		var states []string
		c, err := NewClient(t.Context(), func(context.Context) (farcall.Transport, error) {
			mine, theirs := farcall.Pipe()
			server := farcall.NewPeer(theirs, nil, nil)
			t.Cleanup(func() { server.Close() })
			return mine, nil
		}, &Options{OnState: func(s State) { states = append(states, s.String()) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if len(states) != 2 || states[0] != "connected" || !strings.HasPrefix(states[1], "closed: ") {
			t.Fatal(states)
		}
	}
}
