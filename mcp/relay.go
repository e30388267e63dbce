package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// ListChanged tells clients that a list has changed, of the server's [relay.Relay] or by
// what ServerOptions.Visible lets them see: kind is "tools", "resources" or
// "prompts". It panics for any other kind.
func (s *Server) ListChanged(kind string) {
	switch kind {
	case "tools":
		s.listChanged(listTools)
	case "resources":
		s.listChanged(listResources)
	case "prompts":
		s.listChanged(listPrompts)
	default:
		misuse(`ListChanged: there is no list %q; the kind must be "tools", "resources" or "prompts"`, kind)
	}
}

// Notify is relay.Notify.
func (c *call) Notify(ctx context.Context, method string, params jsonrpc.Raw) error {
	switch method {
	case spec.NotificationMessage:
		level := levelOf(params)
		if level < 0 {
			return fmt.Errorf("mcp: notify %q: the level must be one of %s", method, strings.Join(spec.LogLevels(), ", "))
		}
		if !c.logs(level) {
			return nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	if method == spec.NotificationProgress {
		if c.task.started() {
			var p spec.ProgressNotificationParams
			if err := jsonv2.Unmarshal(params, &p); err != nil {
				return fmt.Errorf("mcp: notify %q: %w", method, err)
			}
			c.task.report(statusMessage(&p))
		}
		token := c.progressToken()
		if token == nil {
			return nil
		}
		params = object.With(params, "progressToken", token)
	}
	return notify(ctx, c.client, c.rev, method, params)
}

// TaskState is relay.TaskOf.
func (c *call) TaskState() (can, is bool) {
	return c.task != nil, c.task.started()
}

func levelOf(params jsonrpc.Raw) int {
	raw := scan.Member(params, "level")
	if len(raw) == 0 || raw[0] != '"' {
		return -1
	}
	return spec.LogSeverity(string(scan.Unquote(raw)))
}
