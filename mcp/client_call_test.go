package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func metaOf(params map[string]any) map[string]any {
	meta, _ := params["_meta"].(map[string]any)
	return meta
}

func TestCallMeta(t *testing.T) {
	c, f := mustPipe(t, modernFake(replies{"x/y": `{"resultType":"complete","n":1}`}), &ClientOptions{
		LogLevel: "info", Tasks: true,
		Extensions: map[string]any{"com.example/x": map[string]any{"a": 1}},
		Roots:      func(context.Context) ([]spec.Root, error) { return nil, nil },
	})
	var got struct {
		N int `json:"n"`
	}
	params := jsonrpc.Raw(
		`{"a":1.50,"_meta":{"mine":true,"io.modelcontextprotocol/logLevel":"error",` +
			`"io.modelcontextprotocol/protocolVersion":"1"}}`)
	if err := c.Request(
		farcall.WithTrace(t.Context(),
			farcall.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}), "x/y", params,
		&got); err != nil || got.N != 1 {
		t.Fatal(got, err)
	}
	want := map[string]any{
		"mine": true, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		spec.MetaProtocolVersion: revModern, spec.MetaLogLevel: "error",
		spec.MetaClientInfo: map[string]any{"name": "farcall", "version": "0"},
		spec.MetaClientCapabilities: map[string]any{
			"roots": map[string]any{},
			"extensions": map[string]any{
				"com.example/x":     map[string]any{"a": 1.0},
				spec.ExtensionTasks: map[string]any{},
			},
		},
	}
	if meta := metaOf(f.last("x/y")); !reflect.DeepEqual(meta, want) {
		t.Errorf("_meta %v\nwant %v", meta, want)
	}
	if err := c.SetLogLevel(t.Context(), "debug"); err != nil {
		t.Fatal(err)
	}
	if err := c.Request(t.Context(), "x/y", nil, nil); err != nil {
		t.Fatal(err)
	}
	if meta := metaOf(f.last("x/y")); meta[spec.MetaLogLevel] != "debug" {
		t.Errorf("_meta %v", meta)
	}
	if err := c.SetLogLevel(t.Context(), "loud"); err == nil {
		t.Error("no error for an unknown level")
	}
}

func TestCallLegacy(t *testing.T) {
	c, f := mustPipe(t, legacyFake(replies{
		"tools/call":       `{"content":[{"type":"text","text":"hi"}]}`,
		"resources/read":   jsonrpc.Errorf(-32002, "not found"),
		"logging/setLevel": `{}`,
	}), &ClientOptions{LogLevel: "info"})
	r, err := c.CallTool(t.Context(), "x", nil)
	if err != nil || r.Content[0].Text != "hi" {
		t.Fatal(r, err)
	}
	if meta := metaOf(f.last("tools/call")); meta[spec.MetaProtocolVersion] != nil ||
		meta["progressToken"] == nil {
		t.Errorf("_meta %v", meta)
	}
	if _, err := c.Read(t.Context(), "file:///x"); !errors.Is(err, jsonrpc.InvalidParams) {
		t.Errorf("error %v, want the code of the newest revision", err)
	}
	if err := c.SetLogLevel(t.Context(), "error"); err != nil ||
		f.last("logging/setLevel")["level"] != "error" {
		t.Error(err, f.last("logging/setLevel"))
	}
}

