package httprpc

import (
	"context"
	"net/http"

	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/owner"
)

// An owned is the context of a request with an owner: that of the request's context, or
// else the address that the request came from. It is a type because most calls never ask, and an
// owner costs more than the rest of them.
type owned struct {
	callctx.Context

	remote string
}

func withOwner(r *http.Request) context.Context {
	o := &owned{remote: r.RemoteAddr}
	o.Context = callctx.Over(r.Context(), o)
	return o
}

// ContextValue implements callctx.Values.
func (o *owned) ContextValue(key any) (any, bool) {
	if _, ok := key.(owner.ContextKey); !ok {
		return nil, false
	}
	if v := o.Parent().Value(key); v != nil {
		return v, true
	}
	return owner.Address(o.remote), true
}
