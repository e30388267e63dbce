package farcall

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// What a call carries beside its params: the members that JSON-RPC does not define. Each stands in
// the message itself or, where the dialect has a Meta, in that member of the params; both are
// understood.
//
//	progressToken    what progress is marked with
//	progressCredit   how much of a stream may be sent, see credit.go
//	traceparent      the trace context, with tracestate and baggage; over HTTP headers
//	metadata         what WithMetadata adds
//	TimeoutMember    of the dialect: how long the caller waits, in milliseconds

// memberMetadata holds an object of strings.
const memberMetadata = "metadata"

// maxMetadata bounds the member metadata.
const maxMetadata = 8 << 10

// extension returns a member that JSON-RPC does not define, from either place; nil when there is
// none.
func extension(m *jsonrpc.Message, name string) jsonrpc.Raw {
	if raw := m.Member(name); raw != nil {
		return raw
	}
	return scan.Member(scan.Member(m.Params, "_meta"), name)
}

// extensions returns the members of a request that JSON-RPC does not define, each with the comma
// before it.
func (p *Peer) extensions(ctx context.Context, id jsonrpc.ID, ask asking) (extra []byte, err error) {
	if ask.progress {
		// The id is the token: unique, without separate bookkeeping.
		extra = appendMember(extra, "progressToken", id.Raw())
	}
	if ask.credit > 0 {
		extra = appendMember(extra, memberCredit, jsonrpc.IntID(ask.credit).Raw())
	}
	if p.x == nil || p.opts.Dialect.Meta != "" { // otherwise it travels in the headers
		extra = TraceFrom(ctx).appendMembers(extra)
	}
	if !id.IsAbsent() {
		extra = p.opts.Dialect.appendTimeout(ctx, extra)
	}
	return appendMetadata(ctx, extra)
}

type metadataKey struct{}

// WithMetadata returns a context; calls and notifications with it carry a value under a name,
// beside the params: in the member "metadata" of the message, over every transport. Names are up to
// both ends. A call fails when its metadata has more than 8 KiB. It is not passed on: what came
// with a call of a handler goes out with calls of the handler only when it is added again.
//
// It is part of the message, so that it is in Record.Request, and in a log of whole messages.
func WithMetadata(ctx context.Context, name, value string) context.Context {
	all, _ := ctx.Value(metadataKey{}).(map[string]string)
	all = maps.Clone(all)
	if all == nil {
		all = map[string]string{}
	}
	all[name] = value
	return context.WithValue(ctx, metadataKey{}, all)
}

// MetadataFrom returns the metadata that came with the call of a handler, by name; nil when there
// is none, when it has more than 8 KiB, and once the handler has returned. What is no string is
// left out.
func MetadataFrom(ctx context.Context) (all map[string]string) {
	s := servingFrom(ctx)
	if s == nil {
		return nil
	}
	s.end.Before(func() {
		raw := extension(s.req.msg, memberMetadata)
		if len(raw) > maxMetadata {
			return
		}
		scan.Object(raw, func(key, value []byte) bool {
			if value[0] == '"' {
				if all == nil {
					all = map[string]string{}
				}
				all[string(key)] = string(scan.Unquote(value))
			}
			return true
		})
	})
	return all
}

// appendMetadata appends the member of the metadata in a context, if there is any.
func appendMetadata(ctx context.Context, dst []byte) ([]byte, error) {
	all, _ := ctx.Value(metadataKey{}).(map[string]string)
	if len(all) == 0 {
		return dst, nil
	}
	var members []byte
	for name, value := range all {
		members = appendMember(members, name, jsonrpc.AppendString(nil, value))
	}
	if len(members)+1 > maxMetadata {
		return dst, fmt.Errorf("the metadata has %d bytes; at most %d are carried", len(members)+1, maxMetadata)
	}
	members[0] = '{'
	return appendMember(dst, memberMetadata, append(members, '}')), nil
}

// maxTimeout bounds what a caller may say, so that it fits a time.Duration.
const maxTimeout = 1 << 40

// appendTimeout appends how long the caller waits, where the dialect has a member for it.
func (d *Dialect) appendTimeout(ctx context.Context, dst []byte) []byte {
	if d.TimeoutMember == "" {
		return dst
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return dst
	}
	ms := min(max(int64(time.Until(deadline)+time.Millisecond-1)/int64(time.Millisecond), 1), maxTimeout)
	return appendMember(dst, d.TimeoutMember, jsonrpc.IntID(ms).Raw())
}

// timeout returns how long the caller of a message waits. What is no positive integer is not taken
// for one.
func (d *Dialect) timeout(m *jsonrpc.Message) (limit time.Duration, ok bool) {
	if d.TimeoutMember == "" {
		return 0, false
	}
	ms, ok := positive(extension(m, d.TimeoutMember))
	return time.Duration(min(ms, maxTimeout)) * time.Millisecond, ok
}
