package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

// everybody lets all who are known call everything.
func everybody() *guard.Config { return guarded(guard.Rule{Calls: []string{"*"}}) }

// A session is of who began it: to others it does not exist.
func TestShieldSessions(t *testing.T) {
	l := newLabOf(t, nil,
		&gateway.Config{Upstreams: []*gateway.Upstream{newMock("").tcp(t, "a")}, Guard: everybody()})
	hello, err := l.post(t.Context(), "/mcp", initialize, as("dev"))
	if err != nil || hello.result == nil {
		t.Fatal(hello, err)
	}
	session := "Mcp-Session-Id: " + hello.header.Get("Mcp-Session-Id")
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo",` +
		`"arguments":{"text":"hello"}}}`
	version := "MCP-Protocol-Version: " + legacy
	if got, err := l.post(t.Context(), "/mcp",
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, session, version,
		as("dev")); err != nil || got.status != http.StatusAccepted {
		t.Fatal(got, err)
	}
	if got, err := l.post(t.Context(), "/mcp", call, session, version, as("eve")); err != nil ||
		got.status != http.StatusNotFound || strings.Contains(got.body, "hello") {
		t.Errorf("eve: %v, %v", got, err)
	}
	if got, err := l.post(t.Context(), "/mcp", call, session, version); err != nil ||
		got.status != http.StatusUnauthorized {
		t.Errorf("unauthenticated: %v, %v", got, err)
	}
	for _, method := range []string{http.MethodDelete, http.MethodGet} {
		// nor can it be ended or listened to
		r, err := http.NewRequestWithContext(t.Context(), method, l.url+"/mcp", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Mcp-Session-Id", hello.header.Get("Mcp-Session-Id"))
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("X-Api-Key", keyed("eve"))
		got, err := l.web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", method, got.StatusCode)
		}
	}
	if got, err := l.post(t.Context(), "/mcp", call, session, version, as("dev")); err != nil ||
		!strings.Contains(got.body, "hello") {
		t.Errorf("dev: %v, %v", got, err)
	}
}

// A task is of who began it, in every revision.
func TestShieldTasks(t *testing.T) {
	s := asker()
	mcp.AddTool(s, mcp.Tool{
		Name: "slow", Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional},
	}, func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	l := newLabOf(t, nil,
		&gateway.Config{Upstreams: []*gateway.Upstream{over(t, "a", s)}, Guard: everybody()})
	for _, eras := range []string{"modern", "legacy"} {
		o := mcp.ClientOptions{Era: eras, Tasks: true, HTTP: withKeyOf("dev")}
		mine := l.clientAt(t, "/mcp", o)
		o.HTTP = withKeyOf("eve")
		theirs := l.clientAt(t, "/mcp", o)
		task, err := mine.StartTask(t.Context(), "slow", struct{}{}, time.Minute)
		if err != nil || task.TaskID == "" {
			t.Fatal(task, err)
		}
		if _, err := mine.Task(t.Context(), task.TaskID); err != nil {
			t.Errorf("%s: %v", eras, err)
		}
		if got, err := theirs.Task(t.Context(), task.TaskID); err == nil {
			t.Errorf("%s: eve sees %+v", eras, got)
		}
		if err := theirs.CancelTask(t.Context(), task.TaskID); err == nil {
			t.Errorf("%s: eve has cancelled it", eras)
		}
		if got, err := mine.Task(t.Context(), task.TaskID); err != nil || got.Status != spec.TaskWorking {
			t.Errorf("%s: %+v, %v", eras, got, err)
		}
		if err := mine.CancelTask(t.Context(), task.TaskID); err != nil {
			t.Error(err)
		}
	}
}

