package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A link is a line and what was agreed on it.
type link struct {
	*line
	rev  *era.Revision
	info *ServerInfo
	id   string          // of the session; "": none
	sse  bool            // over HTTP+SSE
	ctx  context.Context //nolint:containedctx // ends when another link takes its place
	stop context.CancelFunc

	events sync.Once     // the legacy HTTP stream for what belongs to no call
	opened chan struct{} // closed when the server has answered to that
	ended  chan error    // gets the end of that stream
	watch  watchList     // legacy subscriptions to resources
	lost   atomic.Bool   // OnSessionLost was called for its session
}

func (c *Client) newLink(w *line, rev *era.Revision, info *ServerInfo) *link {
	w.adopt(rev)
	info.Revision = rev.Name
	l := &link{
		line: w, rev: rev, info: info, sse: w.sse, opened: make(chan struct{}),
		ended: make(chan error, 1),
	}
	l.ctx, l.stop = context.WithCancel(c.ctx)
	return l
}

// agree finds out what the server speaks. What the last link spoke is tried
// first: which era it is of is a property of the server (basic/versioning).
func (c *Client) agree(ctx context.Context, w *line) (*link, error) {
	w.adopt(nil)
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if len(c.modern) == 0 {
		return c.initialize(ctx, w, c.legacy[0])
	}
	if known != nil && known.Handshake {
		if l, err := c.initialize(ctx, w, c.legacy[0]); err == nil || ctx.Err() != nil ||
			unreachable(w, err) {
			return l, err
		}
	}
	return c.probe(ctx, w)
}

// probe asks the server whether it is modern.
//
// One that is silent may be old (2026-07-28, stdio, "Backward Compatibility"),
// or slow to start. So it gets the old handshake as well. One that has started
// then answers both over a stream, and is modern.
func (c *Client) probe(ctx context.Context, w *line) (*link, error) {
	probing, cancel := context.WithCancel(ctx)
	found := make(chan discovery, 1)
	var prober sync.WaitGroup
	defer prober.Wait()
	defer cancel()
	prober.Go(func() { found <- c.discover(probing, w) })

	silent := time.NewTimer(c.opts.ProbeTimeout)
	defer silent.Stop()
	wait := silent.C
	if len(c.legacy) == 0 {
		wait = nil
	}
	select {
	case d := <-found:
		return c.settle(ctx, w, d)
	case <-wait:
	}
	l, err := c.initialize(ctx, w, c.legacy[0])
	if ctx.Err() != nil || err == nil && w.http != nil {
		return l, err
	}
	late := c.opts.ProbeTimeout
	if err == nil {
		late /= 10
	}
	silent.Reset(late)
	select {
	case d := <-found:
		if d.modern && (err != nil || d.rev != nil) {
			if err == nil {
				l.stop()
			}
			return c.settle(ctx, w, d)
		}
	case <-silent.C:
	}
	if err == nil {
		return l, nil
	}
	return nil, fmt.Errorf("the server did not answer server/discover within %v, and then: %w",
		c.opts.ProbeTimeout, err)
}

// A discovery is what server/discover has shown.
type discovery struct {
	modern    bool
	rev       *era.Revision // to be spoken; nil: none in common
	info      *ServerInfo   // when the server has answered
	supported []string
	err       error // when it has not
}

// discover calls server/discover with the revisions that may be spoken, best
// first, until the server takes one.
func (c *Client) discover(ctx context.Context, w *line) discovery {
	rev, tried := c.modern[0], 0
	for {
		raw, err := c.discoverIn(ctx, w, rev)
		if err == nil {
			return c.discovered(raw)
		}
		supported, modern := modernError(err)
		next := common(c.modern, supported)
		// A server may name the very revision that it has just refused, once.
		if tried++; next == nil || tried > len(c.modern) {
			return discovery{modern: modern, supported: supported, err: err}
		}
		rev = next
	}
}

func (c *Client) discoverIn(ctx context.Context, w *line, rev *era.Revision) (jsonrpc.Raw, error) {
	params, err := c.modernParams(rev, nil)
	if err != nil {
		return nil, err
	}
	return c.send(ctx, w, spec.MethodServerDiscover, params)
}

