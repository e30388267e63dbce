package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/environ"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/stream"
)

// A conn is a connection with a server. The member's goroutine makes and closes it.
type conn struct {
	cfg    *Server
	client *mcp.Client
	web    bool // over HTTP, where nothing says that it is lost

	lost    chan error    // has one element when the connection has failed
	doubted chan struct{} // has one element when a call has failed over HTTP
	stale   atomic.Uint32 // kinds of lists to be fetched again
	wake    chan struct{} // has one element when stale has changed

	tasks     sync.WaitGroup // what listens and pings, and the server in this process
	stop      context.CancelFunc
	listening chan struct{} // closed when the server has agreed to tell of changes, or does not
	listened  sync.Once
}

// listenTime is how long a server may take to agree to report changes before its lists are fetched
// without that. OnListening refreshes them when it agrees later.
const listenTime = 3 * time.Second

// connect makes a connection and fetches the lists.
func (m *member) connect(life context.Context) (*conn, catalog, error) {
	o := &m.h.opts
	ctx, cancel := context.WithTimeout(life, o.StartTimeout)
	defer cancel()
	c := &conn{
		cfg: m.cfg, lost: make(chan error, 1), doubted: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), listening: make(chan struct{}),
	}
	client, err := m.dial(ctx, c)
	if err != nil {
		c.tasks.Wait()
		if ctx.Err() != nil && life.Err() == nil {
			err = fmt.Errorf("not ready within %v (Options.StartTimeout): %w", o.StartTimeout, err)
		}
		return nil, catalog{}, err
	}
	c.client = client
	running, stop := context.WithCancel(life)
	c.stop = stop
	m.listen(running, c)
	if c.web && o.Ping > 0 {
		c.tasks.Go(func() { c.watch(running, o.Ping) })
	}
	late := time.NewTimer(min(listenTime, o.StartTimeout/4))
	defer late.Stop()
	select {
	case <-c.listening:
	case <-late.C:
	case <-ctx.Done():
	}
	c.stale.Store(0)
	var lists catalog
	m.fetch(ctx, c, &lists, allKinds)
	select {
	case err := <-c.lost: // before it was ready
		c.close()
		return nil, catalog{}, err
	default:
		return c, lists, nil
	}
}

// close ends the connection and waits for it.
func (c *conn) close() {
	c.stop()
	_ = c.client.Close() // it may have ended, for what the member knows
	c.tasks.Wait()
}

// fail notes that the connection has failed.
func (c *conn) fail(err error) { offer(c.lost, err) }

// dial makes the client.
func (m *member) dial(ctx context.Context, c *conn) (*mcp.Client, error) {
	o := m.clientOptions(c)
	switch {
	case m.cfg.InProcess != nil:
		near, far := farcall.Pipe()
		c.tasks.Go(func() {
			if err := m.cfg.InProcess.Serve(context.WithoutCancel(ctx), far); err != nil {
				// it ends with the connection
				m.warn(fmt.Errorf("serve in this process: %w", err))
			}
		})
		return mcp.Connect(ctx, near, o)
	case m.cfg.Dial != nil:
		t, err := m.cfg.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return mcp.Connect(ctx, t, o)
	case len(m.cfg.Command) > 0:
		t, err := m.start()
		if err != nil {
			return nil, err
		}
		return mcp.Connect(ctx, t, o)
	}
	at, err := target.Parse(m.cfg.URL)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, value := range m.cfg.Headers {
		header.Set(name, value)
	}
	if at.Kind == target.HTTP {
		c.web = true
		web := mcphttp.DialOptions{}
		if o.HTTP != nil {
			web = *o.HTTP
		}
		web.Header, o.HTTP = header, &web
		if m.cfg.Authorizer != nil {
			web.Authorize = m.cfg.Authorizer
		}
		return mcp.Dial(ctx, m.cfg.URL, o)
	}
	// mcp.Dial would connect again automatically, and nothing would be known of it here.
	reach := &target.Options{Subprotocols: []string{"mcp"}, Header: header}
	if o.HTTP != nil {
		reach.TLS, reach.Client, reach.MaxMessage = o.HTTP.TLS, o.HTTP.HTTP, o.HTTP.MaxMessage
	}
	t, err := at.Dial(ctx, reach)
	if err != nil {
		return nil, err
	}
	return mcp.Connect(ctx, t, o)
}

// start starts the child.
func (m *member) start() (farcall.Transport, error) {
	cfg := m.cfg
	cmd := exec.Command(cfg.Command[0], cfg.Command[1:]...) //nolint:noctx // it outlives the start
	cmd.Env, cmd.Dir = environ.Child(os.Environ(), cfg.InheritEnv, cfg.Env), cfg.Dir
	m.err.clear()
	cmd.Stderr = &m.err
	t, err := stream.Command(cmd, stream.NDJSON, &stream.Options{Skip: chatter})
	if err != nil {
		return nil, fmt.Errorf(
			"%w; see that the program is installed and that its path and directory are right", err)
	}
	m.proc.Store(cmd.Process)
	return t, nil
}

// chatter reports whether a line is no message: children print other things, too.
func chatter(p []byte, _ bool) bool {
	p = bytes.TrimSpace(p)
	return len(p) == 0 || p[0] != '{' && p[0] != '['
}

