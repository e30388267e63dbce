package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A List is what all ready servers offer of one kind, in the order in which the servers were
// configured. It is shared by all who ask for it and must not be changed.
type List[T any] struct {
	Items []Item[T]
	// Missing are the servers with items that are not in it, with the reason as Err (nil for one that
	// starts for the first time). Disabled servers are not among them.
	Missing []Status
}

// An Item is one entry of a [List].
type Item[T any] struct {
	Server string
	// Value is what the server said, but for the name of a tool or a prompt, which is server__name.
	Value T
}

// kinds are kinds of lists.
type kinds uint32

const (
	tools kinds = 1 << iota
	prompts
	resources
	templates

	allKinds = tools | prompts | resources | templates
)

// kindsOf returns what a client calls a list.
func kindsOf(list string) kinds {
	switch list {
	case "tools":
		return tools
	case "prompts":
		return prompts
	case "resources":
		return resources | templates
	}
	return 0
}

// granted returns the lists with changes that a server announces.
func granted(f spec.SubscriptionFilter) (k kinds) {
	if f.ToolsListChanged {
		k |= tools
	}
	if f.PromptsListChanged {
		k |= prompts
	}
	if f.ResourcesListChanged {
		k |= resources | templates
	}
	return k
}

// A catalog is what one server offers.
type catalog struct {
	tools     listing[mcp.Tool]
	prompts   listing[mcp.Prompt]
	resources listing[mcp.Resource]
	templates listing[mcp.ResourceTemplate]
}

// A listing is one list of one server, which never changes, or why it could not be fetched.
type listing[T any] struct {
	items []Item[T]
	err   error
}

// merged has the lists of all servers until one of them changes.
type merged struct {
	fresh     kinds // the others are to be made
	tools     List[mcp.Tool]
	prompts   List[mcp.Prompt]
	resources List[mcp.Resource]
	templates List[mcp.ResourceTemplate]
}

func (l *merged) dropLocked(k kinds) { l.fresh &^= k }

// Tools returns the tools of all servers. It does not ask the servers: the host keeps the lists and
// fetches them again when a server says that they have changed, and after each connection.
func (h *Host) Tools() List[mcp.Tool] {
	of := func(c *catalog) *listing[mcp.Tool] { return &c.tools }
	return merge(h, tools, &h.merged.tools, of)
}

// Prompts returns the prompts of all servers, as Tools does.
func (h *Host) Prompts() List[mcp.Prompt] {
	of := func(c *catalog) *listing[mcp.Prompt] { return &c.prompts }
	return merge(h, prompts, &h.merged.prompts, of)
}

// Resources returns the resources of all servers, as Tools does. Two servers may have the same URI.
func (h *Host) Resources() List[mcp.Resource] {
	of := func(c *catalog) *listing[mcp.Resource] { return &c.resources }
	return merge(h, resources, &h.merged.resources, of)
}

// Templates returns the resource templates of all servers, as Tools does.
func (h *Host) Templates() List[mcp.ResourceTemplate] {
	of := func(c *catalog) *listing[mcp.ResourceTemplate] { return &c.templates }
	return merge(h, templates, &h.merged.templates, of)
}

// merge returns the list that is kept, or makes it.
func merge[T any](h *Host, k kinds, kept *List[T], of func(*catalog) *listing[T]) List[T] {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.merged.fresh&k != 0 {
		return *kept
	}
	n := 0
	for _, m := range h.order {
		if m.state == Ready {
			n += len(of(&m.lists).items)
		}
	}
	l := List[T]{Items: make([]Item[T], 0, n)}
	for _, m := range h.order {
		switch at := of(&m.lists); {
		case m.state != Ready:
			if !m.cfg.Disabled {
				l.Missing = append(l.Missing, m.statusLocked())
			}
		case at.err != nil:
			status := m.statusLocked()
			status.Err = at.err
			l.Missing = append(l.Missing, status)
		default:
			l.Items = append(l.Items, at.items...)
		}
	}
	*kept = l
	h.merged.fresh |= k
	return l
}