// discovered reads the answer to server/discover. A legacy server may answer
// anything with an empty result.
func (c *Client) discovered(raw jsonrpc.Raw) discovery {
	var r spec.DiscoverResult
	if err := jsonv2.Unmarshal(raw, &r); err != nil || len(r.SupportedVersions) == 0 {
		return discovery{err: errors.New("the answer to server/discover names no supported versions")}
	}
	info := &ServerInfo{
		Instructions: r.Instructions, Capabilities: &r.Capabilities,
		Supported: r.SupportedVersions,
	}
	var who struct {
		Meta spec.ResultMetaObject `json:"_meta"`
	}
	if jsonv2.Unmarshal(raw, &who) == nil && who.Meta.ServerInfo != nil {
		info.Name, info.Version, info.Title = who.Meta.ServerInfo.Name, who.Meta.ServerInfo.Version,
			who.Meta.ServerInfo.Title
	}
	return discovery{
		modern: true, rev: common(c.modern, r.SupportedVersions), info: info,
		supported: r.SupportedVersions,
	}
}

// modernError reports whether an error is one that only modern servers answer,
// and which revisions it names.
func modernError(err error) (supported []string, modern bool) {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return nil, false
	}
	switch e.Code {
	case spec.HeaderMismatch, spec.MissingRequiredClientCapability:
		return nil, true
	case spec.UnsupportedProtocolVersion:
		var data spec.UnsupportedProtocolVersionData
		if jsonv2.Unmarshal(e.Data, &data) == nil && len(data.Supported) > 0 {
			return data.Supported, true
		}
	}
	return nil, false
}

// common returns the first of ours that the server names, or nil.
func common(ours []*era.Revision, theirs []string) *era.Revision {
	for _, r := range ours {
		if slices.Contains(theirs, r.Name) {
			return r
		}
	}
	return nil
}

// settle turns a discovery into a link.
func (c *Client) settle(ctx context.Context, w *line, d discovery) (*link, error) {
	switch {
	case d.rev != nil:
		return c.newLink(w, d.rev, d.info), nil
	case d.modern:
		if rev := common(c.legacy, d.supported); rev != nil {
			return c.initialize(ctx, w, rev)
		}
		if len(d.supported) == 0 {
			return nil, d.err
		}
		return nil, fmt.Errorf("the server speaks %s and this client may speak %s; see ClientOptions.Era",
			strings.Join(d.supported, ", "), c.allowed())
	case ctx.Err() != nil, unreachable(w, d.err):
		return nil, d.err
	case len(c.legacy) == 0:
		return nil, fmt.Errorf("the server is not modern (it may be legacy: see ClientOptions.Era): %w",
			d.err)
	}
	l, err := c.initialize(ctx, w, c.legacy[0])
	if err != nil && !errors.Is(err, mcphttp.ErrConnect) { // which has nothing to do with its era
		err = fmt.Errorf("the server is not modern (%w), and then: %w", d.err, err)
	}
	return l, err
}

// initializeAnew makes the handshake over a new connection, where the first one
// has ended at once: there are old servers that do not bear any other beginning.
func (c *Client) initializeAnew(ctx context.Context, cause error) (*link, error) {
	t, err := c.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w, and then: %w", cause, err)
	}
	w := c.lineOver(t)
	l, err := c.initialize(ctx, w, c.legacy[0])
	if err != nil {
		_ = w.peer.Close() // the other error counts
		return nil, fmt.Errorf("%w, and then: %w", cause, err)
	}
	return l, nil
}

// revisions returns what may be spoken, best first.
func (c *Client) revisions() []*era.Revision { return slices.Concat(c.modern, c.legacy) }

func (c *Client) allowed() string {
	var names []string
	for _, r := range c.revisions() {
		names = append(names, r.Name)
	}
	return strings.Join(names, ", ")
}

// unreachable reports whether an error says nothing about the server's era:
// another handshake would fail for the same reason. An answer that breaks off is
// none of those: it may be how an old server refuses.
func unreachable(w *line, err error) bool {
	if status, ok := errors.AsType[*mcphttp.StatusError](err); ok {
		return status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden ||
			errors.Is(err, mcphttp.ErrConnect)
	}
	if connecting, ok := errors.AsType[*net.OpError](err); ok && connecting.Op == "dial" {
		return true
	}
	return errors.Is(err, farcall.ErrClosed) || w.peer.Err() != nil
}