// clientOptions returns the options of a client with the callbacks know that the server.
func (m *member) clientOptions(c *conn) *mcp.ClientOptions {
	h, name := m.h, m.cfg.Name
	var o mcp.ClientOptions
	if h.opts.Client != nil {
		o = *h.opts.Client
	}
	o.Timeout = cmp.Or(max(m.cfg.Timeout, 0), o.Timeout)
	if m.cfg.SSE && o.Era == "" {
		o.Era = "legacy"
	}
	o.Elicit, o.Sample, o.Roots, o.OnLog = nil, nil, nil, nil
	if f := h.opts.Elicit; f != nil {
		o.Elicit = func(ctx context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return f(ctx, name, p)
		}
	}
	if f := h.opts.Sample; f != nil {
		o.Sample = func(
			ctx context.Context, p *spec.CreateMessageRequestParams,
		) (*spec.CreateMessageResult, error) {
			return f(ctx, name, p)
		}
	}
	if f := h.opts.Roots; f != nil {
		o.Roots = func(ctx context.Context) ([]mcp.Root, error) { return f(ctx, name) }
	}
	if f := h.opts.OnLog; f != nil {
		o.OnLog = func(p *spec.LoggingMessageNotificationParams) { f(name, p) }
	}
	o.Ask, o.OnNotice, o.OnResourceUpdated, o.Redial, o.NoCache = nil, nil, nil, nil, true
	o.OnListChanged = func(list string) { c.changed(kindsOf(list)) }
	o.OnListening = func(got spec.SubscriptionFilter) {
		c.changed(granted(got)) // what happened before was not told
		c.listens()
	}
	o.OnSessionLost = func() { c.changed(allKinds) }
	o.OnWarning = m.warn
	var rpc farcall.Options
	if o.RPC != nil {
		rpc = *o.RPC
	}
	rpc.OnClose = c.fail
	o.RPC = &rpc
	return &o
}

func (m *member) warn(err error) {
	m.h.opts.Logger.Warn("an MCP server is in trouble", "server", m.cfg.Name, "error",
		visible.Log(err.Error()))
}

// listens notes that it is known what the server tells of.
func (c *conn) listens() { c.listened.Do(func() { close(c.listening) }) }

// listen has the server tell when its lists change, as long as ctx lives.
func (m *member) listen(ctx context.Context, c *conn) {
	caps := cmp.Or(c.client.Server().Capabilities, &spec.ServerCapabilities{})
	filter := spec.SubscriptionFilter{
		ToolsListChanged:     caps.Tools != nil && caps.Tools.ListChanged,
		PromptsListChanged:   caps.Prompts != nil && caps.Prompts.ListChanged,
		ResourcesListChanged: caps.Resources != nil && caps.Resources.ListChanged,
	}
	// Over HTTP, legacy servers also need the stream that Listen opens to ask the client.
	if granted(filter) == 0 && !c.web {
		c.listens()
		return
	}
	c.tasks.Go(func() {
		defer c.listens()
		err := c.client.Listen(ctx, filter)
		if ctx.Err() == nil && granted(filter) != 0 && !errors.Is(err, farcall.ErrClosed) {
			m.warn(fmt.Errorf("the server does not tell when its lists change: %w", err))
		}
	})
}

// pingTime is how long the answer to a ping may take. One that takes longer proves nothing.
const pingTime = 10 * time.Second

// watch looks from time to time, and when a call has failed, whether a server over HTTP is there.
func (c *conn) watch(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.doubted:
		case <-ctx.Done():
			return
		}
		short, cancel := context.WithTimeout(ctx, pingTime)
		err := c.client.Ping(short)
		cancel()
		if broken(err) && ctx.Err() == nil {
			c.fail(err)
			return
		}
	}
}

// doubt has the connection looked at after a call that has failed with err.
func (c *conn) doubt(err error) {
	if c.web && broken(err) {
		offer(c.doubted, struct{}{})
	}
}

// broken reports whether an error may say that the connection is lost: it is no answer of the
// server, and no end of a context.
func broken(err error) bool {
	var answered *jsonrpc.Error
	return err != nil && !errors.As(err, &answered) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, context.Canceled)
}

// attend keeps the lists until the connection is lost or the life has ended.
func (m *member) attend(life context.Context, c *conn) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	wait := retryFirst
	for {
		failed := m.failedLists()
		if failed != 0 {
			retry.Reset(wait)
			wait = min(2*wait, retryLast)
		} else {
			retry.Stop()
			wait = retryFirst
		}
		select {
		case <-life.Done():
			return context.Cause(life)
		case err := <-c.lost:
			return err
		case <-c.wake:
		case <-retry.C:
			c.changed(failed)
			continue
		}
		m.refresh(life, c)
	}
}

// How long to wait before a list is fetched again that could not be.
const (
	retryFirst = time.Second
	retryLast  = time.Minute
)

// A tail keeps the end of what a child writes to its standard error.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 4 << 10

// Write implements io.Writer and never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-tailBytes):]...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = slices.Delete(t.buf, 0, over)
	}
	return len(p), nil
}

func (t *tail) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = nil
}

// String returns what is kept, fit to be shown.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return visible.Text(strings.ToValidUTF8(string(t.buf), ""))
}