// changed has lists fetched again. It may be called by any goroutine and does not block.
func (c *conn) changed(k kinds) {
	if k == 0 {
		return
	}
	c.stale.Or(uint32(k))
	offer(c.wake, struct{}{})
}

// offer sends a value where the channel has room for it.
func offer[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}

// refresh fetches the lists that have changed.
func (m *member) refresh(life context.Context, c *conn) {
	k := kinds(c.stale.Swap(0))
	if k == 0 {
		return
	}
	lists := m.lists // only this goroutine changes them
	m.fetch(life, c, &lists, k)
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	m.lists = lists
	m.h.merged.dropLocked(k)
	m.h.tell.changed(k)
}

// failedLists returns the lists that could not be fetched.
func (m *member) failedLists() (k kinds) {
	for kind, err := range map[kinds]error{
		tools: m.lists.tools.err, prompts: m.lists.prompts.err, resources: m.lists.resources.err,
		templates: m.lists.templates.err,
	} {
		if err != nil {
			k |= kind
		}
	}
	return k
}

// fetch fetches lists of a server, those that it has.
func (m *member) fetch(ctx context.Context, c *conn, into *catalog, k kinds) {
	caps := cmp.Or(c.client.Server().Capabilities, &spec.ServerCapabilities{})
	var all sync.WaitGroup
	defer all.Wait()
	if k&tools != 0 && caps.Tools != nil {
		all.Go(func() {
			into.tools = fetched(ctx, m, "tools", c.client.Tools, func(t *mcp.Tool) bool {
				offered := m.cfg.offers(t.Name)
				t.Name = m.cfg.Name + separator + t.Name
				return offered
			})
		})
	}
	if k&prompts != 0 && caps.Prompts != nil {
		all.Go(func() {
			into.prompts = fetched(ctx, m, "prompts", c.client.Prompts, func(p *mcp.Prompt) bool {
				p.Name = m.cfg.Name + separator + p.Name
				return true
			})
		})
	}
	if k&resources != 0 && caps.Resources != nil {
		all.Go(func() {
			into.resources = fetched(ctx, m, "resources", c.client.Resources, func(*mcp.Resource) bool {
				return true
			})
		})
	}
	if k&templates != 0 && caps.Resources != nil {
		all.Go(func() {
			into.templates = fetched(ctx, m, "templates", c.client.Templates,
				func(*mcp.ResourceTemplate) bool {
					return true
				})
		})
	}
}

// fetched fetches one list. What adapt does not keep is left out.
func fetched[T any](
	ctx context.Context, m *member, what string, list func(context.Context) ([]T, error),
	adapt func(*T) bool,
) listing[T] {
	all, err := list(ctx)
	var answered *jsonrpc.Error
	switch {
	case errors.As(err, &answered) && answered.Code == jsonrpc.MethodNotFound:
		all = nil // many a server with resources has no templates
	case err != nil:
		return listing[T]{
			err: fmt.Errorf("host: %s: the %s could not be listed: %w", m.cfg.Name, what, err),
		}
	}
	items := make([]Item[T], 0, len(all))
	for i := range all {
		if adapt(&all[i]) {
			items = append(items, Item[T]{m.cfg.Name, all[i]})
		}
	}
	return listing[T]{items: items}
}

// Client returns the client of a server, for what the host has no method for: tasks, the level of
// the log, subscriptions. It waits while the server is [Starting]. The client is of the connection
// that there is now, belongs to the host and must not be closed; it is of no use when that
// connection has ended.
func (h *Host) Client(ctx context.Context, server string) (*mcp.Client, error) {
	c, err := h.connection(ctx, server)
	if err != nil {
		return nil, err
	}
	return c.client, nil
}