// The state of a request, and so a call that waits for an answer, is of who made it, whether the
// server itself carries it or the gateway.
func TestShieldRequestState(t *testing.T) {
	for _, eras := range []string{"legacy", "modern"} {
		m := newMock(eras)
		l := newLabOf(t, nil,
			&gateway.Config{Upstreams: []*gateway.Upstream{m.tcp(t, "a")}, Guard: everybody()})
		mine := l.rounds(t, "dev")
		mine.headers = []string{as("dev")}
		mine.begin()
		theirs := *mine
		theirs.headers = []string{as("eve")}
		got, err := theirs.answer("Eve")
		if err != nil || got.err == nil || strings.Contains(got.body, "Eve") {
			t.Errorf("%s: %v, %v", eras, got, err)
		}
		theirs.headers = nil
		if got, err := theirs.answer("Eve"); err != nil || got.status != http.StatusUnauthorized {
			t.Errorf("unauthenticated: %v, %v", got, err)
		}
		mine.done("Ann", "dev is Ann")
	}
}

// What a server makes for one principal is not for another one: its connections, and its lists.
func TestShieldConnections(t *testing.T) {
	var conns atomic.Int64
	url := listen(t, func(conn net.Conn) {
		n := conns.Add(1) // a server for each connection, with its own tool
		s := mcp.NewServer("own", "1",
			&mcp.ServerOptions{CacheScope: spec.CachePrivate, CacheTTL: time.Hour})
		defer s.Close()
		mcp.AddTool(s, mcp.Tool{Name: fmt.Sprint("of-", n)},
			func(context.Context, textIn) (string, error) {
				return fmt.Sprint(n), nil
			})
		_ = mcp.Serve(context.Background(), s, stream.New(conn, stream.NDJSON, nil), nil)
	})
	l := newLabOf(t, nil,
		&gateway.Config{
			Upstreams: []*gateway.Upstream{{Name: "a", URL: url, Lifetime: "principal"}},
			Guard:     everybody(),
		})
	names := map[string]string{}
	for _, id := range []string{"dev", "eve", "dev", "ops", "eve"} {
		all, _ := toolsOf(t, l.enter(t, "/mcp", id, ""))
		got := strings.Join(all, " ")
		if before, ok := names[id]; ok && before != got {
			t.Errorf("%s sees %q, and saw %q", id, got, before)
		}
		for other, theirs := range names {
			if other != id && theirs == got {
				t.Errorf("%s sees what %s sees: %q", id, other, got)
			}
		}
		names[id] = got
	}
	for id := range names {
		for other, tool := range names {
			_, err := say(t.Context(), l.enter(t, "/mcp", id, ""), tool, "")
			if (err == nil) != (id == other) {
				t.Errorf("%s calls %s: %v", id, tool, err)
			}
		}
	}
}

