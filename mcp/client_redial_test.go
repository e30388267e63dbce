package mcp

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A process plays a server that can be started any number of times.
type process struct {
	f       *fakeServer
	mu      sync.Mutex
	starts  int
	failing int // as many starts fail
	exiting int // as many exit at once
}

func (p *process) start(context.Context) (farcall.Transport, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starts++
	if p.failing > 0 {
		p.failing--
		return nil, errors.New("cannot start")
	}
	mine, theirs := farcall.Pipe()
	p.f.peer = farcall.NewPeer(theirs, p.f, &farcall.Options{Dialect: mcphttp.Dialect()})
	if p.exiting > 0 {
		p.exiting--
		p.f.peer.Close()
	}
	return mine, nil
}

func (p *process) exit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.f.peer.Close()
}

func connectProcess(t *testing.T, p *process, o ClientOptions) *Client {
	t.Helper()
	tr, err := p.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o.Redial = p.start
	c, err := Connect(t.Context(), tr, &o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A server that has exited is started again by the next call.
func TestRedial(t *testing.T) {
	for name, all := range map[string]replies{"modern": modernFake(nil), "legacy": legacyFake(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &process{f: &fakeServer{t: t, replies: all}}
				p.f.set("tools/call", `{"content":[]}`)
				p.f.set("tools/list", `{"tools":[]}`)
				c := connectProcess(t, p, ClientOptions{})
				defer p.exit()
				defer c.Close()
				call := func() error { _, err := c.CallTool(t.Context(), "x", nil); return err }
				if err := call(); err != nil || p.starts != 1 {
					t.Fatal(err, p.starts)
				}
				p.exit()
				synctest.Wait()
				p.failing, p.exiting = 2, 2
				begun := time.Now()
				if err := call(); err != nil || p.starts != 6 || time.Since(begun) < 700*time.Millisecond {
					t.Error(err, p.starts, time.Since(begun))
				}
				// A call that was under way says so, and is not made again.
				p.f.set("tools/call", do(silent))
				failed := make(chan error, 1)
				go func() { failed <- call() }()
				synctest.Wait()
				p.exit()
				if err := <-failed; !errors.Is(err, farcall.ErrClosed) ||
					!strings.Contains(err.Error(), "may or may not") {
					t.Error(err)
				}
				p.failing = dialAttempts
				if err := call(); !errors.Is(err, farcall.ErrClosed) ||
					!strings.Contains(err.Error(), "cannot start") ||
					strings.Contains(err.Error(), "may or may not") {
					t.Error(err)
				}
				p.f.set("tools/call", `{"content":[]}`)
				if err := call(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Listen goes on with the new process.
func TestRedialListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{f: &fakeServer{t: t, replies: legacyFake(nil)}}
		listening := make(chan struct{}, 10)
		c := connectProcess(t, p, ClientOptions{OnListening: func(spec.SubscriptionFilter) {
			listening <- struct{}{}
		}})
		defer p.exit()
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Listen(ctx, spec.SubscriptionFilter{ToolsListChanged: true}) }()
		<-listening
		p.exit()
		<-listening
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || p.starts != 2 {
			t.Error(err, p.starts)
		}
	})
}

// A legacy server may end when the first thing it gets is no initialize.
func TestExitAtDiscover(t *testing.T) {
	for _, redial := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := &process{f: &fakeServer{t: t, replies: legacyFake(nil)}}
			p.f.set("server/discover", do(func(ctx context.Context, _ map[string]any) (any, error) {
				go p.exit()
				return silent(ctx, nil)
			}))
			p.f.set("x", `{}`)
			tr, err := p.start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			o := &ClientOptions{}
			if redial {
				o.Redial = p.start
			}
			c, err := Connect(t.Context(), tr, o)
			defer p.exit()
			if !redial {
				if !errors.Is(err, farcall.ErrClosed) {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Request(t.Context(), "x", nil, nil); err != nil ||
				c.Server().Revision != revLegacy || p.starts != 2 {
				t.Error(err, c.Server(), p.starts)
			}
		})
	}
}
