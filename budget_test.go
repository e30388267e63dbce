package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

const largeParams = 300 << 10

func large(method, id string) string {
	text := `{"jsonrpc":"2.0","method":"` + method + `","params":["` +
		strings.Repeat("x", largeParams) + `"]`
	if id != "" {
		text += `,"id":` + id
	}
	return text + "}"
}

// budgetPeers are a peer that serves over bytes, and one that calls it.
func budgetPeers(
	t *testing.T, b *farcall.Budget, h farcall.Handler,
) (server, client *farcall.Peer) {
	t.Helper()
	x, y := net.Pipe()
	server = farcall.NewPeer(stream.New(x, stream.NDJSON, &stream.Options{Budget: b}), h,
		&farcall.Options{Budget: b})
	client = farcall.NewPeer(stream.New(y, stream.NDJSON, nil), nil, nil)
	return server, client
}

// Whatever becomes of a large message, its bytes are given back.
func TestPeerGivesTheBudgetBack(t *testing.T) {
	handlers := map[string]func(
		ctx context.Context, started chan<- int64, b *farcall.Budget,
	) (any, error){
		"returns": func(_ context.Context, started chan<- int64, b *farcall.Budget) (any, error) {
			n, _ := b.Used()
			started <- n
			return "ok", nil
		},
		"panics": func(_ context.Context, started chan<- int64, b *farcall.Budget) (any, error) {
			n, _ := b.Used()
			started <- n
			panic("test")
		},
		"ends its goroutine": func(
			_ context.Context, started chan<- int64, b *farcall.Budget,
		) (any, error) {
			n, _ := b.Used()
			started <- n
			runtime.Goexit()
			return nil, nil
		},
		"is given up": func(ctx context.Context, started chan<- int64, b *farcall.Budget) (any, error) {
			n, _ := b.Used()
			started <- n
			<-ctx.Done() // another goroutine reads on
			return nil, ctx.Err()
		},
	}
	batch := func(parts ...string) string { return "[" + strings.Join(parts, ",") + "]" }
	frames := map[string]string{
		"request": large("m", "1"), "notification": large("m", ""),
		"batch":                 batch(large("m", "1"), large("m", "2")),
		"batch of notification": batch(large("m", ""), `{"jsonrpc":"2.0","method":"none","id":1}`),
	}
	for how, handler := range handlers {
		for what, frame := range frames {
			t.Run(what+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := farcall.NewBudget(64<<20, 0)
					started := make(chan int64, 10)
					mux := farcall.NewMux()
					mux.Handle("m",
						farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
							return handler(ctx, started, b)
						}))
					x, y := net.Pipe()
					server := farcall.NewPeer(stream.New(x, stream.NDJSON, &stream.Options{Budget: b}), mux,
						&farcall.Options{Budget: b})
					go func() {
						buf := make([]byte, 64<<10)
						for {
							if _, err := y.Read(buf); err != nil {
								return
							}
						}
					}()
					if _, err := fmt.Fprintf(y, "%s\n%s\n", frame,
						`{"jsonrpc":"2.0","method":"none","id":3}`); err != nil {
						t.Fatal(err)
					}
					if n := <-started; n < largeParams {
						t.Errorf("while it is handled it holds %d bytes", n)
					}
					synctest.Wait()
					if err := server.Close(); err != nil {
						t.Error(err)
					}
					y.Close()
					synctest.Wait()
					if n, _ := b.Used(); n != 0 {
						t.Errorf("%d bytes are held at the end", n)
					}
				})
			})
		}
	}
}

// One connection fills the budget with calls that take long; another one still works.
func TestPeersShareTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := farcall.NewBudget(2<<20, 0)
		h := newHold()
		server, client := budgetPeers(t, b, h)
		other, ada := budgetPeers(t, b,
			farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
				return len(r.Params), nil
			}))
		ctx, cancel := context.WithCancel(t.Context())
		outcomes := make(chan error, 20)
		text := strings.Repeat("x", largeParams)
		for range 10 {
			go func() { outcomes <- client.Call(ctx, "wait", []string{text}, nil) }()
		}
		const refused = 7 // three fit into half of the budget
		for range refused {
			var e *jsonrpc.Error
			if err := <-outcomes; !errors.As(err, &e) || e.Code != jsonrpc.Overloaded {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n, _ := b.Used(); n/largeParams != 10-refused || len(outcomes) > 0 {
			t.Errorf("%d bytes are held, and %d more calls have ended", n, len(outcomes))
		}
		var n int
		if err := ada.Call(t.Context(), "len", []string{text}, &n); err != nil || n != largeParams+4 {
			t.Errorf("the other connection: %d, %v", n, err)
		}
		cancel()
		for _, p := range []*farcall.Peer{client, server, ada, other} {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n, _ := b.Used(); n != 0 {
			t.Errorf("%d bytes are held at the end", n)
		}
	})
}

// Answers that callers do not read draw from the budget of the process: what many connections leave
// unread together is bounded, and given back.
func TestUnreadAnswersDraw(t *testing.T) {
	const conns, answer, total, calls = 16, 4 << 20, 32 << 20, 8
	synctest.Test(t, func(t *testing.T) {
		b := farcall.NewBudget(total, 0)
		text := strings.Repeat("x", answer)
		mux := farcall.NewMux()
		mux.Handle("big", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
			return text, nil
		}))
		var peers []*farcall.Peer
		var ends []net.Conn
		for range conns {
			x, y := net.Pipe()
			peers = append(peers,
				farcall.NewPeer(stream.New(x, stream.NDJSON, nil), mux, &farcall.Options{Budget: b}))
			ends = append(ends, y)
			for i := range calls {
				if _, err := fmt.Fprintf(y, `{"jsonrpc":"2.0","id":%d,"method":"big"}`+"\n", i); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
		}
		unsent, overloaded := 0, uint64(0)
		for _, p := range peers {
			unsent += p.Stats().UnsentBytes
			overloaded += p.Stats().Overloaded
		}
		used, _ := b.Used()
		// Beyond the budget each connection has the answer that has overdrawn it, or its first.
		if most := total + conns*(answer+1<<20); unsent > most || overloaded == 0 {
			t.Errorf("%d MB are unread, at most %d are allowed; %d calls were refused", unsent>>20, most>>20,
				overloaded)
		}
		if used < int64(unsent)-conns<<20 {
			t.Errorf("%d MB are unread, and %d of the budget are held", unsent>>20, used>>20)
		}
		for i, p := range peers {
			ends[i].Close()
			p.Close()
		}
		synctest.Wait()
		if used, _ := b.Used(); used != 0 {
			t.Errorf("%d bytes are still held", used)
		}
	})
}
