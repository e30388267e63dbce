package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A client that vanishes in the middle of a call, however it came: the call ends
// at the server, and nothing is left of it.
func TestClientVanishes(t *testing.T) {
	line := func(name string) string {
		return `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"` + name +
			`","arguments":{"text":"a"}}}`
	}
	begin := func(t *testing.T, tr farcall.Transport) {
		t.Helper()
		if err := tr.Write([]byte(initialize)); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Read(); err != nil {
			t.Fatal(err)
		}
		for _, frame := range []string{
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			line("wait"),
		} {
			if err := tr.Write([]byte(frame)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, vanish := range map[string]func(t *testing.T, l *lab, m *mock){
		"http": func(t *testing.T, l *lab, m *mock) {
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := l.modern(ctx, "tools/call", "wait", `"name":"wait","arguments":{"text":"a"}`)
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			received(t, "the call", m.started)
			cancel()
			wg.Wait()
		},
		"websocket": func(t *testing.T, l *lab, m *mock) {
			tr, err := wsrpc.Dial(t.Context(), strings.Replace(l.url, "http", "ws", 1)+"/mcp", nil)
			if err != nil {
				t.Fatal(err)
			}
			begin(t, tr)
			received(t, "the call", m.started)
			tr.Close()
		},
		// One that ends in order may be half closed: its calls are answered, for ten
		// seconds.
		"stream": func(t *testing.T, l *lab, m *mock) {
			url := listen(t, func(conn net.Conn) {
				l.ServeStream(stream.New(conn, stream.NDJSON, nil), &guard.Conn{Transport: "tcp"})
			})
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "tcp://"))
			if err != nil {
				t.Fatal(err)
			}
			begin(t, stream.New(conn, stream.NDJSON, nil))
			received(t, "the call", m.started)
			if err := errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()); err != nil {
				t.Error(err)
			}
		},
		"end of the session": func(t *testing.T, l *lab, m *mock) {
			c := l.client(t, mcp.ClientOptions{Era: "legacy"})
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := say(t.Context(), c, "wait", "a"); err == nil {
					t.Error("it was answered")
				}
			})
			received(t, "the call", m.started)
			c.Close()
			wg.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMock("legacy")
			l := newLab(t, nil, m.tcp(t, "m"))
			vanish(t, l, m)
			if err := received(t, "the end at the server", m.ended); err == nil {
				t.Error("the call went on")
			}
			until(t, "nothing is in flight", func() bool { return l.status(t).InFlight == 0 })
		})
	}
}

// A cancellation was not passed on, or with another's id: here it goes to the one
// server that has the call, and to that call alone.
func TestCancel(t *testing.T) {
	a, b := newMock("legacy"), newMock("legacy")
	l := newLab(t, nil, a.tcp(t, "a"), b.tcp(t, "b"))
	for _, era := range []string{"legacy", "modern"} {
		c := l.client(t, mcp.ClientOptions{Era: era})
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 3)
		for _, call := range []struct {
			ctx  context.Context
			tool string
		}{{t.Context(), "a__wait"}, {ctx, "a__wait"}, {t.Context(), "b__wait"}} {
			go func() {
				_, err := say(call.ctx, c, call.tool, "")
				results <- err
			}()
		}
		received(t, "a call", a.started)
		received(t, "a call", a.started)
		received(t, "a call", b.started)
		cancel()
		if err := received(t, "the end of the call", results); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := received(t, "its end at the server", a.ended); err == nil {
			t.Error("it went on")
		}
		if len(a.ended) != 0 || len(b.ended) != 0 {
			t.Error("others were cancelled, too")
		}
		a.release <- struct{}{}
		b.release <- struct{}{}
		for range 2 {
			if err := received(t, "an answer", results); err != nil {
				t.Error(err)
			}
		}
		received(t, "an end", a.ended)
		received(t, "an end", b.ended)
	}
}

// Progress and logs go to the one caller with the call that they are about.
func TestProgressAndLogs(t *testing.T) {
	m := newMock("")
	mcp.AddTool(m.Server, mcp.Tool{Name: "tell"},
		func(ctx context.Context, in textIn) (string, error) {
			for n := range 5 {
				if err := errors.Join(mcp.Progress(ctx, float64(n+1), 5, in.Text),
					mcp.Log(ctx, "info", "l", in.Text)); err != nil {
					return "", err
				}
			}
			return in.Text, nil
		})
	for _, server := range []string{"legacy", "modern"} {
		t.Run("server "+server, func(t *testing.T) {
			u := m.http(t, "m", nil)
			u.Era = server
			l := newLab(t, nil, u)
			results := make(chan error, 20)
			for n := range 8 {
				who := fmt.Sprintf("client-%d", n)
				var mu sync.Mutex
				var wrong, logs, progress int
				c := l.client(t, mcp.ClientOptions{
					Era: []string{"legacy", "modern"}[n%2], LogLevel: "info",
					OnLog: func(p *spec.LoggingMessageNotificationParams) {
						mu.Lock()
						defer mu.Unlock()
						if logs++; string(p.Data) != `"`+who+`"` {
							wrong++
						}
					},
				})
				go func() {
					ctx := mcp.OnProgress(t.Context(), func(p spec.ProgressNotificationParams) {
						mu.Lock()
						defer mu.Unlock()
						if progress++; p.Message != who {
							wrong++
						}
					})
					_, err := say(ctx, c, "tell", who)
					mu.Lock()
					defer mu.Unlock()
					if err == nil && (wrong > 0 || progress != 5 || logs != 5) {
						err = fmt.Errorf("%s got %d logs, %d times progress, %d of others", who, logs,
							progress, wrong)
					}
					results <- err
				}()
			}
			for range 8 {
				if err := received(t, "a result", results); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
