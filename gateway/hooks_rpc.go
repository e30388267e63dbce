package gateway

import (
	"context"
	"errors"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/hook"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// askedKey finds where hooks leave what they have said, for the audit.
type askedKey struct{}

// hookedPipe returns what handles the messages of a connection that is carried to the server, where
// hooks are asked about its methods; nil: none are.
func (s *server) hookedPipe(ctx context.Context) (farcall.Handler, *farcall.Options) {
	o, ok := ctx.Value(pipeKey{}).(*farcall.Options)
	if !ok || s.g.plan.Load().hooks[s.cfg.Name] == nil {
		return nil, nil
	}
	own := *o
	own.V1 = true
	conn, _ := ctx.Value(connKey{}).(*guard.Conn)
	own.Interceptors = s.guarded(conn, s.g.clientOptions().Interceptors)
	return s.calls, &own
}

// hooked makes the calls of a server that speaks no MCP between the hooks before them and those
// after them.
func (s *server) hooked(next farcall.Handler) farcall.Handler {
	return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		h := s.g.plan.Load().hooks[s.cfg.Name].of(req.Method)
		if h == nil || plainCall("", req.Method, nil).Method != methodRPC {
			return next.ServeRPC(ctx, req)
		}
		w := s.g.newCalling(ctx)
		w.tool, w.hooks = req.Method, h
		if w.asks, _ = ctx.Value(askedKey{}).(*[]guard.Asked); w.asks == nil {
			w.asks = new([]guard.Asked)
		}
		examined, err := w.beforeRPC(s, req)
		if err != nil {
			return nil, err
		}
		result, err := next.ServeRPC(ctx, examined)
		if req.IsNotification() || len(h.after) == 0 {
			return result, err
		}
		return w.afterRPC(s, result, err)
	})
}

// beforeRPC asks the hooks before a call, and has the guard decide again about params that they
// have changed.
func (w *calling) beforeRPC(s *server, req *farcall.Request) (*farcall.Request, error) {
	own, c := *req, w.hookCall(s.cfg.Name, w.tool, nil, req.Params)
	c.RPC = true
	err := w.askAll(w.hooks.before, c)
	if own.Params = c.Value; err == nil && s.g.shield != nil &&
		string(own.Params) != string(req.Params) {
		err = s.g.shield.Recheck(w, plainCall(s.cfg.Name, own.Method, own.Params))
	}
	return &own, err
}

// afterRPC asks the hooks after a call about its result, or the error that it was answered with.
func (w *calling) afterRPC(s *server, result any, err error) (any, error) {
	given, _ := result.(jsonrpc.Raw)
	c := w.hookCall(s.cfg.Name, w.tool, nil, given)
	c.RPC = true
	if err != nil {
		return nil, w.afterError(c, err)
	}
	if err := w.askAll(w.hooks.after, c); err != nil || string(c.Value) == string(given) {
		return result, err
	}
	return c.Value, nil
}

// afterError asks the hooks after a call about the error that it was answered with.
func (w *calling) afterError(c *hook.Call, err error) error {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || w.hooks == nil || errors.Is(err, mcp.ErrAsked) {
		return err // the caller has gone, or is asked
	}
	given := scan.Member(jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), wire), "error")
	c.Error, c.Value = true, given
	switch refused := w.askAll(w.hooks.after, c); {
	case refused != nil:
		return refused
	case string(c.Value) == string(given):
		return err
	}
	return errorOf(c.Value)
}

// errorOf reads the error of a response; nil: it is not valid.
func errorOf(value jsonrpc.Raw) *jsonrpc.Error {
	var d jsonrpc.Decoder
	var b jsonrpc.Batch
	frame := append(append([]byte(`{"jsonrpc":"2.0","id":1,"error":`), value...), '}')
	if d.Decode(frame, &b) == nil && b.Messages[0].Err == nil {
		return b.Messages[0].Failure()
	}
	return nil
}