func TestCallParams(t *testing.T) {
	c, _ := mustPipe(t, modernFake(replies{"x": `{}`}), nil)
	for _, bad := range []any{jsonrpc.Raw(`[1]`), jsonrpc.Raw(`{`), 3, func() {}} {
		if err := c.Request(t.Context(), "x", bad, nil); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
	for _, good := range []any{
		nil, jsonrpc.Raw(nil), jsonrpc.Raw(`null`), jsonrpc.Raw(` {}`),
		struct{}{},
		map[string]int{"a": 1},
	} {
		if err := c.Request(t.Context(), "x", good, nil); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
}

func confirm(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
	return &spec.ElicitResult{
		Action:  "accept",
		Content: jsonrpc.Raw(`{"said":` + string(jsonrpc.AppendString(nil, p.Message)) + `}`),
	}, nil
}

const anyForm = `"requestedSchema":{"type":"object","properties":{"said":{"type":"string"}}}`

// The state goes back as it came, byte by byte, and only into the retry.
func TestRounds(t *testing.T) {
	const state = `"\u0061\/b=="`
	var raws []string
	var f *fakeServer
	c, f := mustPipe(t, modernFake(replies{
		"tools/call": do(func(_ context.Context, p map[string]any) (any, error) {
			f.mu.Lock()
			raws = append(raws, f.got[len(f.got)-1])
			f.mu.Unlock()
			switch p["inputResponses"] {
			case nil:
				return `{"resultType":"input_required","requestState":` + state + `,"inputRequests":{
					"b":{"method":"elicitation/create","params":{"message":"B",` + anyForm + `}},
					"a":{"method":"elicitation/create","params":{"message":"A",` + anyForm + `}},
					"r":{"method":"roots/list"}}}`, nil
			}
			return `{"content":[{"type":"text","text":"done"}]}`, nil
		}),
	}), &ClientOptions{
		Elicit: confirm,
		Roots: func(context.Context) ([]spec.Root, error) {
			return []spec.Root{{URI: "file:///r"}}, nil
		},
	})
	got, err := CallTool[string](t.Context(), c, "x", map[string]int{"n": 1})
	if err != nil || got != "done" {
		t.Fatal(got, err)
	}
	if len(raws) != 2 || strings.Contains(raws[0], "requestState") ||
		!strings.Contains(raws[1], `"requestState":`+state) {
		t.Fatalf("requests %q", raws)
	}
	want := map[string]any{
		"a": map[string]any{"action": "accept", "content": map[string]any{"said": "A"}},
		"b": map[string]any{"action": "accept", "content": map[string]any{"said": "B"}},
		"r": map[string]any{"roots": []any{map[string]any{"uri": "file:///r"}}},
	}
	params := f.last("tools/call")
	if !reflect.DeepEqual(params["inputResponses"], want) ||
		!reflect.DeepEqual(params["arguments"], map[string]any{"n": 1.0}) {
		t.Errorf("params %v", params)
	}
}

// What one round brought does not stay in the next.
func TestRoundsState(t *testing.T) {
	n := 0
	c, f := mustPipe(t,
		modernFake(replies{"prompts/get": do(func(_ context.Context, p map[string]any) (any, error) {
			switch n++; n {
			case 1:
				return `{"resultType":"input_required","requestState":"one"}`, nil
			case 2:
				if p["requestState"] != "one" || p["inputResponses"] != nil {
					t.Errorf("params %v", p)
				}
				return `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create",` +
					`"params":{"message":"?",` + anyForm + `}}}}`, nil
			}
			if p["requestState"] != nil || p["inputResponses"] == nil {
				t.Errorf("params %v", p)
			}
			return `{"resultType":"complete","messages":[]}`, nil
		})}), &ClientOptions{Elicit: confirm})
	if _, err := c.Prompt(t.Context(), "p", nil); err != nil || f.count("prompts/get") != 3 {
		t.Error(err)
	}
}

func TestRoundsRefused(t *testing.T) {
	ask := func(method string) string {
		return `{"resultType":"input_required","inputRequests":{"k":{"method":"` + method +
			`","params":{"message":"?",` + anyForm + `}}}}`
	}
	failing := errors.New("no user")
	for _, test := range []struct {
		name, method, answer string
		elicit               func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error)
		want                 string
		times                int
	}{
		{"unknown type", "tools/call", `{"resultType":"surprise"}`, nil, `unknown type "surprise"`, 1},
		{"a type that is no string", "tools/call", `{"resultType":1}`, nil, `unknown type "1"`, 1},
		{
			"a task without the extension", "resources/read", `{"resultType":"task","taskId":"1"}`, nil,
			`unknown type "task"`, 1,
		},
		{
			"nothing asked", "tools/call", `{"resultType":"input_required"}`, nil,
			"does not say for what", 1,
		},
		{
			"not in this method", "tools/list", ask("elicitation/create"), confirm,
			"may not in this method", 1,
		},
		{"without end", "tools/call", ask("elicitation/create"), confirm, "ClientOptions.MaxRounds", 4},
		{
			"no callback", "tools/call", ask("elicitation/create"), nil,
			`does not offer "elicitation/create"`, 1,
		},
		{"another method", "tools/call", ask("tools/call"), confirm, `does not offer "tools/call"`, 1},
		{
			"callback fails", "tools/call", ask("elicitation/create"),
			func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				return nil, failing
			}, "no user", 1,
		},
		{
			"callback panics", "tools/call", ask("elicitation/create"),
			func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				panic("ouch")
			}, "panicked: ouch", 1,
		},
		{
			"callback returns nothing", "tools/call", ask("elicitation/create"),
			func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				return nil, nil
			}, "neither a result nor an error", 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := mustPipe(t, modernFake(replies{test.method: test.answer}),
				&ClientOptions{Elicit: test.elicit, MaxRounds: 3})
			err := c.Request(t.Context(), test.method, jsonrpc.Raw(`{"name":"x"}`), nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if n := f.count(test.method); n != test.times {
				t.Errorf("called %d times, want %d", n, test.times)
			}
		})
	}
}

