package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// Notifications go to OnNotice first, with what belongs to the call where that
// is known.
func TestForwardNotices(t *testing.T) {
	eachForwarder(t, func(t *testing.T, rev *era.Revision, over string) {
		var mu sync.Mutex
		var notices []string
		told := make(chan string, 100)
		c, _ := forwarder(t, chatty(), rev.Name, over, &ClientOptions{
			LogLevel: "info",
			OnNotice: func(ctx context.Context, method string, params jsonrpc.Raw) bool {
				mu.Lock()
				defer mu.Unlock()
				notices = append(notices, tagOf(ctx)+" "+method+" "+string(scan.Member(params, "data")))
				return !strings.Contains(string(params), `"i":9`)
			},
			OnLog: func(p *spec.LoggingMessageNotificationParams) { told <- string(p.Data) },
		})
		progress := 0
		raw, _, err := c.Forward(tagged(t.Context(), "A"), &relay.Forward{
			Method: "tools/call", Params: jsonrpc.Raw(`{"name":"chat"}`), LogLevel: "info",
			OnProgress: func(jsonrpc.Raw) { progress++ },
		})
		if err != nil || progress != 10 {
			t.Fatalf("%s, %v, %d reports", raw, err, progress)
		}
		if got := <-told; got != `{"i":9}` {
			t.Errorf("told %s", got)
		}
		mu.Lock()
		defer mu.Unlock()
		tag := ""
		if over == "http" {
			tag = "A"
		}
		for i, got := range notices {
			if want := fmt.Sprintf(`%s notifications/message {"i":%d}`, tag, i); got != want {
				t.Errorf("notice %q, want %q", got, want)
			}
		}
		if len(notices) != 10 || len(told) > 0 {
			t.Errorf("%d notices, told %d more", len(notices), len(told))
		}
	})
}

// Lists that have changed are listed again, no matter who takes the notification.
func TestNoticeOfChange(t *testing.T) {
	eachForwarder(t, func(t *testing.T, rev *era.Revision, over string) {
		changed, listening := make(chan string, 10), make(chan struct{}, 10)
		s := bothServer(t)
		want := ""
		if !rev.Handshake && over == "http" {
			want = "A"
		}
		c, _ := forwarder(t, s, rev.Name, over, &ClientOptions{
			OnNotice: func(ctx context.Context, method string, _ jsonrpc.Raw) bool {
				if got := tagOf(ctx); got != want {
					t.Errorf("%s came with %q, want %q", method, got, want)
				}
				changed <- method
				return true
			},
			OnListChanged: func(string) { t.Error("told what was taken") },
			OnListening:   func(spec.SubscriptionFilter) { listening <- struct{}{} },
		})
		if tools, err := c.Tools(t.Context()); err != nil || len(tools) != 3 {
			t.Fatal(tools, err)
		}
		ctx, cancel := context.WithCancel(tagged(t.Context(), "A"))
		ended := make(chan error, 1)
		go func() { ended <- c.Listen(ctx, spec.SubscriptionFilter{ToolsListChanged: true}) }()
		<-listening
		s.AddTool(Tool{Name: "later", InputSchema: []byte(`{"type":"object"}`)},
			func(context.Context, jsonrpc.Raw) (*ToolResult, error) {
				return &ToolResult{}, nil
			})
		for method := range changed {
			if method == spec.NotificationToolsListChanged {
				break
			}
		}
		if tools, err := c.Tools(t.Context()); err != nil || len(tools) != 4 {
			t.Error(tools, err)
		}
		cancel()
		<-ended
	})
}

// Notify says what the server can understand.
func TestNotify(t *testing.T) {
	for _, test := range []struct {
		all  replies
		want int
	}{{legacyFake(nil), 1}, {modernFake(nil), 0}} {
		c, f := mustPipe(t, test.all, nil)
		for _, n := range []struct{ method, params string }{
			{"notifications/roots/list_changed", ``},
			{"notifications/subscriptions/acknowledged", `{}`},
			{"x/y", `{"a":1}`},
		} {
			var params jsonrpc.Raw
			if n.params != "" {
				params = jsonrpc.Raw(n.params)
			}
			if err := c.Notify(t.Context(), n.method, params); err != nil {
				t.Error(err)
			}
		}
		// Notifications keep their order, and a call does not wait for them: calls go on until the last
		// has come.
		for tries := 0; f.last("x/y") == nil && tries < 1000; tries++ {
			if _, _, err := c.Forward(t.Context(), &relay.Forward{Method: "z"}); !errors.Is(err,
				jsonrpc.MethodNotFound) {
				t.Fatal(err)
			}
		}
		if got := f.count("notifications/roots/list_changed"); got != test.want ||
			f.last("x/y")["a"] != 1.0 {
			t.Errorf("%d, %v", got, f.got)
		}
		if f.count("notifications/subscriptions/acknowledged") == test.want {
			t.Errorf("%v", f.got)
		}
		c.Close()
		if err := c.Notify(t.Context(), "x/y", nil); !errors.Is(err, farcall.ErrNotSent) {
			t.Error(err)
		}
	}
}

// What a server sends on the first HTTP transport before it answers initialize, as every server on
// npm's mcp-proxy does, must not hold up the answer: not with OnNotice, which is called before it,
// and not with a callback that calls the server, which is called beside it.
func TestEarlyNotice(t *testing.T) {
	for _, kind := range []string{"OnNotice", "OnLog"} {
		out := make(chan string, 9)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/sse" && r.Method == http.MethodGet:
				w.Header().Set("Content-Type", "text/event-stream")
				early := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info",` +
					`"data":"hi"}}`
				_, _ = fmt.Fprintf(w, "event: endpoint\ndata: /m\n\ndata: %s\n\n", early)
				for {
					_ = http.NewResponseController(w).Flush()
					select {
					case frame := <-out:
						_, _ = fmt.Fprintf(w, "data: %s\n\n", frame)
					case <-r.Context().Done():
						return
					}
				}
			case r.URL.Path == "/m":
				var m struct {
					ID     jsonrpc.Raw `json:"id"`
					Method string      `json:"method"`
				}
				body, _ := io.ReadAll(r.Body)
				_ = jsonv2.Unmarshal(body, &m)
				w.WriteHeader(http.StatusAccepted)
				switch m.Method {
				case spec.MethodInitialize:
					out <- `{"jsonrpc":"2.0","id":` + string(m.ID) +
						`,"result":{"protocolVersion":"2024-11-05","capabilities":{"logging":{}},` +
						`"serverInfo":{"name":"s","version":"1"}}}`
				case spec.MethodPing:
					out <- `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{}}`
				}
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		told := make(chan error, 1)
		link := make(chan *Client, 1)
		o := &ClientOptions{}
		if kind == "OnLog" {
			o.OnLog = func(*spec.LoggingMessageNotificationParams) { told <- (<-link).Ping(t.Context()) }
		} else {
			o.OnNotice = func(context.Context, string, jsonrpc.Raw) bool { told <- nil; return true }
		}
		c := mustDial(t, server.URL+"/sse", o)
		link <- c
		if err := errors.Join(<-told, c.Ping(t.Context())); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		c.Close()
		server.Close()
	}
}
