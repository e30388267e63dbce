package httprpc

import (
	"context"
	"net/http"

	"github.com/farcall-dev/farcall/internal/owner"
)

// An owned is the context of a request whose caller has an owner: that of the request's context, or
// else the address that the request came from. It is a type because most calls never ask, and an
// owner costs more than the rest of them.
type owned struct {
	context.Context //nolint:containedctx // this is a context itself

	remote string
}

func withOwner(r *http.Request) context.Context { return &owned{r.Context(), r.RemoteAddr} }

// Value implements context.Context.
func (o *owned) Value(key any) any {
	v := o.Context.Value(key)
	if _, ok := key.(owner.ContextKey); ok && v == nil {
		return owner.Address(o.remote)
	}
	return v
}

// AfterFunc lets package context derive from this context without a goroutine.
func (o *owned) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(o.Context, f) }
