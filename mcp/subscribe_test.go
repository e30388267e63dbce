package mcp

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func settle() { <-time.After(time.Second) } // virtual

// TestListen follows a subscription of the modern era to its end.
func TestListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := library(nil)
		AddTool(s, Tool{Name: "add"}, add)
		w := serve(t, s)
		ack := w.ask(modernFrame(`"s\u0031"`, "subscriptions/listen",
			`"notifications":{"toolsListChanged":true,"promptsListChanged":false,
			"resourceSubscriptions":["test://text","test://item/7","test://nowhere","test://text"],"x":1}`))
		wantJSON(t, "ack", ack,
			`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s1"},
			"notifications":{"toolsListChanged":true,"resourceSubscriptions":["test://text","test://item/7"]}}}`)
		if !strings.Contains(ack, `"io.modelcontextprotocol/subscriptionId":"s\u0031"`) {
			t.Error("the id is not written as it was:", ack)
		}
		if got := w.rest(); len(got) != 0 {
			t.Error("before anything happened:", got)
		}

		// A burst is announced once; what was not asked for is not announced.
		for i := range 100 {
			AddTool(s, Tool{Name: fmt.Sprintf("t%d", i)}, add)
			s.ResourceUpdated("test://text")
		}
		s.RemovePrompt("none")
		s.RemoveResource("test://gone")
		s.ResourceUpdated("test://gone")
		s.ResourceUpdated("test://item/7")
		settle()
		got := w.rest()
		const meta = `{"_meta":{"io.modelcontextprotocol/subscriptionId":"s1"}`
		want := []string{
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":` + meta + `}}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":` + meta +
				`,"uri":"test://text"}}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":` + meta +
				`,"uri":"test://item/7"}}`,
		}
		if len(got) != len(want) {
			t.Fatal(got)
		}
		for i := range want {
			wantJSON(t, "event", got[i], want[i])
		}

		// The end in order: what is pending, the cancellation, the result.
		s.RemoveTool("t1")
		w.stop()
		if err := <-w.done; err != nil {
			t.Error(err)
		}
		got = w.rest()
		if len(got) != 3 || !strings.Contains(got[0], "tools/list_changed") ||
			!strings.Contains(got[1], `"notifications/cancelled","params":{"requestId":"s\u0031"`) {
			t.Fatal(got)
		}
		wantJSON(t, "end", got[2],
			`{"jsonrpc":"2.0","id":"s1","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"s1",
			"io.modelcontextprotocol/serverInfo":{"name":"calc","version":"1.0"}}}}`)
	})
}

func TestListenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calculator(nil)
		w := serve(t, s)
		listen := func(id string) string {
			return modernFrame(id, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
		}
		w.ask(listen("1"))
		w.ask(listen("2"))
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if got := w.rest(); len(got) != 0 {
			t.Error("a cancelled subscription is answered:", got)
		}
		s.RemoveTool("add")
		settle()
		if got := w.rest(); len(got) != 1 ||
			!strings.Contains(got[0], `"io.modelcontextprotocol/subscriptionId":2`) {
			t.Error(got)
		}
		s.Close()
		if got := w.rest(); len(got) != 2 || !strings.Contains(got[1], `"id":2`) {
			t.Error("Close:", got)
		}
		w.send(listen("3")) // after Close it ends at once, in order
		if got := w.rest(); len(got) != 3 {
			t.Error(got)
		}
		s.Close()
		w.close()
	})
}

func TestListenRefused(t *testing.T) {
	for members, want := range map[string]string{
		``:                  `-32602`,
		`"notifications":7`: `-32602`,
		`"notifications":{"taskIds":["x"]}`: `"code":-32021,"message":"Missing required client ` +
			`capability: extensions[io.modelcontextprotocol/tasks]",` +
			`"data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`,
		`"notifications":{}`: `"notifications":{}}`, // known, without notifications
	} {
		if got := exchange(t, calculator(nil),
			modernFrame("1", "subscriptions/listen", members)); len(got) != 1 ||
			!strings.Contains(got[0], want) {
			t.Errorf("%s: %v", members, got)
		}
	}
}

