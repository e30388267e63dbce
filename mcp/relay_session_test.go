package mcp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestRelayDescribes(t *testing.T) {
	s := relayServer(t, &fakeRelay{}, &ServerOptions{Instructions: "not these"})
	wantJSON(t, "discover", result(t, relayExchange(t, s, rev2026, "server/discover", `{}`)),
		`{"resultType":"complete","supportedVersions":["2026-07-28"],
		"ttlMs":0,"cacheScope":"private","instructions":"be quick","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up","version":"7","title":"Up"}},
		"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"extensions":{"com.example/x":{"v":1},"io.modelcontextprotocol/tasks":{}}}}`)
	wantJSON(t, "initialize", result(t, exchange(t, s, hello(rev2511))[0]),
		`{"protocolVersion":"2025-11-25","instructions":"be quick",
		"serverInfo":{"name":"up","version":"7","title":"Up"},"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},
		"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}}`)
	wantJSON(t, "initialize", result(t, exchange(t, s, hello(rev2506))[0]),
		`{"protocolVersion":"2025-06-18","instructions":"be quick",
		"serverInfo":{"name":"up","version":"7","title":"Up"},"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}}}`)

	none := relayServer(t, &fakeRelay{describe: func(context.Context) *relay.Description {
		return nil
	}}, nil)
	wantJSON(t, "of nothing", result(t, exchange(t, none, hello(rev2511))[0]),
		`{"protocolVersion":"2025-11-25","serverInfo":{"name":"calc","version":"1.0"},"capabilities":{}}`)
	legacyTasksOnly := relayServer(t, &fakeRelay{describe: func(context.Context) *relay.Description {
		return &relay.Description{Capabilities: &spec.ServerCapabilities{Tasks: &spec.TasksCapability{}}}
	}}, nil)
	if got := relayExchange(t, legacyTasksOnly, rev2026, "server/discover", `{}`); !strings.Contains(
		got, `"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`) {
		t.Error(got)
	}
}

// A relay that takes long to describe what it has holds up only what needs the session.
func TestRelayDescribesSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fakeRelay{
			forward: always(`{"resultType":"complete"}`, rev2026),
			describe: func(ctx context.Context) *relay.Description {
				<-release
				return nil
			},
		}
		w := serve(t, relayServer(t, f, nil))
		w.send(hello(rev2511))
		for _, frame := range []string{legacyFrame("1", "ping", "{}"), modernFrame("2", "x/y", "")} {
			if got := w.ask(frame); !strings.Contains(got, `"result"`) {
				t.Error(got)
			}
		}
		w.send(legacyFrame("3", "tools/list", "{}"))
		synctest.Wait()
		close(release)
		got := strings.Join(w.rest(), "")
		if strings.Count(got, `"result"`) != 2 || !strings.Contains(got, "serverInfo") {
			t.Error(got)
		}
		w.close()
	})
}