func TestElicitation(t *testing.T) {
	const form = `{"message":"m","requestedSchema":{"type":"object","properties":{
		"name":{"type":"string","default":"John"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
		"ok":{"type":"boolean","default":true},"status":{"type":"string","enum":["a","b"],"default":"a"},"free":{"type":"string"}},"required":["name"]}}`
	answer := func(action, content string) *spec.ElicitResult {
		r := &spec.ElicitResult{Action: action}
		if content != "" {
			r.Content = jsonrpc.Raw(content)
		}
		return r
	}
	for _, test := range []struct {
		name, params string
		answer       *spec.ElicitResult
		want         string // JSON, or part of the error
	}{
		{
			"defaults", form, answer("accept", `{}`),
			`{"action":"accept","content":{"age":30,"name":"John","ok":true,"score":95.5,"status":"a"}}`,
		},
		{
			"nothing filled in", form, answer("accept", ""),
			`{"action":"accept","content":{"age":30,"name":"John","ok":true,"score":95.5,"status":"a"}}`,
		},
		{
			"some", form, answer("accept", `{"age":0,"name":"","free":"x"}`),
			`{"action":"accept","content":{"age":0,"name":"","free":"x","ok":true,"score":95.5,` +
				`"status":"a"}}`,
		},
		{"decline", form, answer("decline", `{"age":1}`), `{"action":"decline"}`},
		{"cancel", form, answer("cancel", ""), `{"action":"cancel"}`},
		{"unknown action", form, answer("maybe", ""), "accept, decline or cancel"},
		{"does not fit", form, answer("accept", `{"age":"old"}`), "does not fit the form"},
		{
			"url", `{"mode":"url","message":"m","url":"https://x.example","elicitationId":"1"}`,
			answer("accept", `{"a":1}`), `{"action":"accept"}`,
		},
		{"unknown mode", `{"mode":"dance","message":"m"}`, answer("accept", ""), `mode "dance"`},
		{
			"bad schema", `{"message":"m","requestedSchema":{"type":5}}`, answer("accept", ""),
			"requested schema is not valid",
		},
		{
			"unsupported schema",
			`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string",` +
				`"pattern":"(?!x)"}}}}`, answer("accept", `{"a":"y"}`),
			`{"action":"accept","content":{"a":"y"}}`,
		},
		{
			"partly unsupported schema",
			`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string",` +
				`"pattern":"(?!x)"}}}}`, answer("accept", `{"a":1}`), "does not fit the form",
		},
		{"bad params", `{"message":5}`, answer("accept", ""), "Invalid params"},
	} {
		for _, rev := range []string{"modern", "legacy"} {
			t.Run(test.name+" "+rev, func(t *testing.T) {
				o := &ClientOptions{Elicit: func(
					context.Context, *spec.ElicitRequestParams,
				) (*spec.ElicitResult, error) {
					return test.answer, nil
				}}
				got, err := elicitIn(t, rev, test.params, o)
				if err != nil {
					if !strings.Contains(err.Error(), test.want) &&
						(rev != "legacy" || !strings.Contains(err.Error(), "Internal error")) {
						t.Errorf("error %v, want %q", err, test.want)
					}
					return
				}
				var want any
				if json.Unmarshal([]byte(test.want), &want) != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("answer %v, want %s", got, test.want)
				}
			})
		}
	}
}

