package inspect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/inspect/internal/traffic"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A heldFrame is what a page is asked.
type heldFrame struct {
	heldView

	ID int
}

// held waits for the next frame that is held.
func (p *tab) held() (f heldFrame) {
	p.t.Helper()
	e := p.until("a held frame", func(e event) bool { return e.Type == eventQuestion })
	var q questionView
	if err := jsonv2.Unmarshal(e.Data, &q); err != nil || !q.Held {
		p.t.Fatalf("%s, %v", e.Data, err)
	}
	f.ID = q.ID
	if err := jsonv2.Unmarshal(q.Params, &f.heldView); err != nil {
		p.t.Fatal(err)
	}
	return f
}

func (p *tab) decide(f heldFrame, d decision) {
	p.t.Helper()
	raw, err := marshal(d)
	if err != nil {
		p.t.Fatal(err)
	}
	p.call("answer", answerParams{ID: f.ID, Result: raw}, nil)
}

// later calls a tool and returns what it comes to.
func (p *tab) later(ctx context.Context, name, args string) <-chan outcome {
	done := make(chan outcome, 1)
	c := callParams{Conn: 1, Call: "c", Kind: kindTool, Name: name, Params: jsonrpc.Raw(args)}
	go func() {
		defer close(done)
		var o outcome
		if err := p.peer.Call(ctx, "call", c, &o); err == nil {
			done <- o
		}
	}()
	return done
}

func (p *tab) breaks(filter, act string) int {
	p.t.Helper()
	var b breakpoint
	p.call("break", breakpoint{Filter: filter, Act: act}, &b)
	return b.ID
}

// A page holds frames in both directions over every kind of transport, and sends them as they are
// or changed, answers or drops them.
func TestBreakpoints(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(mcphttp.NewHandler(playground(), nil))
	t.Cleanup(web.Close)
	sockets := httptest.NewServer(wsrpc.NewHandler(func(tr farcall.Transport, _ *http.Request) {
		_ = playground().Serve(t.Context(), tr) // it ends with the connection
	}, &wsrpc.Options{Subprotocols: []string{"mcp"}}))
	t.Cleanup(sockets.Close)
	child := Server{Command: []string{os.Args[0]}, Env: append(os.Environ(), childVar+"=playground")}
	for name, s := range map[string]Server{
		"stdio":              child,
		"websocket":          {Target: "ws" + strings.TrimPrefix(sockets.URL, "http") + "/mcp"},
		"in process":         {InProcess: playground()},
		"in process, legacy": {InProcess: playground(), Era: "legacy"},
		"http":               {Target: web.URL + "/mcp"},
		"http, legacy":       {Target: web.URL + "/mcp", Era: "legacy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, p, _ := inspector(t, &Options{Servers: []Server{s}, Connect: true})
			p.state(1, stateReady)
			id := p.breaks("method:tools/call kind:request", actHold)

			done := p.later(t.Context(), "add", `{"a":2,"b":3}`)
			v := p.held()
			if v.Dir != "up" || v.Method != "tools/call" || v.Name != "add" || !v.Request {
				t.Errorf("held is %+v", v)
			}
			changed := strings.Replace(v.Text, `"b":3`, "\n\"b\":40", 1)
			p.decide(v, decision{Act: actSend, Frame: changed})
			if o := <-done; !strings.Contains(o.Result, `"sum":42`) {
				t.Errorf("a changed request: %+v", o)
			}

			done = p.later(t.Context(), "add", `{"a":2,"b":3}`)
			p.decide(p.held(), decision{Act: actAnswer, Error: &jsonrpc.Error{Code: 7, Message: "no"}})
			if o := <-done; o.Error == nil || o.Error.Code != 7 {
				t.Errorf("an answered request: %+v", o)
			}

			ctx, cancel := context.WithCancel(t.Context())
			done = p.later(ctx, "add", `{"a":2,"b":3}`)
			p.decide(p.held(), decision{Act: actDrop})
			p.until("its end", func(e event) bool { return e.Type == eventAnswered })
			select {
			case o := <-done:
				t.Errorf("a dropped request: %+v", o)
			default:
			}
			cancel()
			<-done
			p.call("unbreak", unbreakParams{id}, nil)

			p.breaks("method:tools/call kind:response", actHold)
			done = p.later(t.Context(), "add", `{"a":2,"b":3}`)
			v = p.held()
			if v.Dir != "down" || v.Request || v.Name != "add" {
				t.Errorf("held is %+v", v)
			}
			changed = strings.ReplaceAll(v.Text, `"sum":5`, `"sum":6`)
			p.decide(v, decision{Act: actSend, Frame: changed})
			if o := <-done; !strings.Contains(o.Result, `"sum":6`) {
				t.Errorf("a changed answer: %+v", o)
			}
			notes := 0
			f, _ := traffic.Parse(`type:event "at a breakpoint"`)
			i.store.Rows(0, -1, func(r *traffic.Row, raw []byte) bool {
				if f.Match(r, raw) {
					notes++
				}
				return true
			})
			if notes != 4 {
				t.Errorf("%d notes in the traffic, want 4", notes)
			}
		})
	}
}