// The relay knows who calls, in all of its methods.
func TestRelayKnowsTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var described *ClientInfo
		f := &fakeRelay{forward: always(`{}`, rev2511)}
		f.describe = func(ctx context.Context) *relay.Description {
			described = ClientFrom(ctx)
			return nil
		}
		f.watch = func(ctx context.Context, uri string, updated func()) (func(), error) {
			f.note(ctx, &f.got, uri)
			return nil, nil
		}
		w := serve(t, relayServer(t, f, nil))
		w.open(rev2511)
		session := described.Session
		check := func(i *ClientInfo, level string, progress bool) {
			t.Helper()
			if i == nil || i.Name != "t" || i.Revision != rev2511 ||
				string(i.InfoRaw) != `{"name":"t","version":"1"}` || string(i.CapabilitiesRaw) != "{}" ||
				i.Session != session || len(session) < 20 || i.LogLevel != level ||
				i.ProgressWanted != progress {
				t.Errorf("%+v", i)
			}
		}
		check(described, "info", false)
		w.ask(legacyFrame("1", "logging/setLevel", `{"level":"error"}`))
		w.ask(legacyFrame("2", "tools/call", `{"name":"x","_meta":{"progressToken":1}}`))
		check(f.last(), "error", true)
		w.ask(legacyFrame("3", "resources/subscribe", `{"uri":"a:b"}`))
		check(f.last(), "error", false)
		w.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed",`+
			`"params":{"_meta":{"progressToken":1}}}`,
			`{"jsonrpc":"2.0","method":"notifications/com.example/x","params":{"a":1}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":1}}`)
		if w.rest(); len(f.notified) != 2 ||
			f.notified[0] != `notifications/roots/list_changed {"_meta":{"progressToken":1}}` ||
			f.notified[1] != `notifications/com.example/x {"a":1}` {
			t.Errorf("%q", f.notified)
		}
		check(f.last(), "error", false)

		w.ask(modernFrameWith("4", "tools/call", `"name":"x"`, `{"roots":{}}`,
			`,"io.modelcontextprotocol/logLevel":"debug","progressToken":"p"`))
		if i := f.last(); i.Session != "" || i.Revision != rev2026 ||
			string(i.CapabilitiesRaw) != `{"roots":{}}` || i.LogLevel != "debug" || !i.ProgressWanted {
			t.Errorf("%+v", i)
		}
		w.ask(modernFrame("5", "tools/call", `"name":"x"`))
		if i := f.last(); i.LogLevel != "" || i.ProgressWanted {
			t.Errorf("%+v", i)
		}
		w.close()
		if len(f.closed) != 2 || f.closed[0] != session {
			// and then the connection, for the requests that stood alone
			t.Error("closed:", f.closed)
		}
	})
}

// A notification of the modern era reaches the relay when it says who sends it.
func TestRelayStatelessNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRelay{}
		w := serve(t, relayServer(t, f, nil))
		w.send(`{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1}}`)
		w.send(strings.Replace(modernFrame("0", "notifications/x", `"a":2`), `"id":0,`, "", 1))
		w.rest()
		w.close()
		if len(f.notified) != 1 || !strings.HasSuffix(f.notified[0], `"a":2}`) || f.last().Name != "t" ||
			len(f.closed) != 0 {
			t.Error(f.notified, f.closed)
		}
	})
}

// The end of a connection ends what its requests that stand alone have left behind.
func TestRelayConnectionClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var whose owner.Key
		f := &fakeRelay{forward: func(
			ctx context.Context, _ *era.Revision, _ string, _ jsonrpc.Raw,
		) (jsonrpc.Raw, *era.Revision, error) {
			whose = owner.From(ctx)
			return jsonrpc.Raw(`{}`), nil, nil
		}}
		w := serve(t, relayServer(t, f, nil))
		w.ask(modernFrame("1", "tools/call", `"name":"x"`))
		if len(f.closed) != 0 {
			t.Error(f.closed)
		}
		w.close()
		if len(f.closed) != 1 || f.closed[0] != whose.Text() || !whose.Exclusive() {
			t.Errorf("closed: %q; the owner was %v", f.closed, whose)
		}
	})
}

