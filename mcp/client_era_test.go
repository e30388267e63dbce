package mcp

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func unsupported(versions string) error {
	return &jsonrpc.Error{
		Code: -32022, Message: "Unsupported protocol version",
		Data: jsonrpc.Raw(`{"requested":"x","supported":` + versions + `}`),
	}
}

// silent never replies.
func silent(ctx context.Context, _ map[string]any) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestEraOverStreams(t *testing.T) {
	refuseOnce := func() any {
		first := true
		return do(func(context.Context, map[string]any) (any, error) {
			if first {
				first = false
				return nil, unsupported(`["2026-07-28"]`)
			}
			return modernFake(nil)["server/discover"], nil
		})
	}
	for _, test := range []struct {
		name   string
		era    string
		server replies
		want   string // a revision, or part of the error
		inits  int
	}{
		{name: "modern", server: modernFake(nil), want: revModern},
		{name: "modern refuses first", server: replies{"server/discover": refuseOnce()}, want: revModern},
		{name: "both", server: legacyFake(modernFake(nil)), want: revModern},
		{name: "legacy", server: legacyFake(nil), want: revLegacy, inits: 1},
		{
			name:   "legacy, another error",
			server: legacyFake(replies{"server/discover": jsonrpc.Errorf(-32600, "not initialized")}),
			want:   revLegacy, inits: 1,
		},
		{
			name: "legacy, an empty result", server: legacyFake(replies{"server/discover": `{}`}),
			want: revLegacy, inits: 1,
		},
		{
			name: "legacy, silent", server: legacyFake(replies{"server/discover": do(silent)}),
			want: revLegacy, inits: 1,
		},
		{
			name:   "legacy, with its own -32022",
			server: legacyFake(replies{"server/discover": jsonrpc.Errorf(-32022, "what?")}), want: revLegacy,
			inits: 1,
		},
		{
			name:   "modern, never initialize",
			server: legacyFake(replies{"server/discover": unsupported(`["2099-01-01"]`)}),
			want:   "the server speaks 2099-01-01 and this client may speak 2026-07-28, 2025-11-25",
		},
		{
			name:   "modern that names a legacy revision",
			server: legacyFake(replies{"server/discover": unsupported(`["2099-01-01","2025-11-25"]`)}),
			want:   revLegacy, inits: 1,
		},
		{
			name:   "missing capability",
			server: legacyFake(replies{"server/discover": jsonrpc.Errorf(-32021, "sampling needed")}),
			want:   "sampling needed",
		},
		{
			name: "pinned to modern", era: "modern", server: legacyFake(nil),
			want: "the server is not modern",
		},
		{
			name: "pinned to legacy", era: "legacy", server: legacyFake(modernFake(nil)), want: revLegacy,
			inits: 1,
		},
		{
			name: "pinned to one", era: "2025-06-18", server: legacyFake(nil),
			want: `the server speaks "2025-11-25" and this client may speak 2025-06-18`, inits: 1,
		},
		{
			name: "unknown pin", era: "2020-01-01", server: modernFake(nil),
			want: `unknown MCP revision "2020-01-01"`,
		},
		{
			name: "older",
			server: replies{
				"initialize": `{"protocolVersion":"2024-11-05","serverInfo":{"name":"old","version":"0"},` +
					`"capabilities":{}}`,
			}, want: "2024-11-05", inits: 1,
		},
		{
			name: "unknown revision",
			server: replies{
				"initialize": `{"protocolVersion":"1999-01-01","serverInfo":{"name":"old","version":"0"},` +
					`"capabilities":{}}`,
			}, want: `the server speaks "1999-01-01"`, inits: 1,
		},
		{name: "neither", server: replies{}, want: "the server is not modern", inits: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, f, err := pipeFake(t, test.server, &ClientOptions{Era: test.era})
				switch {
				case err != nil && !strings.Contains(err.Error(), test.want):
					t.Errorf("error %v, want %q", err, test.want)
				case err == nil && c.Server().Revision != test.want:
					t.Errorf("revision %s, want %s", c.Server().Revision, test.want)
				}
				if n := f.count("initialize"); n != test.inits {
					t.Errorf("%d times initialize, want %d", n, test.inits)
				}
				synctest.Wait()
				if n := f.count("notifications/initialized"); err == nil && n != test.inits {
					t.Errorf("%d times initialized, want %d", n, test.inits)
				}
			})
		})
	}
}

// A server of both eras that is slow to start gets both handshakes and answers both.
func TestEraSlowStartOfBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(answer any) any {
			start := time.Now().Add(4 * time.Second)
			return do(func(ctx context.Context, _ map[string]any) (any, error) {
				wait(ctx, time.Until(start))
				return answer, nil
			})
		}
		both := legacyFake(modernFake(nil))
		for _, method := range []string{"server/discover", "initialize"} {
			both[method] = late(both[method])
		}
		c, f := mustPipe(t, both, nil)
		if got := c.Server().Revision; got != revModern || f.count("initialize") != 1 {
			t.Errorf("revision %s, %d times initialize", got, f.count("initialize"))
		}
	})
}