// initialize makes the handshake of the legacy revisions, offering one of them.
func (c *Client) initialize(ctx context.Context, w *line, offer *era.Revision) (*link, error) {
	params, err := jsonv2.Append(nil, &spec.InitializeParams{
		ProtocolVersion: offer.Name, Capabilities: c.capabilities(false), ClientInfo: c.implementation(),
	})
	if err != nil {
		return nil, err
	}
	raw, err := c.send(ctx, w, spec.MethodInitialize, params)
	if w.http != nil && c.wantsSSE(err) {
		// 2026-07-28, Streamable HTTP, "HTTP+SSE Transport": the server may be one
		// of those.
		if sse := w.http.SSE(ctx, w.unasked); sse != nil {
			return nil, fmt.Errorf("%w (and HTTP+SSE: %w)", err, sse)
		}
		w.sse = true
		raw, err = c.send(ctx, w, spec.MethodInitialize, params)
	}
	if err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	var r spec.InitializeResult
	if err := jsonv2.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("initialize: the result is not valid: %w", err)
	}
	rev := common(c.legacy, []string{r.ProtocolVersion})
	if rev == nil {
		return nil,
			fmt.Errorf(
				"initialize: the server speaks %q and this client may speak %s; see ClientOptions.Era",
				r.ProtocolVersion, c.allowed())
	}
	l := c.newLink(w, rev, &ServerInfo{
		Name: r.ServerInfo.Name, Version: r.ServerInfo.Version, Title: r.ServerInfo.Title,
		Instructions: r.Instructions, Capabilities: &r.Capabilities,
		Supported: []string{r.ProtocolVersion},
	})
	if w.http != nil {
		l.id = w.http.Session()
	}
	if err := w.peer.Notify(ctx, spec.NotificationInitialized, nil); err != nil {
		l.stop()
		return nil, fmt.Errorf("initialize: %w", err)
	}
	return l, nil
}

// wantsSSE reports whether an initialize failed as it does at servers of the
// first HTTP transport.
func (c *Client) wantsSSE(err error) bool {
	var status *mcphttp.StatusError
	if !errors.As(err, &status) || !slices.ContainsFunc(c.legacy, func(r *era.Revision) bool {
		return r.HTTPSSE
	}) {
		return false
	}
	if _, modern := modernError(err); modern {
		return false
	}
	switch status.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// settled does what a new link also needs. It waits until what the server may
// ask from now on has a way to come.
func (c *Client) settled(ctx context.Context, l *link) {
	if !l.rev.Handshake {
		return
	}
	if level := c.logLevel(); level != "" && l.info.Capabilities.Logging != nil {
		c.spawn(func() {
			if err := c.setLevel(l.ctx, l); err != nil && l.ctx.Err() == nil {
				c.warn("the server does not take the log level %q: %w", level, err)
			}
		})
	}
	o := &c.opts
	if o.Ask != nil || o.OnNotice != nil || o.Elicit != nil || o.Sample != nil || o.Roots != nil ||
		o.OnLog != nil || o.OnListChanged != nil ||
		l.sse || o.OnResourceUpdated != nil || o.OnTask != nil || o.OnElicitationComplete != nil ||
		o.OnNotification != nil {
		c.openEvents(ctx, l)
	}
}

func (c *Client) logLevel() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.level
}

// implementation says who calls.
func (c *Client) implementation() spec.Implementation {
	return spec.Implementation{Name: c.opts.Name, Version: c.opts.Version, Title: c.opts.Title}
}

// capabilities says what this client can do.
func (c *Client) capabilities(modern bool) spec.ClientCapabilities {
	var caps spec.ClientCapabilities
	yes := spec.JSONObject{}
	if given := c.opts.Capabilities; given != nil {
		caps = *given
	} else {
		if c.opts.Elicit != nil {
			caps.Elicitation = &spec.ElicitationCapability{Form: yes, URL: yes}
		}
		if c.opts.Sample != nil {
			caps.Sampling = &spec.SamplingCapability{}
		}
		if c.opts.Roots != nil {
			caps.Roots = &spec.RootsCapability{}
		}
	}
	extensions := map[string]any{}
	maps.Copy(extensions, caps.Extensions)
	maps.Copy(extensions, c.opts.Extensions)
	if c.opts.Tasks {
		extensions[spec.ExtensionTasks] = yes
	}
	caps.Extensions = nil
	if len(extensions) > 0 {
		caps.Extensions = extensions
	}
	if !modern && caps.Roots != nil {
		caps.Roots = &spec.RootsCapability{ListChanged: true}
	}
	return caps
}
