package gateway

import (
	"context"
	"errors"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/hook"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
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

// rpcCall is what hooks learn of the call.
func (w *calling) rpcCall(s *server, value jsonrpc.Raw) *hook.Call {
	c := w.hookCall(s.cfg.Name, w.tool, nil, value)
	c.RPC = true
	return c
}

// beforeRPC asks the hooks before a call, and has the guard decide again about params that they
// have changed.
func (w *calling) beforeRPC(s *server, req *farcall.Request) (*farcall.Request, error) {
	own := *req
	for _, h := range w.hooks.before {
		v, err := w.ask(h.Hook, w.rpcCall(s, own.Params))
		if err != nil {
			return nil, err
		}
		if v.Value != nil {
			own.Params = v.Value
		}
	}
	if s.g.shield == nil || string(own.Params) == string(req.Params) {
		return &own, nil
	}
	return &own, s.g.shield.Recheck(w, plainCall(s.cfg.Name, own.Method, own.Params))
}

// afterRPC asks the hooks after a call about its result, or the error that it was answered with.
func (w *calling) afterRPC(s *server, result any, err error) (any, error) {
	c := w.rpcCall(s, nil)
	if err == nil {
		c.Value, _ = result.(jsonrpc.Raw)
	} else {
		wire := (*jsonrpc.Error)(nil)
		if !errors.As(err, &wire) {
			return nil, err // the caller has gone
		}
		c.Error = true
		c.Value = scan.Member(jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), wire), "error")
	}
	changed := false
	for _, h := range w.hooks.after {
		v, refused := w.ask(h.Hook, c)
		if refused != nil {
			return nil, refused
		}
		if v.Value != nil {
			c.Value, changed = v.Value, true
		}
	}
	switch {
	case !changed:
		return result, err
	case c.Error:
		return nil, errorOf(c.Value)
	}
	return c.Value, nil
}

// errorOf reads the error of a response; nil: it is not valid.
func errorOf(value jsonrpc.Raw) *jsonrpc.Error {
	var d jsonrpc.Decoder
	var b jsonrpc.Batch
	frame := append(append([]byte(`{"jsonrpc":"2.0","id":1,"error":`), value...), '}')
	if d.Decode(frame, &b) != nil || b.Messages[0].Err != nil {
		return nil
	}
	return b.Messages[0].Failure()
}