// TestSlowListener does not read from one of two connections.
func TestSlowListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := library(nil)
		slow := serveClogged(t, s)
		defer slow()
		w := serve(t, s)
		defer w.close()
		w.ask(modernFrame("1", "subscriptions/listen",
			`"notifications":{"resourceSubscriptions":["test://text"]}`))
		for range 50 {
			s.ResourceUpdated("test://text")
			settle()
			if got := w.rest(); len(got) != 1 {
				t.Fatal(got)
			}
		}
	})
}

// serveClogged listens on a connection without a reader.
func serveClogged(t *testing.T, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &clogged{in: make(chan []byte, 1), closed: ctx, cancel: cancel}
	c.in <- []byte(modernFrame("1", "subscriptions/listen",
		`"notifications":{"resourceSubscriptions":["test://text"]}`))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, c) }()
	synctest.Wait()
	return func() {
		c.Close()
		<-done
	}
}

type clogged struct {
	in     chan []byte
	closed context.Context
	cancel context.CancelFunc
}

func (c *clogged) Read() ([]byte, error) {
	select {
	case f := <-c.in:
		return f, nil
	case <-c.closed.Done():
		return nil, c.closed.Err()
	}
}

func (c *clogged) Write(...[]byte) error {
	<-c.closed.Done()
	return c.closed.Err()
}

func (c *clogged) Close() error {
	c.cancel()
	return nil
}

func TestSubscribeLegacy(t *testing.T) {
	for _, revision := range legacyNames {
		synctest.Test(t, func(t *testing.T) {
			s := library(nil)
			w := serve(t, s)
			defer w.close()
			w.ask(hello(revision))
			s.RemoveResource("test://broken")
			settle()
			if got := w.rest(); len(got) != 0 {
				t.Fatal(revision, "before initialized:", got)
			}
			w.send(initialized)
			settle()
			if got := strings.Join(w.rest(),
				"\n"); got != `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}` {
				t.Fatal(revision, "what has changed meanwhile:", got)
			}
			if got := w.ask(legacyFrame("1", "resources/subscribe", `{"uri":"test://text"}`)); got !=
				`{"jsonrpc":"2.0","result":{},"id":1}` {
				t.Error(got)
			}
			if got := w.ask(legacyFrame("1", "resources/subscribe",
				`{"uri":"test://nowhere"}`)); !strings.Contains(got, "-32002") {
				t.Error(got)
			}
			s.ResourceUpdated("test://text")
			s.ResourceUpdated("test://gone")
			s.RemoveResource("test://gone")
			s.RemovePrompt("none")
			AddTool(s, Tool{Name: "add"}, add)
			settle()
			want := []string{
				`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
				`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`,
				`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`,
				`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://text"}}`,
			}
			if got := w.rest(); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%s: %s", revision, strings.Join(got, "\n"))
			}
			w.ask(legacyFrame("1", "resources/unsubscribe", `{"uri":"test://text"}`))
			s.ResourceUpdated("test://text")
			settle()
			if got := w.rest(); len(got) != 0 {
				t.Error(revision, "after unsubscribe:", got)
			}
		})
	}
}

// TestSessionCloseWhileSending closes a session with a client that does not take what
// it is notified.
func TestSessionCloseWhileSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calculator(nil)
		c := &stuckCaller{}
		x := s.Accept(t.Context(), c)
		_, err := x.ServeRPC(t.Context(),
			newRequest("initialize",
				`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`))
		if err != nil {
			t.Fatal(err)
		}
		note := newRequest("notifications/initialized", "")
		note.ID = jsonrpc.ID{}
		if _, err := x.ServeRPC(t.Context(), note); err != nil {
			t.Fatal(err)
		}
		s.RemoveTool("add")
		settle()
		if c.notified.Load() != 1 {
			t.Error("notified", c.notified.Load())
		}
		x.Close()
		AddTool(s, Tool{Name: "add"}, add)
		settle()
		if c.notified.Load() != 1 {
			t.Error("notified after Close")
		}
	})
}

type stuckCaller struct{ notified atomic.Int32 }

func (c *stuckCaller) Call(context.Context, string, any, any) error { return nil }

func (c *stuckCaller) Done() <-chan struct{} { return nil }

func (c *stuckCaller) Notify(ctx context.Context, _ string, _ any) error {
	c.notified.Add(1)
	<-ctx.Done()
	return ctx.Err()
}
