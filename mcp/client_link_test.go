package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

// A legacy server that has forgotten the session gets a new handshake, once for
// all calls that met it, and the calls go on.
func TestSessionLost(t *testing.T) {
	var session atomic.Value
	session.Store("s1")
	f, url := httpFake(t, legacyFake(replies{"tools/call": `{"content":[]}`}),
		func(f *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool {
			if strings.Contains(string(body), `"initialize"`) ||
				strings.Contains(string(body), `"server/discover"`) {
				return false
			}
			if r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") != session.Load() {
				http.Error(w, "no such session", http.StatusNotFound)
				return true
			}
			return false
		})
	lost := 0
	c := mustDial(t, url, &ClientOptions{OnSessionLost: func() { lost++ }})
	call := func() error { _, err := c.CallTool(t.Context(), "x", nil); return err }
	if err := call(); err != nil {
		t.Fatal(err)
	}
	session.Store("s2")
	if err := call(); err != nil || lost != 1 || f.count("initialize") != 2 ||
		f.count("notifications/initialized") != 2 {
		t.Error(err, lost, f.got)
	}
	session.Store("s9") // which the new session will not be
	if err := call(); !errors.Is(err, mcphttp.ErrSessionLost) {
		t.Error(err)
	}
}

// TestSessionLostOnce: calls that are under way together when their session is lost all go on in
// the new one, and OnSessionLost is called once.
func TestSessionLostOnce(t *testing.T) {
	const together = 20
	var met sync.WaitGroup
	met.Add(together)
	_, url := httpFake(t, legacyFake(replies{"tools/call": `{"content":[]}`}),
		func(_ *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool {
			if r.Header.Get("Mcp-Session-Id") != "s1" || !strings.Contains(string(body), `"tools/call"`) {
				return false
			}
			met.Done()
			met.Wait() // each has been sent before the first knows
			http.Error(w, "no such session", http.StatusNotFound)
			return true
		})
	var lost atomic.Int32
	c := mustDial(t, url, &ClientOptions{OnSessionLost: func() { lost.Add(1) }})
	var calls sync.WaitGroup
	for range together {
		calls.Go(func() {
			if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := lost.Load(); n != 1 {
		t.Errorf("OnSessionLost was called %d times", n)
	}
}

// The last era is tried first, and the other one when that fails.
func TestServerChanges(t *testing.T) {
	var old atomic.Bool
	f, url := httpFake(t, legacyFake(modernFake(replies{"x": `{}`})),
		func(f *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool {
			modern := strings.Contains(string(body), spec.MetaProtocolVersion)
			switch {
			case modern && old.Load():
				http.Error(w, "Bad Request: Mcp-Session-Id header is required", http.StatusBadRequest)
			case !modern && !old.Load():
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusNotFound)
				w.Write(
					[]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no sessions here"}}`))
			default:
				return false
			}
			return true
		})
	c := mustDial(t, url, nil)
	for i, want := range []string{revModern, revLegacy, revModern} {
		old.Store(want == revLegacy)
		if err := c.Request(t.Context(), "x", nil, nil); err != nil || c.Server().Revision != want {
			t.Errorf("%d: %v, revision %s, want %s", i, err, c.Server().Revision, want)
		}
	}
	_ = f
}

// tcpFake serves a fake on a port; drop ends all its connections.
func tcpFake(t *testing.T, all replies) (f *fakeServer, address string, drop func()) {
	t.Helper()
	f = &fakeServer{t: t, replies: all}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var peers []*farcall.Peer
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			peers = append(peers,
				farcall.NewPeer(stream.New(conn, stream.NDJSON, nil), f,
					&farcall.Options{Dialect: mcphttp.Dialect()}))
			mu.Unlock()
		}
	})
	drop = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range peers {
			p.Close()
		}
		peers = nil
	}
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
		drop()
	})
	return f, "tcp://" + l.Addr().String(), drop
}

