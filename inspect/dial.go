package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/apps"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/rpc"
	"github.com/farcall-dev/farcall/stream"
)

// A dialed is a connection that was made.
type dialed struct {
	mcp      *mcp.Client
	rpc      farcall.Caller
	closer   func() error
	protocol string
	note     string // why it is not MCP
}

// dial connects in the protocol of a server, and sets the path that it is reached at.
func (x *slot) dial(ctx context.Context, s *Server) (l dialed, err error) {
	if s.Protocol != protocolRPC {
		client, err := x.dialMCP(ctx, s)
		if err == nil {
			return dialed{mcp: client, closer: client.Close, protocol: protocolMCP}, nil
		}
		if s.Protocol == protocolMCP || s.InProcess != nil || ctx.Err() != nil || unreachable(err) {
			return l, err
		}
		l.note = "It does not speak MCP (" + err.Error() + "), so JSON-RPC is spoken."
	}
	root := s.root()
	caller, err := x.dialRPC(ctx, s, s.Protocol != protocolRPC || root != nil)
	if err != nil && root != nil {
		if at, failed := x.dialRPC(ctx, root, true); failed == nil {
			caller, err, s.Target = at, nil, root.Target
		}
	}
	switch {
	case err != nil && l.note != "":
		return dialed{}, fmt.Errorf("neither MCP nor JSON-RPC is spoken: %s; %w",
			strings.TrimSuffix(l.note, ", so JSON-RPC is spoken."), err)
	case err != nil:
		return dialed{}, err
	}
	l.rpc, l.closer, l.protocol = caller, caller.Close, protocolRPC
	return l, nil
}

// root returns the server at the path / of an address without one, where other programs serve
// JSON-RPC; nil: the address has a path, or needs none.
func (s *Server) root() *Server {
	t, err := s.target()
	if err != nil || t == nil || t.URL == nil || t.URL.Path != "" || t.Queue() {
		return nil
	}
	at := *s
	t.DefaultPath("/")
	at.Target = t.URL.String()
	return &at
}

// unreachable reports whether an error says that there is no server to speak with.
func unreachable(err error) bool {
	var start *exec.Error
	return errors.As(err, &start) || strings.Contains(err.Error(), "connection refused") ||
		strings.Contains(err.Error(), "no such host")
}

// dialMCP connects over any transport.
func (x *slot) dialMCP(ctx context.Context, s *Server) (*mcp.Client, error) {
	o := x.clientOptions(s)
	t, err := s.target()
	switch {
	case err != nil:
		return nil, err
	case t != nil && t.Kind == target.HTTP:
		t.DefaultPath("/mcp")
		if o.HTTP.Authorize, err = x.authorizer(s, t.URL.String()); err != nil {
			return nil, err
		}
		o.HTTP.HTTP = x.client(s)
		c, err := mcp.Dial(ctx, t.URL.String(), o)
		return x.capture(c, err)
	}
	dial := func(ctx context.Context) (farcall.Transport, error) {
		return x.reach(ctx, s, "/mcp", "mcp")
	}
	tr, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	o.Redial = dial
	return x.capture(mcp.Connect(ctx, tr, o))
}

// capture has the results of calls kept as they are.
func (x *slot) capture(c *mcp.Client, err error) (*mcp.Client, error) {
	if err != nil {
		return nil, err
	}
	c.Use(func(next mcp.Handler) mcp.Handler {
		return func(ctx context.Context, r *mcp.Request) (*mcp.Response, error) {
			resp, err := next(ctx, r)
			if resp == nil {
				return nil, err
			}
			raw := resp.Raw()
			if into, ok := ctx.Value(resultKey{}).(*jsonrpc.Raw); ok {
				*into = raw
			}
			if t := scan.Member(raw, "task"); t != nil {
				raw = t
			}
			x.tellTask(callOf(ctx), scan.StringMember(raw, "taskId"),
				scan.StringMember(raw, "status"), scan.StringMember(raw, "statusMessage"))
			return resp, err
		}
	})
	return c, nil
}

