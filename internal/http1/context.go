package http1

import (
	"context"

	"github.com/farcall-dev/farcall/internal/callctx"
)

// A requestContext is the context of a request: the values of its connection, and
// its own end.
type requestContext struct {
	callctx.Context

	end callctx.End
}

// begin makes the values of a connection those of the context.
func (c *requestContext) begin(conn context.Context) {
	c.Context = callctx.Until(conn, nil, &c.end)
}

// cancel ends the context. Further calls do nothing.
func (c *requestContext) cancel() { c.end.Cancel(context.Canceled) }