// connection returns the connection of a server, and waits while it starts.
func (h *Host) connection(ctx context.Context, server string) (*conn, error) {
	for {
		h.mu.Lock()
		m := h.members[server]
		if m == nil {
			h.mu.Unlock()
			return nil, unknown(server)
		}
		c, state, changed := m.conn, m.state, m.changed
		var err error
		if h.closed || state == Failed || state == Stopped {
			err = m.unreadyLocked()
		}
		h.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case c != nil:
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s is still starting: %w", ErrNotReady, server, ctx.Err())
		}
	}
}

// split splits a merged name.
func split(name string) (server, own string, err error) {
	server, own, ok := strings.Cut(name, separator)
	if !ok {
		return "", "", fmt.Errorf("%w: %.100q names no server: names are server%sname", ErrUnknown, name,
			separator)
	}
	return server, own, nil
}

// CallTool calls a tool by its merged name, server__tool, as [mcp.Client.CallTool] does. It waits
// while the server is [Starting]. A call is never made twice: one that was in flight when the
// connection was lost fails.
func (h *Host) CallTool(ctx context.Context, name string, args any) (*mcp.ToolResult, error) {
	server, tool, err := split(name)
	if err != nil {
		return nil, err
	}
	c, err := h.connection(ctx, server)
	if err != nil {
		return nil, err
	}
	if !c.cfg.offers(tool) {
		return nil, fmt.Errorf("host: the tool %q is not allowed by Server.AllowTools and DenyTools",
			name)
	}
	r, err := c.client.CallTool(ctx, tool, args)
	c.doubt(err)
	return r, err
}

// GetPrompt returns a prompt by its merged name, server__prompt, filled in with arguments. It waits
// while the server is [Starting].
func (h *Host) GetPrompt(
	ctx context.Context, name string, args map[string]string,
) (*mcp.PromptResult, error) {
	server, prompt, err := split(name)
	if err != nil {
		return nil, err
	}
	c, err := h.connection(ctx, server)
	if err != nil {
		return nil, err
	}
	r, err := c.client.Prompt(ctx, prompt, args)
	c.doubt(err)
	return r, err
}

// ReadResource reads a resource of a server. It waits while the server is [Starting].
func (h *Host) ReadResource(
	ctx context.Context, server, uri string,
) (*spec.ReadResourceResult, error) {
	c, err := h.connection(ctx, server)
	if err != nil {
		return nil, err
	}
	r, err := c.client.Read(ctx, uri)
	c.doubt(err)
	return r, err
}

// Complete returns what an argument of a prompt or a resource template of a server may become. The
// reference to a prompt has its merged name. It waits while the server is [Starting].
func (h *Host) Complete(
	ctx context.Context, server string, p *spec.CompleteRequestParams,
) (*spec.CompleteResult, error) {
	own := *p
	if p.Ref.Type == spec.RefPrompt {
		of, prompt, err := split(p.Ref.Name)
		if err != nil {
			return nil, err
		}
		if of != server {
			return nil, fmt.Errorf("host: complete: the prompt %.100q is not of the server %.100q",
				p.Ref.Name, server)
		}
		own.Ref.Name = prompt
	}
	c, err := h.connection(ctx, server)
	if err != nil {
		return nil, err
	}
	r, err := c.client.Complete(ctx, &own)
	c.doubt(err)
	return r, err
}

// RootsChanged tells the ready servers that what Options.Roots returns has changed. Those that
// start ask for it anyway. It returns the first error and tells the others nevertheless.
func (h *Host) RootsChanged(ctx context.Context) (first error) {
	h.mu.Lock()
	var all []*conn
	for _, m := range h.order {
		if m.conn != nil {
			all = append(all, m.conn)
		}
	}
	h.mu.Unlock()
	for _, c := range all {
		if err := c.client.RootsChanged(ctx); err != nil && first == nil {
			first = fmt.Errorf("host: %s: %w", c.cfg.Name, err)
		}
	}
	return first
}
