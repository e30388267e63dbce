package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/page"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/playground"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A toyBox is what the server of the playground is made of.
type toyBox struct {
	service *playground.Service
	guard   *guard.Guard // nil: everybody may do everything
}

// Close ends what runs in the background.
func (p *toyBox) Close() error {
	p.service.Close()
	if p.guard == nil {
		return nil
	}
	return p.guard.Close()
}

// playground makes the server of the playground, with the guard of a configuration. Nothing is served yet.
func (f *serveFlags) playground(c *gateway.Config, log *slog.Logger, stderr io.Writer) (*toyBox, error) {
	if err := f.checkAddresses(); err != nil {
		return nil, err
	}
	html, err := page.New()
	if err != nil {
		return nil, err
	}
	g, err := f.newGuard(c, log, stderr)
	if err != nil {
		return nil, err
	}
	mux := farcall.NewMux()
	mux.Info.Title = "farcall playground"
	mux.Info.Version = versionName()
	mux.Info.Description = "Methods to try JSON-RPC 2.0 with: arithmetic, text, streams, a clock that pushes, and failures of every kind."
	options := f.rpcOptions(log)
	p := &toyBox{service: playground.Register(mux, log), guard: g}
	o := f.serveOptions(c, log, stderr)
	o.Page = html
	o.MCP = p.service.MCP(mux, options, func(o *mcp.ServerOptions) {
		if g != nil {
			o.Owner = func(ctx context.Context) string { return guard.From(ctx).Owner() }
			o.Visible = func(ctx context.Context, kind, name string) bool { return mayUse(ctx, g, kind, name) }
		}
	})
	if g != nil {
		o.Guard = g
	}
	if err := f.newServer(mux, o, c); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// mayUse reports whether a caller may use something of the playground.
func mayUse(ctx context.Context, g *guard.Guard, kind, name string) bool {
	method := spec.MethodResourcesRead
	switch kind {
	case "tool":
		method = spec.MethodToolsCall
	case "prompt":
		method = spec.MethodPromptsGet
	}
	return g.Visible(ctx, &guard.Call{Method: method, Name: name, MCP: true})
}
