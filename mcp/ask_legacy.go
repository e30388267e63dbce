package mcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/inbound"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// askNow asks a client of the legacy era and waits for its answer.
func (c *call) askNow(ctx context.Context, q *question) (jsonrpc.Raw, error) {
	raw, err := request(ctx, c.client, c.rev, q, "")
	if err == nil {
		err = q.check(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("mcp: ask the client %q: %w", q.method, err)
	}
	return raw, nil
}

// request sends a question as a request of the revision, on behalf of the task,
// if any, and returns the answer in canonical form.
func request(ctx context.Context, client farcall.Caller, rev *era.Revision, q *question, taskID string) (jsonrpc.Raw, error) {
	params, err := era.Translate(era.Params, q.method, q.params, era.Latest(), rev)
	if err != nil {
		return nil, err
	}
	if q.mode == spec.ElicitURL && rev.ElicitationComplete {
		params = withElicitationID(params, q.params)
	}
	if taskID != "" {
		params = withRelatedTask(params, taskID)
	}
	if q.name != "" {
		params = withMeta(params, inbound.MetaName, scan.AppendQuoted(nil, q.name))
	}
	var raw jsonrpc.Raw
	if err := client.Call(ctx, q.method, params, &raw); err != nil {
		// The client's code is not the one to answer the client's own request with.
		if wire := new(jsonrpc.Error); errors.As(err, &wire) {
			return nil, fmt.Errorf("it refused: %s (code %d)", wire.Message, int(wire.Code))
		}
		return nil, err
	}
	return era.Translate(era.Result, q.method, raw, rev, era.Latest())
}

// withRelatedTask marks params or a result as a task's (2025-11-25
// basic/utilities/tasks, "Related Task Metadata").
func withRelatedTask(in jsonrpc.Raw, taskID string) jsonrpc.Raw {
	id := object.With(nil, "taskId", scan.AppendQuoted(nil, taskID))
	return withMeta(in, spec.MetaRelatedTask, id)
}

func withMeta(in jsonrpc.Raw, key string, value jsonrpc.Raw) jsonrpc.Raw {
	return object.With(in, "_meta", object.With(scan.Member(in, "_meta"), key, value))
}