// elicitIn lets a server elicit and returns what it got.
func elicitIn(t *testing.T, rev, params string, o *ClientOptions) (any, error) {
	t.Helper()
	if rev == "legacy" {
		_, f := mustPipe(t, legacyFake(nil), o)
		got, err := farcall.Call[any](t.Context(), f.peer, "elicitation/create", jsonrpc.Raw(params))
		return got, err
	}
	var got any
	c, _ := mustPipe(t,
		modernFake(replies{"tools/call": do(func(_ context.Context, p map[string]any) (any, error) {
			if r, ok := p["inputResponses"].(map[string]any); ok {
				got = r["k"]
				return `{"content":[]}`, nil
			}
			return `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create",` +
				`"params":` + params + `}}}`, nil
		})}), o)
	_, err := c.CallTool(t.Context(), "x", nil)
	return got, err
}

// A modern server cannot ask by its own request, a legacy one can ping.
func TestServerRequests(t *testing.T) {
	_, f := mustPipe(t, modernFake(nil), &ClientOptions{Elicit: confirm})
	if err := f.peer.Call(t.Context(), "elicitation/create", nil, nil); !errors.Is(err,
		jsonrpc.MethodNotFound) {
		t.Errorf("error %v", err)
	}
	_, f = mustPipe(t, legacyFake(nil), nil)
	if err := f.peer.Call(t.Context(), "ping", nil, nil); err != nil {
		t.Error(err)
	}
	if err := f.peer.Call(t.Context(), "sampling/createMessage", jsonrpc.Raw(`{}`),
		nil); !errors.Is(err, jsonrpc.MethodNotFound) {
		t.Errorf("error %v", err)
	}
}

func TestTimeouts(t *testing.T) {
	working := func(every, all time.Duration) any {
		return do(func(ctx context.Context, _ map[string]any) (any, error) {
			for range int(all / every) {
				wait(ctx, every)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				farcall.Progress(ctx, jsonrpc.Raw(`{"progress":1}`))
			}
			return `{"content":[{"type":"text","text":"slow"}]}`, nil
		})
	}
	for _, test := range []struct {
		name string
		call any
		o    ClientOptions
		want string // part of the error
		took time.Duration
	}{
		{"default", do(silent), ClientOptions{}, "ClientOptions.Timeout", time.Minute},
		{
			"progress", working(time.Second, 5*time.Second),
			ClientOptions{Timeout: 2 * time.Second},
			"",
			5 * time.Second,
		},
		{
			"no progress in time", working(3*time.Second, 6*time.Second),
			ClientOptions{Timeout: 2 * time.Second},
			"ClientOptions.Timeout", 2 * time.Second,
		},
		{
			"progress without end", working(time.Second, time.Hour),
			ClientOptions{Timeout: 2 * time.Second, MaxTimeout: 30 * time.Second},
			"ClientOptions.MaxTimeout", 30 * time.Second,
		},
		{
			"unbounded", working(time.Hour, 3*time.Hour),
			ClientOptions{Timeout: -1, MaxTimeout: -1},
			"",
			3 * time.Hour,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, f := mustPipe(t, modernFake(replies{"tools/call": test.call}), &test.o)
				begun := time.Now()
				_, err := c.CallTool(t.Context(), "x", nil)
				if took := time.Since(begun); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				if test.want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %v, want %q", err, test.want)
				}
				synctest.Wait()
				if f.peer.Stats().InFlight != 0 {
					t.Error("the server was not told")
				}
			})
		})
	}
}

