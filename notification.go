package farcall

import (
	"context"
	"reflect"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// HandleNotification adds a method that is only notified: there is no answer, and an error goes to
// the log. Params are bound as for [Handle], which a method that may be notified and called has. A
// request for it is answered with [jsonrpc.MethodNotFound]. Notifications of one connection are
// handled one after the other, in their order.
func HandleNotification[P any](m *Mux, method string, f func(context.Context, P) error, doc ...string) {
	h := &notified[P]{types: describe[P, struct{}](method, false), f: f}
	h.types.notification = true
	m.add(&entry{name: method, handler: h, doc: doc, types: h.types})
}

type notified[P any] struct {
	types *signature
	f     func(context.Context, P) error
}

// ServeRPC implements Handler.
func (h *notified[P]) ServeRPC(ctx context.Context, req *Request) (any, error) {
	if !req.IsNotification() {
		return nil, &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "Method not found", Cause: onlyNotifiedError(req.Method)}
	}
	var p P
	if err := h.types.params.Load().bind(reflect.ValueOf(&p).Elem(), req.Params); err != nil {
		return nil, err
	}
	return nil, h.f(ctx, p)
}

type onlyNotifiedError string

func (m onlyNotifiedError) Error() string {
	return "the method " + string(m) + " is a notification: send it without an id"
}