// A session that nothing was described to is one that the relay does not learn of; and
// it learns when the last call has ended, once.
func TestRelayClosed(t *testing.T) {
	f := &fakeRelay{}
	s := relayServer(t, f, nil)
	x := s.Accept(t.Context(), nil)
	x.Close()
	if len(f.closed) != 0 {
		t.Error(f.closed)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	f.forward = func(
		context.Context, *era.Revision, string, jsonrpc.Raw,
	) (jsonrpc.Raw, *era.Revision, error) {
		close(entered)
		<-release
		return jsonrpc.Raw("{}"), nil, nil
	}
	x = s.Accept(t.Context(), nil)
	id := jsonrpc.IntID(1)
	call := func(method, params string) error {
		_, err := x.ServeRPC(t.Context(),
			&farcall.Request{Method: method, Params: jsonrpc.Raw(params), ID: id})
		return err
	}
	if err := call("initialize", `{"protocolVersion":"2025-11-25","capabilities":{}}`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- call("tools/list", "{}") }()
	<-entered
	x.Close()
	x.Close()
	if got := f.take(&f.closed); len(got) != 0 {
		t.Error("while a call runs:", got)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := f.take(&f.closed); len(got) != 1 || len(got[0]) < 20 {
		t.Error("closed:", got)
	}
	if err := call("tools/list", "{}"); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Error(err)
	}
}

func TestRelayNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late context.Context
		f := &fakeRelay{forward: func(
			ctx context.Context, _ *era.Revision, _ string, _ jsonrpc.Raw,
		) (jsonrpc.Raw, *era.Revision, error) {
			late = ctx //nolint:fatcontext // on purpose: it is too late
			err := errors.Join(
				relay.Notify(ctx, "notifications/message", jsonrpc.Raw(`{"level":"debug","data":1}`)),
				relay.Notify(ctx, "notifications/message",
					jsonrpc.Raw(`{"level":"error","logger":"l","data":{ "a":2}}`)),
				relay.Notify(ctx, "notifications/progress",
					jsonrpc.Raw(`{"progressToken":"up-7","progress":1,"message":"m"}`)),
				relay.Notify(ctx, "notifications/com.example/x", jsonrpc.Raw(`{"b":3}`)),
			)
			if relay.Notify(ctx, "notifications/message", jsonrpc.Raw(`{"level":"loud"}`)) == nil ||
				relay.Notify(ctx, "notifications/message", nil) == nil {
				t.Error("messages without a level")
			}
			return jsonrpc.Raw(`{"resultType":"complete"}`), era.Latest(), err
		}}
		w := serve(t, relayServer(t, f, nil))
		if got := w.askAll(modernFrame("1", "tools/call", `"name":"x"`)); len(got) != 2 ||
			!strings.Contains(got[0], "com.example/x") {
			t.Error("nothing is wanted:", got)
		}
		got := w.askAll(modernFrameWith("2", "tools/call", `"name":"x"`, "{}",
			`,"io.modelcontextprotocol/logLevel":"info","progressToken":"p"`))
		want := []string{
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","logger":"l",` +
				`"data":{"a":2}}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"message":"m",` +
				`"progressToken":"p"}}`,
			`{"jsonrpc":"2.0","method":"notifications/com.example/x","params":{"b":3}}`,
		}
		wantFrames(t, "modern", got, want)
		w.open("2024-11-05")
		w.ask(legacyFrame("3", "logging/setLevel", `{"level":"debug"}`))
		got = w.askAll(legacyFrame("4", "tools/call", `{"name":"x","_meta":{"progressToken":8}}`))
		want[1] = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,` +
			`"progressToken":8}}`
		want = slices.Insert(want, 0,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":1}}`)
		wantFrames(t, "legacy", got, want)
		if err := relay.Notify(late, "notifications/progress",
			jsonrpc.Raw(`{"progress":2}`)); err != nil || len(w.rest()) != 0 {
			t.Error("late:", err)
		}
		if err := relay.Notify(t.Context(), "notifications/message", nil); err != nil {
			t.Error(err)
		}
		w.close()
	})
}

// wantFrames compares the first frames of got.
func wantFrames(t *testing.T, what string, got, want []string) {
	t.Helper()
	if len(got) < len(want) {
		t.Fatalf("%s: %d frames, want %d: %s", what, len(got), len(want), got)
	}
	for i, f := range want {
		wantJSON(t, what, got[i], f)
	}
}

// askAll sends a request and returns all that comes back.
func (w *wire) askAll(frame string) []string {
	w.t.Helper()
	w.send(frame)
	return w.rest()
}