// The time does not run while a callback asks a person.
func TestTimeoutWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fakeServer
		c, f := mustPipe(t,
			legacyFake(replies{"tools/call": do(func(ctx context.Context, _ map[string]any) (any, error) {
				return `{"content":[]}`,
					f.peer.Call(ctx, "elicitation/create", jsonrpc.Raw(`{"message":"m",`+anyForm+`}`), nil)
			})}),
			&ClientOptions{Elicit: func(
				ctx context.Context, p *spec.ElicitRequestParams,
			) (*spec.ElicitResult, error) {
				wait(ctx, 5*time.Minute)
				return confirm(ctx, p)
			}})
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Error(err)
		}
	})
}

// Progress comes in order and before the call returns; f may call back.
func TestOnProgress(t *testing.T) {
	const n = 200
	c, _ := mustPipe(t, modernFake(replies{
		"tools/call": do(func(ctx context.Context, _ map[string]any) (any, error) {
			for i := range n {
				farcall.Progress(ctx, map[string]any{"progress": i, "total": n, "message": "m"})
			}
			return `{"content":[]}`, nil
		}),
		"echo": `{}`,
	}), nil)
	var got []float64
	ctx := OnProgress(t.Context(), func(p spec.ProgressNotificationParams) {
		if len(got)%50 == 0 {
			if err := c.Request(t.Context(), "echo", nil, nil); err != nil {
				t.Error(err)
			}
		}
		got = append(got, p.Progress)
	})
	if _, err := c.CallTool(ctx, "x", nil); err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if v != float64(i) {
			t.Fatalf("report %d is %v", i, v)
		}
	}
	if len(got) != n {
		t.Errorf("%d reports, want %d", len(got), n)
	}
	var warn warnings
	c.opts.OnWarning = warn.add
	ctx = OnProgress(t.Context(), func(spec.ProgressNotificationParams) { panic("ouch") })
	if _, err := c.CallTool(ctx, "x", nil); err != nil || !strings.Contains(warn.text(), "ouch") {
		t.Error(err, warn.text())
	}
}

// One bad message never ends the connection.
func TestBadMessages(t *testing.T) {
	mine, theirs := farcall.Pipe()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for {
			frame, err := theirs.Read()
			if err != nil {
				return
			}
			for _, bad := range []string{
				"{", "nonsense", `{"jsonrpc":"2.0"}`,
				`{"jsonrpc":"2.0","id":77,"result":1}`, `[]`,
				`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":5}}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{}}}`,
			} {
				theirs.Write([]byte(bad))
			}
			var m struct {
				ID     int
				Method string
			}
			json.Unmarshal(frame, &m)
			id, _ := json.Marshal(m.ID)
			if m.Method == "server/discover" {
				theirs.Write(
					[]byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + strings.Join(strings.Fields(modernFake(nil)["server/discover"].(string)), " ") + `}`))
			} else if m.Method != "" {
				theirs.Write([]byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":{"ok":true}}`))
			}
		}
	})
	var warn warnings
	c, err := Connect(t.Context(), mine,
		&ClientOptions{OnWarning: warn.add, OnLog: func(*spec.LoggingMessageNotificationParams) {
			t.Error("delivered")
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 5 {
		if err := c.Request(t.Context(), "x", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
}
