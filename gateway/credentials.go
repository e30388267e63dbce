package gateway

import (
	"fmt"
	"log/slog"

	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// authorizer shows a server who calls, if it needs more than headers.
func (c *Upstream) authorizer(*slog.Logger) (mcphttp.Authorizer, error) {
	if c.Auth == nil {
		return nil, nil
	}
	return nil, fmt.Errorf("gateway: upstream %s: credentials are not built yet", c.Name)
}