// A modern server that is slow to start gets both handshakes and refuses one.
func TestEraSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := mustPipe(t, replies{
			"server/discover": do(func(ctx context.Context, _ map[string]any) (any, error) {
				wait(ctx, 5*time.Second)
				return modernFake(nil)["server/discover"], nil
			}),
			"initialize": do(func(ctx context.Context, _ map[string]any) (any, error) {
				wait(ctx, 4*time.Second)
				return nil, jsonrpc.Errorf(-32602, "modern only")
			}),
		}, nil)
		if got := c.Server().Revision; got != revModern {
			t.Errorf("revision %s", got)
		}
	})
}

func wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

func TestServerInfo(t *testing.T) {
	c, f := mustPipe(t, modernFake(nil), &ClientOptions{Name: "me", Version: "3"})
	info := c.Server()
	if info.Name != "fake" || info.Instructions != "be nice" || info.Capabilities.Tools == nil ||
		info.Supported[0] != revModern {
		t.Errorf("info %+v", info)
	}
	meta, _ := f.last("server/discover")["_meta"].(map[string]any)
	if who, _ := meta["io.modelcontextprotocol/clientInfo"].(map[string]any); who["name"] != "me" ||
		who["version"] != "3" {
		t.Errorf("_meta %v", meta)
	}
	if meta["io.modelcontextprotocol/protocolVersion"] != revModern ||
		meta["io.modelcontextprotocol/clientCapabilities"] == nil {
		t.Errorf("_meta %v", meta)
	}
}

func TestEraOverHTTP(t *testing.T) {
	isDiscover := func(body []byte) bool { return strings.Contains(string(body), `"server/discover"`) }
	status := func(
		code int, contentType, text string,
	) func(*fakeServer, http.ResponseWriter, *http.Request, []byte) bool {
		return func(_ *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool {
			if !isDiscover(body) {
				return false
			}
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			w.Write([]byte(text))
			return true
		}
	}
	once := 0
	for _, test := range []struct {
		name   string
		server replies
		gate   func(*fakeServer, http.ResponseWriter, *http.Request, []byte) bool
		want   string
	}{
		{name: "modern", server: modernFake(nil), want: revModern},
		{
			name: "legacy, 400 with text", server: legacyFake(nil),
			gate: status(400, "text/plain", "Bad Request: no session"), want: revLegacy,
		},
		{
			name: "legacy, 400 with its own error", server: legacyFake(nil),
			gate: status(400, "application/json",
				`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not `+
					`initialized"}}`), want: revLegacy,
		},
		{
			name: "legacy, 404", server: legacyFake(nil), gate: status(404, "text/html", "<p>"),
			want: revLegacy,
		},
		{
			name: "legacy, an answer like any", server: legacyFake(replies{"server/discover": `{}`}),
			want: revLegacy,
		},
		{
			name: "legacy, no answer in the stream", server: legacyFake(nil),
			gate: status(200, "text/event-stream", ": hi\n\n"), want: revLegacy,
		},
		{
			name: "503", server: legacyFake(nil), gate: status(503, "text/plain", "later"),
			want: "HTTP status 503",
		},
		{
			name: "legacy, hangs up", server: legacyFake(nil), want: revLegacy,
			gate: func(_ *fakeServer, _ http.ResponseWriter, _ *http.Request, body []byte) bool {
				if isDiscover(body) {
					panic(http.ErrAbortHandler)
				}
				return false
			},
		},
		{
			name: "hangs up always", server: replies{},
			want: `connect: initialize: farcall: call "initialize": mcphttp: cannot reach the server`,
			gate: func(*fakeServer, http.ResponseWriter, *http.Request, []byte) bool {
				panic(http.ErrAbortHandler)
			},
		},
		{
			name: "401", server: legacyFake(nil), gate: status(401, "text/plain", "who are you"),
			want: "HTTP status 401",
		},
		{
			name: "modern, no revision in common", server: legacyFake(nil),
			gate: status(400, "application/json",
				`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no",`+
					`"data":{"supported":["2099-01-01"],"requested":"2026-07-28"}}}`),
			want: "the server speaks 2099-01-01",
		},
		{
			name: "modern, refuses first", server: modernFake(nil), want: revModern,
			gate: func(f *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool {
				if once++; once > 1 {
					return false
				}
				return status(400, "application/json",
					`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no",`+
						`"data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}}`)(f, w, r, body)
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, url := httpFake(t, test.server, test.gate)
			c, err := Dial(t.Context(), url, nil)
			if err != nil {
				if !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %v, want %q", err, test.want)
				}
				return
			}
			defer c.Close()
			if got := c.Server().Revision; got != test.want {
				t.Errorf("revision %s, want %s", got, test.want)
			}
			f.set("ping", `{}`)
			if err := c.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if h := f.headers[len(f.headers)-1]; h.Get("Mcp-Protocol-Version") != test.want {
				t.Errorf("headers %v", h)
			}
		})
	}
}

func TestDialNobody(t *testing.T) {
	for _, target := range []string{
		"http://127.0.0.1:1/mcp", "ws://127.0.0.1:1/", "tcp://127.0.0.1:1",
		"unix:/nowhere/at/all", "ftp://x", "::",
	} {
		if c, err := Dial(t.Context(), target, nil); err == nil {
			c.Close()
			t.Errorf("%s: no error", target)
		}
	}
}
