package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

// overHTTP is an upstream with one server behind HTTP.
func overHTTP(t *testing.T, eras string, o Options) (*Upstream, *lab, *httptest.Server) {
	t.Helper()
	l := newLab(t, eras)
	c := &child{lab: l, n: 1, server: mcp.NewServer("lab", "1", &mcp.ServerOptions{Eras: eras})}
	c.tools()
	h := mcphttp.NewHandler(c.server, nil)
	web := httptest.NewServer(h)
	o.Name = "web"
	o.Dial = func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
		l.mu.Lock()
		l.dials++
		l.mu.Unlock()
		return mcp.Dial(ctx, web.URL, o)
	}
	u := New(&o)
	t.Cleanup(func() {
		l.close(u)
		web.CloseClientConnections()
		web.Close()
		c.server.Close()
	})
	return u, l, web
}

// TestHTTPQuestions has many callers asked at once over one session: HTTP says
// which call a question is about.
func TestHTTPQuestions(t *testing.T) {
	for _, eras := range []string{"2025-06-18", legacy, modern} {
		t.Run(eras, func(t *testing.T) {
			u, l, _ := overHTTP(t, eras, Options{})
			var wg sync.WaitGroup
			var gate sync.WaitGroup // no handler answers before all are asked
			const callers = 40
			gate.Add(callers)
			for i := range callers {
				wg.Go(func() {
					id := fmt.Sprint("q", i)
					c := toolCall("ask", id, asker(fmt.Sprint("s", i%7)))
					c.Rounds = true
					c.Ask = func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
						gate.Done()
						gate.Wait()
						return answerWith(id+" was asked ")(ctx, method, params)
					}
					mustDo(t, u, c, id+" "+id+" was asked "+id)
				})
			}
			wg.Wait()
			if s := u.Status(); s.Connections != 1 || l.count() != 1 {
				t.Errorf("%d sessions, %+v", l.count(), s)
			}
		})
	}
}

// TestHTTPLogs go to the call with the answer that they come in.
func TestHTTPLogs(t *testing.T) {
	for _, eras := range []string{legacy, modern} {
		u, _, _ := overHTTP(t, eras, Options{})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				id := fmt.Sprint("t", i)
				c := toolCall("tell", id, Caller{})
				logs, reports := 0, 0
				c.LogLevel = "info"
				c.Notice = func(_ context.Context, _ string, params jsonrpc.Raw) {
					if logs++; !strings.Contains(string(params), `"`+id+`"`) {
						t.Errorf("%s got %s", id, params)
					}
				}
				c.Progress = func(_ context.Context, params jsonrpc.Raw) {
					if reports++; !strings.Contains(string(params), `"`+id+`"`) {
						t.Errorf("%s got %s", id, params)
					}
				}
				mustDo(t, u, c, id)
				if logs != 3 || reports != 3 {
					t.Errorf("%s: %s got %d messages and %d reports, want 3 and 3", eras, id, logs, reports)
				}
			})
		}
		wg.Wait()
	}
}

// TestUnexpectedQuestion holds a question that does not say which of two calls it is about until
// one has ended. A new session has its own connection from then on.
func TestUnexpectedQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := New(&Options{Name: "web", Dial: l.dial})
		defer l.close(u)
		asked := make(chan string, 9)
		results := make(chan error, 9)
		begin := func(id string) {
			c := toolCall("block", id, asker(id))
			c.Ask = func(context.Context, string, jsonrpc.Raw) (jsonrpc.Raw, error) {
				asked <- id
				return jsonrpc.Raw(`{"action":"decline"}`), nil
			}
			go func() { _, err := do(t.Context(), u, c); results <- err }()
			synctest.Wait()
		}
		begin("a")
		begin("b")
		conn := u.pool.holders[ownerKey{}].conns[0]
		if u.Status().Connections != 1 || len(conn.pending) != 2 {
			t.Fatalf("%+v", u.Status())
		}
		unexpected := make(chan error, 1)
		go func() {
			_, err := u.ask(t.Context(), conn, spec.MethodElicitationCreate, jsonrpc.Raw(`{}`))
			unexpected <- err
		}()
		synctest.Wait()
		begin("c")
		if n := u.Status().Connections; n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
		l.release("a")
		<-results
		if err := <-unexpected; err != nil || <-asked != "b" {
			t.Error(err)
		}
		// One that comes when its call is over belongs to no call.
		pc := conn.pending[0]
		l.release("b")
		<-results
		if _, err := u.ask(pc.ctx, conn, spec.MethodElicitationCreate, jsonrpc.Raw(`{}`)); err == nil ||
			len(asked) > 0 {
			t.Error("a question of a call that is over was answered")
		}
		l.release("c")
		<-results
	})
}