type resultKey struct{}

// tellTask reports the state of a task. What has no id is none.
func (x *slot) tellTask(call, id, status, text string) {
	if id != "" && len(id) <= maxEventText {
		x.i.events.add(eventTask, x.id, call, map[string]string{
			"id": id, "status": shorten(status, 40), "text": shorten(text, 2000),
		})
	}
}

// clientOptions are those of every MCP connection.
func (x *slot) clientOptions(s *Server) *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Name: "farcall-inspect", Version: x.i.opts.Version, Era: s.Era,
		Timeout: -1, MaxTimeout: -1, NoCache: true, LogLevel: "debug", Tasks: true,
		Capabilities: &spec.ClientCapabilities{
			Elicitation: &spec.ElicitationCapability{Form: spec.JSONObject{}, URL: spec.JSONObject{}},
			Sampling:    &spec.SamplingCapability{Tools: spec.JSONObject{}},
			Roots:       &spec.RootsCapability{ListChanged: true},
			Extensions: map[string]any{
				apps.Extension: map[string]any{"mimeTypes": []string{apps.MIMEType}},
			},
		},
		Ask:   x.asked,
		OnLog: func(p *spec.LoggingMessageNotificationParams) { x.tell(eventLog, logView(p)) },
		OnListChanged: func(kind string) {
			x.forget(kind)
			x.tell(eventChanged, kind)
		},
		OnResourceUpdated: func(uri string) { x.tell(eventUpdated, shorten(uri, 2000)) },
		OnTask: func(t *spec.DetailedTask) {
			x.tellTask("", t.TaskID, t.Status, t.StatusMessage)
		},
		OnSessionLost: func() {
			x.tell(eventWarning, "The server had ended the session; this is a new one.")
		},
		OnWarning: func(err error) { x.tell(eventWarning, shorten(err.Error(), maxEventText)) },
		Trace:     x.log,
		HTTP:      &mcphttp.DialOptions{HTTP: s.HTTP, Header: s.Header, Authorize: s.Authorize},
		RPC:       &farcall.Options{Logger: x.i.opts.Logger, OnClose: x.lost},
	}
}

// asked answers what a server asks.
func (x *slot) asked(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
	if method != spec.MethodRootsList {
		return x.i.ask(ctx, questionView{Conn: x.id, Method: method, Params: params})
	}
	x.mu.Lock()
	roots := x.roots
	x.mu.Unlock()
	return marshal(map[string]any{"roots": append([]mcp.Root{}, roots...)})
}

// dialRPC connects in JSON-RPC. With probe it fails when nothing is answered: an answer, be it an
// error, shows that JSON-RPC is spoken.
func (x *slot) dialRPC(ctx context.Context, s *Server, probe bool) (c *rpc.Client, err error) {
	o := &rpc.Options{
		Handler: farcall.HandlerFunc(x.serveRPC),
		Header:  s.Header,
		RPC:     &farcall.Options{Logger: x.i.opts.Logger, OnClose: x.lost},
	}
	t, err := s.target()
	switch {
	case err != nil:
		return nil, err
	case t != nil && t.Kind == target.HTTP:
		t.DefaultPath("")
		o.HTTP = x.logged(s)
		c, err = rpc.Dial(ctx, t.URL.String(), o)
	default:
		c, err = rpc.NewClient(ctx, func(ctx context.Context) (farcall.Transport, error) {
			return x.link(ctx, s, "")
		}, o)
	}
	if err != nil || !probe {
		return c, err
	}
	var doc jsonrpc.Raw
	var answered *jsonrpc.Error
	if err = c.Call(ctx, discover, nil, &doc); err != nil && !errors.As(err, &answered) {
		_ = c.Close() // the error counts
		return nil, err
	}
	return c, nil
}

// logged returns a client of HTTP with its requests in the traffic.
func (x *slot) logged(s *Server) *http.Client {
	client := x.client(s)
	client.Transport = x.log.RoundTripper(client.Transport)
	return client
}

