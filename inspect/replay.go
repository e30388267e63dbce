package inspect

import (
	"context"

	"github.com/farcall-dev/farcall/inspect/internal/traffic"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type replayParams struct {
	Seq  uint64 `json:"seq"`
	Conn int    `json:"conn,omitzero"` // another server than before
	Call string `json:"call"          maxLength:"64"`
}

// replay sends a request or notification of this end again: the method and the params, without what
// belongs to the first call. What the protocol adds to each call is added again.
func (i *Inspector) replay(ctx context.Context, p replayParams) (*outcome, error) {
	row, raw, ok := i.store.Frame(p.Seq)
	switch {
	case !ok:
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "frame %d is not kept any more", p.Seq)
	case row.Dir != '>' || row.Kind != traffic.Request && row.Kind != traffic.Notification:
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "frame %d is not a request that was sent",
			p.Seq)
	}
	if p.Conn == 0 {
		p.Conn = row.Conn
	}
	c := callParams{
		Conn:   p.Conn,
		Call:   p.Call,
		Kind:   kindMethod,
		Name:   scan.StringMember(raw, "method"),
		Params: withoutRound(scan.Member(raw, "params")),
	}
	if row.Kind == traffic.Notification {
		c.Kind = kindNotify
	}
	if c.Name == "tools/call" {
		c.Kind, c.Name = kindTool, scan.StringMember(c.Params, "name")
		c.Params = scan.Member(c.Params, "arguments")
	}
	return i.call(ctx, c)
}

// withoutRound returns params without what belongs to one call.
func withoutRound(params jsonrpc.Raw) jsonrpc.Raw {
	if len(params) == 0 || params[0] != '{' {
		return params
	}
	out := jsonrpc.Raw{'{'}
	for key, value := range scan.Members(params) {
		switch string(key) {
		case "_meta", "requestState", "inputResponses":
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(scan.AppendQuoted(out, key), ':'), value...)
	}
	return append(out, '}')
}
