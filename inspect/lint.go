package inspect

import (
	"context"

	"github.com/farcall-dev/farcall/internal/lint"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// lint looks for what models and clients misread in the tools of a server.
func (i *Inspector) lint(ctx context.Context, p connParams) (*lint.Report, error) {
	x, err := i.slot(p.Conn)
	if err != nil {
		return nil, err
	}
	c, err := x.catalog(ctx, kindTool, false)
	if err != nil {
		return nil, public(err)
	}
	raw := make([]jsonrpc.Raw, len(c.items))
	for n := range c.items {
		raw[n] = c.items[n].raw
	}
	return lint.Tools(raw), nil
}
