package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/load"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// prepare connects to a target and returns the calls of its workers.
func (b *bencher) prepare(ctx context.Context, t *target.Target, words []string) ([]load.Call, error) {
	if b.tool {
		return b.toolCalls(ctx, t, words)
	}
	params, err := parseParams(words[1:], b.stdin)
	if err != nil {
		return nil, err
	}
	if t.Kind == target.HTTP {
		return b.posts(t, words[0], params)
	}
	return b.peerCalls(ctx, t, words[0], params)
}

// connections returns how many to use.
func (b *bencher) connections() int { return min(cmp.Or(b.conns, 1), b.workers) }

// posts calls over HTTP. Each worker has a connection, unless there are fewer: then they take
// turns.
func (b *bencher) posts(t *target.Target, method string, params jsonrpc.Raw) ([]load.Call, error) {
	header, err := b.headers()
	if err != nil {
		return nil, err
	}
	config, err := b.tls()
	if err != nil {
		return nil, err
	}
	if b.conns > 0 {
		b.workers = min(b.workers, b.conns) // HTTP/1.1 has one call at a time on a connection
	}
	message := jsonrpc.V2.AppendRequest(nil, jsonrpc.IntID(1), method, params)
	calls := make([]load.Call, b.workers)
	for i := range calls {
		p := load.NewPoster(t.URL, header, config, message)
		b.closers = append(b.closers, p.Close)
		calls[i] = p.Call
	}
	return calls, nil
}

// peerCalls calls over connections that carry many calls at once.
func (b *bencher) peerCalls(ctx context.Context, t *target.Target, method string, params jsonrpc.Raw) ([]load.Call, error) {
	var peers []*farcall.Peer
	for range b.connections() {
		limited, cancel := b.limit(ctx)
		tr, err := b.dial(limited, t)
		if err != nil {
			cancel()
			return nil, dialFailure(ctx, t, err)
		}
		cancel()
		if t.Kind == target.Command {
			tr = tapped{tr, b.tapOn(t)}
		}
		p := farcall.NewPeer(tr, &callbacks{}, &farcall.Options{Logger: slog.New(slog.DiscardHandler)}) //nolint:contextcheck // a peer lives until it is closed
		b.closers = append(b.closers, func() { _ = p.Close() })
		peers = append(peers, p)
	}
	q := invocation{params: params}
	calls := make([]load.Call, b.workers)
	for i := range calls {
		p := peers[i%len(peers)]
		var result jsonrpc.Raw
		calls[i] = func(ctx context.Context) error { return benchFailure(p.Call(ctx, method, q.paramsOf(), &result)) }
	}
	return calls, nil
}

// toolCalls calls a tool of MCP.
func (b *bencher) toolCalls(ctx context.Context, t *target.Target, words []string) ([]load.Call, error) {
	given, err := b.arguments(ctx, words[1:])
	if err != nil {
		return nil, err
	}
	var sessions []*mcpSession
	for range b.connections() {
		s, err := b.open(ctx, t, b.wide)
		if err != nil {
			return nil, err
		}
		b.closers = append(b.closers, s.end)
		sessions = append(sessions, s)
	}
	arguments, _, err := sessions[0].fit(ctx, words[0], given)
	if err != nil {
		return nil, err
	}
	calls := make([]load.Call, b.workers)
	for i := range calls {
		s := sessions[i%len(sessions)]
		calls[i] = func(ctx context.Context) error {
			result, err := s.CallTool(ctx, words[0], arguments)
			if err == nil && result.IsError {
				return load.KindError("the tool failed")
			}
			return benchFailure(err)
		}
	}
	return calls, nil
}

// wide lets a client over HTTP keep a connection for each worker.
func (b *bencher) wide(o *mcp.ClientOptions) {
	if o.HTTP == nil || o.HTTP.HTTP == nil {
		return
	}
	if tr, ok := o.HTTP.HTTP.Transport.(*http.Transport); ok {
		tr.MaxIdleConns, tr.MaxIdleConnsPerHost = 0, b.workers+1
	}
}

// benchFailure is the kind of an error, by which errors are counted.
func benchFailure(err error) error {
	var wire *jsonrpc.Error
	var status *mcphttp.StatusError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return load.ErrTimeout
	case errors.As(err, &wire):
		return load.Failure(wire)
	case errors.As(err, &status):
		return load.KindError(fmt.Sprintf("HTTP status %d", status.Status))
	case errors.Is(err, farcall.ErrClosed):
		return load.KindError("the connection has ended")
	}
	return load.KindError(plainWords(err))
}