// TestHTTPDown is distinguished from an answer, and heals.
func TestHTTPDown(t *testing.T) {
	u, _, web := overHTTP(t, legacy, Options{BreakAfter: 5, BreakFor: time.Hour})
	mustDo(t, u, toolCall("which", "", Caller{}), "1")
	web.CloseClientConnections()
	web.Close()
	for n := range 3 {
		_, err := do(t.Context(), u, toolCall("which", "", Caller{}))
		// The first one may have gone over the old connection.
		if d := dataOf(t, err, jsonrpc.Unavailable); n > 0 && (d.Sent != "no" || !d.Retryable) {
			t.Errorf("%v %+v", err, d)
		}
	}
	_, err := do(t.Context(), u, toolCall("which", "", Caller{}))
	if d := dataOf(t, err, jsonrpc.Unavailable); d.RetryAfterMS == 0 {
		t.Errorf("%v %+v", err, d)
	}
	if s := u.Status(); s.State != StateOpen {
		t.Errorf("%+v", s)
	}
}

const dyingServer = "UPSTREAM_TEST_DIE"

// TestMainDies is no test: it is the server that dies when it starts.
func TestMainDies(t *testing.T) {
	if os.Getenv(dyingServer) == "" {
		t.Skip("only as a child")
	}
	fmt.Fprintln(os.Stderr, "reading the configuration")
	fmt.Fprintln(os.Stderr, "FATAL: no DATABASE_URL")
	os.Exit(3)
}

// TestDiesAtStart says within a second what the server said last.
func TestDiesAtStart(t *testing.T) {
	starts := 0
	u := New(
		&Options{
			Name: "dying", Exclusive: true,
			Dial: func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
				starts++
				cmd := exec.Command(os.Args[0], "-test.run=^TestMainDies$")
				cmd.Env = append(os.Environ(), dyingServer+"=1")
				child, err := stream.Command(cmd, stream.NDJSON, nil)
				if err != nil {
					return nil, err
				}
				return mcp.Connect(ctx, child, o)
			},
		})
	defer u.Close(t.Context())
	begun := time.Now()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			_, err := do(t.Context(), u, toolCall("x", "", Caller{}))
			d := dataOf(t, err, jsonrpc.Unavailable)
			if len(d.Stderr) == 0 || d.Stderr[len(d.Stderr)-1] != "FATAL: no DATABASE_URL" ||
				d.Sent != "no" || !d.Retryable {
				t.Errorf("%v %+v", err, d)
			}
		})
	}
	wg.Wait()
	if took := time.Since(begun); took > 3*time.Second || starts > 10 {
		t.Errorf("%d starts in %v", starts, took)
	}
}

// delayed is an error that says when to come back.
type delayed struct{ until time.Time }

func (delayed) Error() string { return "not yet" }

// TestDelayedStart waits for a supervisor that says when.
func TestDelayedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		ready := time.Now().Add(800 * time.Millisecond)
		l.dialing = func(context.Context, int) error {
			if time.Now().Before(ready) {
				return delayed{ready}
			}
			return nil
		}
		u := l.upstream(Options{Explain: func(err error) (time.Duration, []string) {
			if d, ok := errors.AsType[delayed](err); ok {
				return time.Until(d.until), []string{"line"}
			}
			return 0, nil
		}})
		mustDo(t, u, toolCall("which", "", Caller{}), "2")
		ready = time.Now().Add(time.Hour)
		l.child(2).end.Close()
		synctest.Wait()
		_, err := do(t.Context(), u, toolCall("which", "", Caller{}))
		if d := dataOf(t, err, jsonrpc.Unavailable); d.RetryAfterMS != 3600_000 || len(d.Stderr) != 1 {
			t.Errorf("%+v", d)
		}
	})
}

