package farcall_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/late"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type limit func(c late.Call)

func (l limit) Began(c late.Call) { l(c) }

func limited(ctx context.Context, l limit) context.Context {
	return context.WithValue(ctx, late.LimitKey{}, l)
}

// gated writes nothing until it is open.
type gated struct {
	farcall.Transport
	open chan struct{}
}

func (g *gated) Write(frames ...[]byte) error {
	<-g.open
	return g.Transport.Write(frames...)
}

var errReason = errors.New("it takes too long")

// A call can be given up without a context: before it is sent, while it waits for
// room, while it waits for its answer, and later, when that does nothing.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := farcall.Pipe()
		gate := &gated{a, make(chan struct{})}
		p := farcall.NewPeer(gate, nil,
			&farcall.Options{
				MaxUnsent: 4000, Dialect: farcall.Dialect{CancelMethod: "cancel", CancelID: "id"},
			})
		defer p.Close()

		at := limited(t.Context(), func(c late.Call) { c.GiveUp(errReason) })
		if err := p.Call(at, "never", nil, nil); !errors.Is(err, errReason) {
			t.Error(err)
		}

		var call late.Call
		failed := make(chan error)
		begin := func(method string, params any) {
			noted := limited(t.Context(), func(c late.Call) { call = c })
			go func() { failed <- p.Call(noted, method, params, nil) }()
			synctest.Wait()
		}
		end := func() {
			t.Helper()
			call.GiveUp(errReason)
			if err := <-failed; !errors.Is(err, errReason) {
				t.Error(err)
			}
		}
		begin("first", nil)
		end()
		for range 3 { // there is room for one
			begin("large", jsonrpc.Raw(`["`+strings.Repeat("x", 2000)+`"]`))
			end()
		}
		if s := p.Stats(); s.Calls != 0 {
			t.Errorf("%+v", s)
		}

		close(gate.open)
		var sent []string
		go func() {
			for {
				frame, err := b.Read()
				if err != nil {
					return
				}
				sent = append(sent, string(frame[:min(len(frame), 60)]))
				if strings.Contains(string(frame), "last") {
					_ = b.Write([]byte(`{"jsonrpc":"2.0","id":6,"result":1}`))
				}
			}
		}()
		begin("last", nil)
		if err := <-failed; err != nil {
			t.Error(err)
		}
		call.GiveUp(errReason)
		synctest.Wait()
		got := strings.Join(sent, "\n")
		if strings.Contains(got, "never") || strings.Count(got, "cancel") != 2 ||
			strings.Count(got, "large") != 1 {
			t.Errorf("sent:\n%s", got)
		}
		b.Close()
	})
}