// What only a page holds goes on when that page has ended, and with it its breakpoints.
func TestBreakpointsEnd(t *testing.T) {
	t.Parallel()
	o := &Options{Servers: []Server{{InProcess: playground()}}, Connect: true}
	i, p, address := inspector(t, o)
	p.state(1, stateReady)
	tr, err := wsrpc.Dial(t.Context(), "ws"+strings.TrimPrefix(address, "http")+"/api",
		&wsrpc.Options{Subprotocols: []string{subprotocol, tokenPrefix + i.Token()}})
	if err != nil {
		t.Fatal(err)
	}
	other := &tab{t: t, peer: farcall.NewPeer(tr, nil, nil)}
	other.breaks("method:tools/call", actHold)
	other.fails("break", breakpoint{Filter: "code:x", Act: actHold}, "is not a number")
	done := p.later(t.Context(), "add", `{"a":2,"b":3}`)
	p.held()
	if err := other.peer.Close(); err != nil {
		t.Fatal(err)
	}
	if o := <-done; !strings.Contains(o.Result, `"sum":5`) {
		t.Errorf("%+v", o)
	}
	if o := p.tool("add", `{"a":2,"b":4}`); !strings.Contains(o.Result, `"sum":6`) {
		t.Errorf("%+v", o)
	}
}

// A frame is not held for ever, and not when its connection has ended.
func TestHeldTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i, err := New(t.Context(), &Options{Servers: []Server{{InProcess: playground()}}})
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		x := i.slots[0]
		frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		row := i.store.Peek(1, '>', frame)
		b := &breakpoint{Act: actHold, page: &page{ctx: t.Context()}}
		began := time.Now()
		on, back := x.hold(t.Context(), b, &row, frame, true)
		if string(on) != string(frame) || back != nil {
			t.Errorf("after the deadline %s goes on, %s back", on, back)
		}
		if took := time.Since(began); took != holdTime {
			t.Errorf("it was held for %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if on, back := x.hold(ctx, b, &row, frame, true); on != nil || back != nil {
			t.Errorf("after the end of the connection %s goes on, %s back", on, back)
		}
		late := &breakpoint{Act: actSend, Delay: 300, page: b.page}
		began = time.Now()
		if on, _ := x.hold(t.Context(), late, &row, frame, true); string(on) != string(frame) ||
			time.Since(began) != 300*time.Millisecond {
			t.Errorf("%s after %v", on, time.Since(began))
		}
		if open := i.questions.views(); len(open) > 0 {
			t.Errorf("held are %+v", open)
		}
	})
}

// The user of a page needs a permission for breakpoints, and one for replay.
func TestMay(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*Options{
		"open":   {Open: true},
		"denied": {May: func(*http.Request, string) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, p, _ := inspector(t, o)
			p.fails("break", breakpoint{Act: actHold}, "no permission to break")
			go func() { _, _ = i.ask(t.Context(), questionView{Held: true}) }() // until the test ends
			e := p.until("a held frame", func(e event) bool { return e.Type == eventQuestion })
			var q questionView
			if err := jsonv2.Unmarshal(e.Data, &q); err != nil {
				t.Fatal(err)
			}
			p.fails("answer", answerParams{ID: q.ID, Result: jsonrpc.Raw(`{}`)}, "no permission to break")
			p.fails("replay", replayParams{}, "no permission to replay")
		})
	}
	_, p, _ := inspector(t, &Options{Open: true, May: func(_ *http.Request, action string) bool {
		return action == ActionBreak
	}})
	p.breaks("a", actHold)
	p.fails("replay", replayParams{}, "no permission to replay")
}