// TestTimeout is an error that says so.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{Timeout: time.Second})
		_, err := do(t.Context(), u, toolCall("block", "x", Caller{}))
		if d := dataOf(t, err, jsonrpc.Timeout); d.Sent != "unknown" || d.Retryable {
			t.Errorf("%+v", d)
		}
		mustDo(t, u, toolCall("which", "", Caller{}), "1")
	})
}

// TestNotify tells the connections of the caller, and no other.
func TestNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[int]int{}
		n := 0
		var ends []func()
		u := New(
			&Options{
				Name: "told", Exclusive: true,
				Dial: func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
					mine, theirs := farcall.Pipe()
					mu.Lock()
					n++
					me := n
					mu.Unlock()
					peer := farcall.NewPeer(theirs,
						farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
							switch req.Method {
							case spec.MethodInitialize:
								return jsonrpc.Raw(
									`{"protocolVersion":"` + legacy +
										`","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`), nil
							case "test/changed":
								mu.Lock()
								told[me]++
								mu.Unlock()
							case spec.MethodToolsCall:
								return jsonrpc.Raw(fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}]}`, me)), nil
							}
							return nil, jsonrpc.MethodNotFound
						}), &farcall.Options{Dialect: mcphttp.Dialect()})
					mu.Lock()
					ends = append(ends, func() { peer.Close() })
					mu.Unlock()
					return mcp.Connect(ctx, mine, o)
				}, Lifetime: lifetimeSession,
			})
		a, b := asker("a"), asker("b")
		mustDo(t, u, toolCall("x", "", a), "1")
		mustDo(t, u, toolCall("x", "", b), "2")
		u.Notify(t.Context(), b, "test/changed", nil)
		u.Notify(t.Context(), asker("c"), "test/changed", nil)
		synctest.Wait()
		mu.Lock()
		if told[1] != 0 || told[2] != 1 {
			t.Errorf("told: %v", told)
		}
		mu.Unlock()
		_ = u.Close(t.Context())
		for _, end := range ends {
			end()
		}
	})
}

// BenchmarkCall is a call on a connection that is up. What the client needs on its own is
// in BenchmarkForward.
func BenchmarkCall(b *testing.B) {
	u, _, c := benched(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := u.Call(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkForward(b *testing.B) {
	_, l, c := benched(b)
	client := l.child(1).client
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := client.Forward(b.Context(),
			&relay.Forward{Method: c.Method, Params: c.Params, Revision: c.Revision}); err != nil {
			b.Fatal(err)
		}
	}
}

func benched(tb testing.TB) (*Upstream, *lab, *Call) {
	tb.Helper()
	l := newLab(tb, legacy)
	u := l.upstream(Options{})
	c := &Call{
		Method: spec.MethodPing, Revision: era.LatestLegacy(),
		Caller: Caller{Capabilities: jsonrpc.Raw(canElicit)},
	}
	if _, err := u.Call(tb.Context(), c); err != nil {
		tb.Fatal(err)
	}
	return u, l, c
}

// TestAllocs bounds what a call costs over that of the client.
func TestAllocs(t *testing.T) {
	u, l, c := benched(t)
	client := l.child(1).client
	own := testing.AllocsPerRun(200, func() { _, _ = u.Call(t.Context(), c) })
	bare := testing.AllocsPerRun(200, func() {
		_, _, _ = client.Forward(t.Context(),
			&relay.Forward{Method: c.Method, Params: c.Params, Revision: c.Revision})
	})
	t.Logf("%v allocations, %v of them the client's", own, bare)
	if own-bare > 4 {
		t.Errorf("%v allocations more than the client's %v", own-bare, bare)
	}
}