func TestReconnect(t *testing.T) {
	var hang atomic.Bool
	entered := make(chan struct{}, 10)
	slow := do(func(ctx context.Context, _ map[string]any) (any, error) {
		hangs := hang.Load()
		entered <- struct{}{}
		if hangs {
			<-ctx.Done()
		}
		return `{"content":[],"prompts":[]}`, nil
	})
	for _, test := range []struct {
		name string
		all  replies
	}{{"modern", modernFake(nil)}, {"legacy", legacyFake(nil)}} {
		t.Run(test.name, func(t *testing.T) {
			test.all["tools/call"], test.all["prompts/list"] = slow, slow
			f, address, drop := tcpFake(t, test.all)
			c := mustDial(t, address, nil)
			probes := f.count("server/discover")

			drop()
			<-c.cur.peer.Done()
			if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
				t.Fatal(err)
			}
			<-entered
			if test.name == "legacy" && f.count("server/discover") != probes {
				t.Error("the verdict was forgotten")
			}

			// A call that was under way may have had its effect.
			hang.Store(true)
			failed := make(chan error, 1)
			go func() {
				_, err := c.CallTool(t.Context(), "x", nil)
				failed <- err
			}()
			<-entered
			drop()
			if err := <-failed; !errors.Is(err, farcall.ErrClosed) ||
				!strings.Contains(err.Error(), "may or may not") {
				t.Errorf("error %v", err)
			}

			// One that only reads is made again.
			go func() {
				_, err := c.Prompts(t.Context())
				failed <- err
			}()
			<-entered
			hang.Store(false)
			drop()
			if err := <-failed; err != nil {
				t.Error(err)
			}
			<-entered
		})
	}
}

func TestNoReconnect(t *testing.T) {
	c, f := mustPipe(t, modernFake(nil), nil)
	f.peer.Close()
	if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, farcall.ErrClosed) {
		t.Error(err)
	}
	if err := c.Listen(t.Context(), spec.SubscriptionFilter{}); !errors.Is(err, farcall.ErrClosed) {
		t.Error(err)
	}
	c.Close()
	if err := c.Request(t.Context(), "x", nil, nil); !errors.Is(err, farcall.ErrClosed) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestListenModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf(format, args...))
		}
		var f *fakeServer
		var warn warnings
		rounds := 0
		listen := do(func(ctx context.Context, p map[string]any) (any, error) {
			rounds++
			for _, n := range []struct{ method, params string }{
				{
					"notifications/subscriptions/acknowledged",
					`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:"]}}`,
				},
				{"notifications/tools/list_changed", `{}`},
				{"notifications/resources/updated", `{"uri":"a:"}`},
				{
					"notifications/tasks",
					`{"taskId":"7","status":"working","createdAt":"","lastUpdatedAt":"","ttlMs":null}`,
				},
				{"notifications/else", `{"x":1}`},
			} {
				farcall.CallerFrom(ctx).Notify(ctx, n.method, jsonrpc.Raw(n.params))
			}
			if rounds == 1 {
				return `{"resultType":"complete"}`, nil // the server ends it in order
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		c, f := mustPipe(t, modernFake(replies{"subscriptions/listen": listen}), &ClientOptions{
			OnWarning: warn.add,
			OnListening: func(got spec.SubscriptionFilter) {
				note("listening %v %v", got.ToolsListChanged, got.ResourceSubscriptions)
			},
			OnListChanged:     func(kind string) { note("list %s", kind) },
			OnResourceUpdated: func(uri string) { note("updated %s", uri) },
			OnTask:            func(p *spec.DetailedTask) { note("task %s %s", p.TaskID, p.Status) },
			OnNotification:    func(method string, params []byte) { note("%s %s", method, params) },
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := c.Listen(ctx, spec.SubscriptionFilter{
			ToolsListChanged: true, PromptsListChanged: true,
			ResourceSubscriptions: []string{"a:"},
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait()
		told := "list tools,updated a:,task 7 working,notifications/else {\"x\":1}"
		// the second time for what was missed
		want := "listening true [a:]," + told + ",listening true [a:],list tools,updated a:," + told
		if got := strings.Join(events, ","); got != want {
			t.Errorf("events %s", got)
		}
		if !strings.Contains(warn.text(), "the list of prompts") {
			t.Errorf("warnings %s", warn.text())
		}
		f.set("subscriptions/listen", jsonrpc.Errorf(jsonrpc.MethodNotFound, "no"))
		if err := c.Listen(t.Context(), spec.SubscriptionFilter{}); !errors.Is(err,
			jsonrpc.MethodNotFound) {
			t.Error(err)
		}
		if f.peer.Stats().InFlight != 0 {
			t.Error("the subscription was not cancelled")
		}
	})
}

// A server that never acknowledges does not keep others from listening for good.
func TestListenUnacknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, f := mustPipe(t, modernFake(replies{"subscriptions/listen": do(silent)}), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := c.Listen(ctx, spec.SubscriptionFilter{}); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := f.count("subscriptions/listen"); n < 2 {
			t.Errorf("%d subscriptions", n)
		}
	})
}

func TestListenLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		updated := make(chan string, 1)
		listening := make(chan spec.SubscriptionFilter, 2)
		var warn warnings
		c, f := mustPipe(t,
			legacyFake(replies{"resources/subscribe": `{}`, "resources/unsubscribe": `{}`}), &ClientOptions{
				OnWarning:         warn.add,
				OnResourceUpdated: func(uri string) { updated <- uri },
				OnListening:       func(got spec.SubscriptionFilter) { listening <- got },
			})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := c.Listen(ctx,
					spec.SubscriptionFilter{
						ResourceSubscriptions: []string{"a:"}, ToolsListChanged: true,
						PromptsListChanged: true,
					}); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		if got := <-listening; !got.ToolsListChanged || got.PromptsListChanged ||
			len(got.ResourceSubscriptions) != 1 {
			t.Errorf("listening %+v", got)
		}
		<-listening
		f.peer.Notify(t.Context(), "notifications/resources/updated", map[string]string{"uri": "a:"})
		if uri := <-updated; uri != "a:" {
			t.Error(uri)
		}
		cancel()
		wg.Wait()
		if f.count("resources/subscribe") != 2 || f.count("resources/unsubscribe") != 1 {
			t.Errorf("got %q", f.got)
		}
		f.set("resources/subscribe", jsonrpc.Errorf(-32002, "no such resource"))
		if err := c.Listen(t.Context(),
			spec.SubscriptionFilter{ResourceSubscriptions: []string{"b:"}}); err == nil ||
			!strings.Contains(err.Error(), "no such resource") {
			t.Error(err)
		}
	})
}