// link is reach with the frames in the traffic.
func (x *slot) link(ctx context.Context, s *Server, path string, subprotocols ...string) (
	farcall.Transport, error,
) {
	t, err := x.reach(ctx, s, path, subprotocols...)
	if err != nil {
		return nil, err
	}
	return x.log.Transport(t), nil
}

// serveRPC shows the pages what a JSON-RPC server calls, and answers as they say.
// Notifications are in the traffic.
func (x *slot) serveRPC(ctx context.Context, r *farcall.Request) (any, error) {
	if r.IsNotification() {
		return nil, nil //nolint:nilnil // there is no answer
	}
	return x.i.ask(ctx, questionView{Conn: x.id, Method: r.Method, Params: r.Params})
}

// reach connects with a server that is not reached over HTTP. path is that of a WebSocket without
// one, and subprotocols what it offers.
func (x *slot) reach(ctx context.Context, s *Server, path string, subprotocols ...string) (
	t farcall.Transport, err error,
) {
	switch {
	case s.Dial != nil:
		t, err = s.Dial(ctx)
	case s.InProcess != nil:
		near, far := farcall.Pipe()
		x.i.tasks.Go(func() { _ = s.InProcess.Serve(x.i.ctx, far) }) // ends with the connection
		t = near
	case len(s.Command) > 0:
		t, err = x.start(s)
	default:
		var to *target.Target
		if to, err = s.target(); err == nil {
			to.DefaultPath(path)
			o := &target.Options{Header: s.Header, Client: s.HTTP, Subprotocols: subprotocols}
			t, err = to.Dial(ctx, o)
		}
	}
	if err != nil {
		return nil, err
	}
	return x.held(t), nil
}

// start starts a child process.
func (x *slot) start(s *Server) (farcall.Transport, error) {
	//nolint:noctx // the user's command; closing the transport ends it
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Env, cmd.Dir = s.Env, s.Dir
	cmd.Stderr = visible.NewWriter(&lines{emit: func(text string) { x.tell(eventStderr, text) }})
	t, err := stream.Command(cmd, stream.NDJSON, &stream.Options{Skip: func(p []byte, _ bool) bool {
		p = bytes.TrimSpace(p)
		if len(p) > 0 && (p[0] == '{' || p[0] == '[') {
			return false
		}
		if len(p) > 0 {
			x.tell(eventNoise, shorten(visible.Log(string(p)), maxEventText))
		}
		return true
	}})
	if err != nil {
		return nil, fmt.Errorf("%w; see that the program is installed and that its path is right", err)
	}
	return t, nil
}

// lines makes events of what a child writes.
type lines struct {
	emit func(string)

	mu   sync.Mutex
	rest []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	end := bytes.LastIndexByte(l.rest, '\n')
	if end < 0 && len(l.rest) < maxEventText {
		return len(p), nil
	}
	if end < 0 {
		end = len(l.rest) - 1
	}
	l.emit(shorten(string(bytes.TrimRight(l.rest[:end+1], "\n")), maxEventText))
	l.rest = append(l.rest[:0], l.rest[end+1:]...)
	return len(p), nil
}

// listen has a server tell of changes, as long as the connection lasts.
func (x *slot) listen(ctx context.Context, c *mcp.Client) {
	caps := c.Server().Capabilities
	if caps == nil {
		return
	}
	filter := spec.SubscriptionFilter{
		ToolsListChanged:     caps.Tools != nil && caps.Tools.ListChanged,
		PromptsListChanged:   caps.Prompts != nil && caps.Prompts.ListChanged,
		ResourcesListChanged: caps.Resources != nil && caps.Resources.ListChanged,
	}
	err := c.Listen(ctx, filter)
	if ctx.Err() == nil && err != nil && !errors.Is(err, farcall.ErrClosed) {
		x.tell(eventWarning, shorten("The server does not tell of changes: "+err.Error(), maxEventText))
	}
}