// No client is notified of what it may not read.
func TestShieldSubscriptions(t *testing.T) {
	a := newShop("a", "")
	l := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{over(t, "a", a.Server)},
		Guard:     guarded(allow("dev", "resources/read a/test://a/open")),
	})
	for _, eras := range []string{"legacy", "modern"} {
		updated, granted := make(chan string, 100), make(chan spec.SubscriptionFilter, 1)
		c := l.clientAt(t, "/mcp", mcp.ClientOptions{
			Era: eras, HTTP: withKeyOf("dev"), OnResourceUpdated: func(uri string) { updated <- uri },
			OnListening: func(f spec.SubscriptionFilter) { granted <- f },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		if eras == "legacy" {
			for uri, want := range map[string]bool{
				"test://a/open": true, "test://a/secret": false,
				"test://a/open/1": false,
			} {
				if err := c.Request(ctx, spec.MethodResourcesSubscribe, map[string]string{"uri": uri},
					nil); (err == nil) != want {
					t.Errorf("%s: %v", uri, err)
				}
			}
		} else {
			go func() {
				ended <- c.Listen(ctx,
					spec.SubscriptionFilter{ResourceSubscriptions: []string{"test://a/open", "test://a/secret"}})
			}()
			select {
			case f := <-granted:
				if len(f.ResourceSubscriptions) != 1 || f.ResourceSubscriptions[0] != "test://a/open" {
					t.Errorf("%+v", f)
				}
			case err := <-ended:
				t.Logf("it is refused as a whole: %v", err)
				ended <- err
			}
		}
		a.ResourceUpdated("test://a/secret")
		a.ResourceUpdated("test://a/open")
		if len(ended) == 0 {
			if got := received(t, "an update", updated); got != "test://a/open" {
				t.Errorf("%s: told of %s", eras, got)
			}
		}
		cancel()
		if eras == "modern" {
			<-ended
		}
	}
}

// The same holds over every other way in.
func TestShieldOtherTransports(t *testing.T) {
	a := newShop("a", "")
	c := &gateway.Config{
		Upstreams: []*gateway.Upstream{over(t, "a", a.Server)},
		Guard:     guarded(allow("dev", "tools/call a/look"), allow("host", "tools/call a/add")),
	}
	c.Guard.Stdio.Roles = []string{"host"}
	secret := strings.Repeat("s", 40)
	c.Guard.Signatures = []guard.Signer{{ID: "signer", Secret: secret, Roles: []string{"dev"}}}
	l := newLabOf(t, nil, c)

	ws, err := l.socket(t, "dev")
	if err != nil {
		t.Fatal(err)
	}
	sse := l.clientAt(t, "/sse", mcp.ClientOptions{HTTP: withKeyOf("dev")})
	host, err := l.pipeAs(t, &guard.Conn{Transport: "stdio"})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		c    *mcp.Client
		sees string
	}{"ws": {ws, "tool:look"}, "sse": {sse, "tool:look"}, "stdio": {host, "tool:add"}} {
		if got := seen(t, x.c); got != x.sees {
			t.Errorf("%s: %q", name, got)
		}
		for _, tool := range []string{"look", "add", "drop"} {
			_, err := say(t.Context(), x.c, tool, "")
			if (err == nil) != (x.sees == "tool:"+tool) || (err == nil) != (a.took() != "") {
				t.Errorf("%s: %s: %v", name, tool, err)
			}
		}
	}
	if _, err := l.socket(t, "mallory"); err == nil {
		t.Error("mallory has got in over WebSocket")
	}
	if _, err := mcp.Dial(t.Context(), l.url+"/sse",
		&mcp.ClientOptions{HTTP: withKeyOf("mallory")}); err == nil {
		t.Error("mallory has got in over SSE")
	}
	if _, err := l.pipeAs(t, &guard.Conn{Transport: "tcp"}); err == nil {
		t.Error("an unauthenticated call over TCP has passed")
	}

	// Over TCP messages are signed, and the signature stays here.
	line := func(method, params string) string {
		signed, err := guard.SignParams(method, jsonrpc.Raw(params), "signer", "", []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + string(signed) + `}`
	}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern +
		`","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	tr := l.stream(t)
	for tool, want := range map[string]string{"look": `"a look "`, "add": "-31056"} {
		frame := line("tools/call", `{"name":"`+tool+`","arguments":{},`+meta+`}`)
		for _, want := range []string{want, "-31052"} {
			if err := tr.Write([]byte(frame)); err != nil {
				t.Fatal(err)
			}
			if got, err := tr.Read(); err != nil || !strings.Contains(string(got), want) {
				t.Errorf("%s: %s, %v; want %s", tool, got, err, want)
			}
		}
	}
}

// pipeAs is a client over a byte stream with known properties.
func (l *lab) pipeAs(t *testing.T, conn *guard.Conn) (*mcp.Client, error) {
	t.Helper()
	mine, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.ServeStream(stream.New(theirs, stream.NDJSON, nil), conn)
	}()
	tr := stream.New(mine, stream.NDJSON, nil)
	t.Cleanup(func() {
		tr.Close()
		<-done
	})
	return mcp.Connect(t.Context(), tr, &mcp.ClientOptions{ProbeTimeout: 200 * time.Millisecond})
}

// A guard is put up or taken away with the gateway; its rules and keys change meanwhile, for open
// connections too.
func TestShieldReload(t *testing.T) {
	a := newShop("a", "")
	u := over(t, "a", a.Server)
	config := func(c *guard.Config) *gateway.Config {
		return &gateway.Config{Upstreams: []*gateway.Upstream{u}, Guard: c, Namespace: "auto"}
	}
	l := newLabOf(t, nil, config(guarded(allow("dev", "tools/call a/look"))))
	open := newLabOf(t, nil, config(nil))
	if err := open.Reload(config(everybody())); err == nil {
		t.Error("a guard is put up while the gateway runs, and those who are in are not asked")
	}
	ws, err := l.socket(t, "dev")
	if err != nil {
		t.Fatal(err)
	}
	web := l.enter(t, "/mcp", "dev", "legacy")
	expect := func(what, want string, works bool) {
		t.Helper()
		if got := seen(t, web); got != want { // the other one keeps its lists, as it may
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		for _, c := range []*mcp.Client{ws, web} {
			if _, err := say(t.Context(), c, "look", ""); (err == nil) != works {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	expect("at first", "tool:look", true)
	bad := guarded(guard.Rule{Calls: []string{"*"}})
	bad.Cedar = "permit("
	for _, c := range []*gateway.Config{
		config(nil), config(bad),
		{Guard: everybody(), Upstreams: []*gateway.Upstream{{Name: "a"}}},
	} {
		if err := l.Reload(c); err == nil {
			t.Error("it is accepted")
		}
		expect("not valid", "tool:look", true)
	}
	if err := l.Reload(config(guarded(allow("dev", "tools/call a/add")))); err != nil {
		t.Fatal(err)
	}
	expect("another rule", "tool:add", false)
	without := guarded(allow("dev", "tools/call a/look"))
	without.Keys = without.Keys[1:]
	if err := l.Reload(config(without)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*mcp.Client{"ws": ws, "web": web} {
		if _, err := say(t.Context(), c, "look", ""); err == nil {
			t.Errorf("%s: the key counts no more", name)
		}
	}
	a.took()
}

// JSON-RPC of a server that speaks no MCP, over HTTP: each call, by its method, also in a batch and
// as a stream.
func TestShieldRawOverHTTP(t *testing.T) {
	sent := make(chan string, 1000)
	server := lines(func(line string) string {
		sent <- line
		var m struct{ ID json.RawMessage }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			return err.Error()
		}
		return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":[]}`
	})
	l := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{
			{Name: "r", URL: listen(t, server), Profile: "raw", Timeout: 5 * time.Second},
		},
		Guard: guarded(allow("dev", "rpc r/math/*")),
	})
	call := func(method string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":[1]}`
	}
	for _, path := range []string{"/rpc", "/rpc/r"} {
		for who, x := range map[string]struct{ body, want, not string }{
			as("dev"):   {call("math/add"), `"result":[]`, "error"},
			as("eve"):   {call("math/add"), "-32056", "result"},
			as("x"):     {call("math/add"), "-32051", "result"},
			"X-None: x": {call("math/add"), "-32051", "result"},
		} {
			got, err := l.post(t.Context(), path, x.body, who)
			if err != nil || strings.Contains(got.body, x.not) ||
				!strings.Contains(got.body, x.want) && !strings.Contains(got.body, "-32002") {
				t.Errorf("%s as %s: %v, %v", path, who, got, err)
			}
		}
		got, err := l.post(t.Context(), path,
			"["+call("math/add")+","+strings.Replace(call("admin/stop"), `"id":1`, `"id":2`, 1)+"]",
			as("dev"))
		if err != nil || strings.Count(got.body, `"result":[]`) != 1 ||
			!strings.Contains(got.body, "Permission denied") {
			t.Errorf("%v, %v", got, err)
		}
		for _, method := range []string{"Math/add", "math", "admin/stop", "math/../admin/stop"} {
			if got, err := l.post(t.Context(), path, call(method), as("dev")); err != nil ||
				got.err == nil && !strings.HasPrefix(method, "math/") {
				t.Errorf("%s: %v, %v", method, got, err)
			}
		}
	}
	if got := l.getAs(t, "/rpc/r/stream?method=admin/stop", "dev"); !strings.Contains(got,
		"Permission denied") {
		t.Errorf("%s", got)
	}
	for len(sent) > 0 {
		if line := <-sent; !strings.Contains(line, `"math/`) {
			t.Errorf("it was sent %s", line)
		}
	}
}