// Over HTTP a legacy server asks on the stream of the call and on the standalone
// stream; notifications keep their order.
func TestLegacyHTTPRequests(t *testing.T) {
	answered := make(chan string, 2)
	release := make(chan struct{})
	sse := func(w http.ResponseWriter, messages ...string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, m := range messages {
			fmt.Fprintf(w, "data: %s\n\n", m)
		}
		w.(http.Flusher).Flush()
	}
	_, url := httpFake(t, legacyFake(nil), func(
		f *fakeServer, w http.ResponseWriter, r *http.Request, body []byte,
	) bool {
		var m struct {
			ID     json.RawMessage
			Method string
			Result json.RawMessage
		}
		json.Unmarshal(body, &m)
		switch {
		case r.Method == http.MethodGet:
			sse(w, `{"jsonrpc":"2.0","id":"get","method":"roots/list"}`,
				`{"jsonrpc":"2.0","id":"late","method":"elicitation/create","params":{"message":"never",`+
					anyForm+`}}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"late"}}`)
			select {
			case <-r.Context().Done():
			case <-release:
			}
		case m.Method == "tools/call":
			sse(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"1"}}`,
				`{"jsonrpc":"2.0","id":"post","method":"elicitation/create","params":{"message":"go on",`+
					anyForm+`}}`,
				`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"2"}}`)
			<-release
			sse(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"content":[]}}`)
		case m.Method == "" && m.Result != nil:
			answered <- string(m.ID) + string(m.Result)
			w.WriteHeader(http.StatusAccepted)
		case r.Method == http.MethodDelete:
		default:
			return false
		}
		return true
	})
	var logs []string
	cancelled := make(chan struct{})
	c := mustDial(t, url, &ClientOptions{
		Era:   "legacy",
		OnLog: func(p *spec.LoggingMessageNotificationParams) { logs = append(logs, string(p.Data)) },
		Roots: func(context.Context) ([]spec.Root, error) { return nil, nil },
		Elicit: func(ctx context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			if p.Message == "never" {
				<-ctx.Done()
				close(cancelled)
				return nil, ctx.Err()
			}
			return confirm(ctx, p)
		},
	})
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), "x", nil)
		done <- err
	}()
	got := map[string]bool{<-answered: true, <-answered: true}
	if !got[`"get"{"roots":[]}`] || !got[`"post"{"action":"accept","content":{"said":"go on"}}`] {
		t.Errorf("answers %v", got)
	}
	<-cancelled
	close(release)
	if err := <-done; err != nil || strings.Join(logs, "") != `"1""2"` {
		t.Error(err, logs)
	}
}

func TestTasksModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		task := `"taskId":"7","createdAt":"","lastUpdatedAt":"","ttlMs":null,"pollIntervalMs":500,`
		asked := `"inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who",` +
			anyForm + `}}},`
		c, f := mustPipe(t, modernFake(replies{
			"tools/call":   `{"resultType":"task",` + task + `"status":"working"}`,
			"tasks/update": `{}`, "tasks/cancel": `{}`,
			"tasks/get": do(func(context.Context, map[string]any) (any, error) {
				switch polls++; polls {
				case 1:
					return `{` + task + `"status":"working"}`, nil
				case 2, 3: // the answer takes its time
					return `{` + task + asked + `"status":"input_required"}`, nil
				}
				return `{` + task +
					`"status":"completed","result":{"content":[{"type":"text","text":"done"}]}}`, nil
			}),
		}), &ClientOptions{Tasks: true, Elicit: confirm})
		begun := time.Now()
		if got, err := CallTool[string](t.Context(), c, "x", nil); err != nil || got != "done" {
			t.Fatal(got, err)
		}
		if took := time.Since(begun); took != 750*time.Millisecond {
			// 50, 100, 200 and 400 ms: below the interval of 500 ms
			t.Errorf("took %v", took)
		}
		if p := f.last("tasks/update"); f.count("tasks/update") != 1 || p["taskId"] != "7" ||
			p["inputResponses"] == nil {
			t.Errorf("updates %v", p)
		}
		f.set("tasks/get", `{`+task+`"status":"failed","error":{"code":-32603,"message":"broken"}}`)
		if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, jsonrpc.InternalError) {
			t.Error(err)
		}
		f.set("tasks/get", `{`+task+`"status":"cancelled","statusMessage":"by the user"}`)
		if _, err := c.WaitTask(t.Context(), "7"); err == nil ||
			!strings.Contains(err.Error(), "cancelled and has no result: by the user") {
			t.Error(err)
		}
		f.set("tasks/get", `{`+task+`"status":"working"}`)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := c.CallTool(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait()
		if f.count("tasks/cancel") != 1 {
			t.Error("the task was not cancelled")
		}
		started, err := c.StartTask(t.Context(), "x", nil, 0)
		if err != nil || started.TaskID != "7" || started.Status != "working" {
			t.Error(started, err)
		}
		f.set("tools/call", `{"content":[]}`)
		if started, err = c.StartTask(t.Context(), "x", nil, 0); err != nil ||
			started.Status != "completed" || started.Result == nil {
			t.Error(started, err)
		}
	})
}

func TestTasksLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := `{"taskId":"7","createdAt":"","lastUpdatedAt":"","ttl":60000,` +
			`"pollInterval":500,"status":"`
		polls := 0
		c, f := mustPipe(t, legacyFake(replies{
			"tools/list": `{"tools":[{"name":"slow","inputSchema":{"type":"object"},` +
				`"execution":{"taskSupport":"required"}}]}`,
			"tools/call":   `{"task":` + task + `working"}}`,
			"tasks/result": `{"content":[{"type":"text","text":"done"}]}`,
			"tasks/cancel": task + `cancelled"}`,
			"tasks/list":   `{"tasks":[` + task + `working"}]}`,
			"tasks/get": do(func(context.Context, map[string]any) (any, error) {
				if polls++; polls%3 == 0 {
					return task + `completed"}`, nil
				}
				return task + `working"}`, nil
			}),
		}), nil)
		started, err := c.StartTask(t.Context(), "slow", nil, time.Minute)
		if err != nil || started.TaskID != "7" || started.PollIntervalMS == nil ||
			*started.PollIntervalMS != 500 {
			t.Fatal(started, err)
		}
		if ttl, _ := f.last("tools/call")["task"].(map[string]any); ttl["ttl"] != 60000.0 {
			t.Errorf("params %v", f.last("tools/call"))
		}
		if r, err := c.WaitTask(t.Context(), "7"); err != nil || r.Content[0].Text != "done" {
			t.Error(r, err)
		}
		if all, err := c.Tasks(t.Context()); err != nil || len(all) != 1 || all[0].TaskID != "7" {
			t.Error(all, err)
		}
		if err := c.CancelTask(t.Context(), "7"); err != nil {
			t.Error(err)
		}
		// A tool that says so is always called as a task.
		if _, err := c.Tools(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := CallTool[string](t.Context(), c, "slow", nil); err != nil || got != "done" ||
			f.last("tools/call")["task"] == nil {
			t.Error(got, err, f.last("tools/call"))
		}
	})
}

func TestRootsChanged(t *testing.T) {
	for _, test := range []struct {
		all  replies
		want int
	}{{modernFake(nil), 0}, {legacyFake(nil), 1}} {
		synctest.Test(t, func(t *testing.T) {
			c, f := mustPipe(t, test.all, nil)
			if err := c.RootsChanged(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if n := f.count("notifications/roots/list_changed"); n != test.want {
				t.Errorf("told %d times", n)
			}
		})
	}
}
