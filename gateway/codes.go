package gateway

import (
	"context"
	"errors"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
)

// ownCode gives an error of the gateway itself about the way to a server the code that the registry
// has for a revision. What a server has answered stays as it is: it has no cause, and neither has
// what was made of it for the address of the client.
func ownCode(err error, rev *era.Revision) error {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || wire.Code != jsonrpc.Unavailable || rev == nil || !modernCodes(rev) || wire.Cause == nil {
		return err
	}
	if answer, ok := errors.AsType[*jsonrpc.Error](wire.Cause); ok && answer.Cause == nil {
		return err
	}
	own := *wire
	own.Code = wire.Code.Condition().Modern
	return &own
}

// Describe implements relay.Relay.
func (e *endpoint) Describe(ctx context.Context) (*relay.Description, error) {
	d, err := e.describe(ctx)
	if err != nil {
		if c := mcp.ClientFrom(ctx); c != nil {
			err = ownCode(err, era.Lookup(c.Revision))
		}
		return nil, err
	}
	return d, nil
}

// Forward implements relay.Relay.
func (e *endpoint) Forward(ctx context.Context, rev *era.Revision, method string, params jsonrpc.Raw) (jsonrpc.Raw, *era.Revision, error) {
	raw, in, err := e.forwarded(ctx, rev, method, params)
	return raw, in, ownCode(err, rev)
}
