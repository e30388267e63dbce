package host

import (
	"context"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

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
		return "", "", fmt.Errorf("%w: %.100q names no server: names are server%sname", ErrUnknown, name, separator)
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
		return nil, fmt.Errorf("host: the tool %q is not allowed by Server.AllowTools and DenyTools", name)
	}
	r, err := c.client.CallTool(ctx, tool, args)
	c.doubt(err)
	return r, err
}

// GetPrompt returns a prompt by its merged name, server__prompt, filled in with arguments. It waits
// while the server is [Starting].
func (h *Host) GetPrompt(ctx context.Context, name string, args map[string]string) (*mcp.PromptResult, error) {
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
func (h *Host) ReadResource(ctx context.Context, server, uri string) (*spec.ReadResourceResult, error) {
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
func (h *Host) Complete(ctx context.Context, server string, p *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
	own := *p
	if p.Ref.Type == spec.RefPrompt {
		of, prompt, err := split(p.Ref.Name)
		if err != nil {
			return nil, err
		}
		if of != server {
			return nil, fmt.Errorf("host: complete: the prompt %.100q is not of the server %.100q", p.Ref.Name, server)
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
