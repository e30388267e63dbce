package guard

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// madeKey begins the keys that farcall makes.
const madeKey = "fk_"

// askingKey is the key of the address for which an issuer is asked about a token.
type askingKey struct{}

// asking is the context in which a token of a request is verified.
func (s *state) asking(x *exchange) context.Context {
	ctx := x.r.Context()
	if !slices.ContainsFunc(s.c.JWT, func(i Issuer) bool { return i.Introspection.URL != "" }) {
		return ctx
	}
	return context.WithValue(ctx, askingKey{}, host(x.r.RemoteAddr))
}

// newIntrospections bounds what callers make this server ask issuers: of each address 100 tokens,
// and 10 a second, 16 at once; of all 128 at once, and none takes more than a fair share.
func newIntrospections(now func() time.Time) *limit.Limiter {
	return limit.New(&limit.Options{
		Rates: []limit.Rate{{Per: "address", Limit: 10, Burst: 100, Every: time.Second}}, Concurrent: 16, Total: 128, Now: now,
	})
}

// admitIntrospection is token.Options.Admit. Open connections, when their tokens are asked about
// again, are bounded otherwise.
func (g *Guard) admitIntrospection(ctx context.Context) (by owner.Key, release func(), err error) {
	remote, ok := ctx.Value(askingKey{}).(string)
	if !ok {
		return by, func() {}, nil
	}
	by = address(remote)
	release, err = g.introspections.Take(&limit.Caller{Owner: by, Address: remote}, "introspect")
	if full := (*limit.Exceeded)(nil); errors.As(err, &full) {
		r := refuse(jsonrpc.RateLimited, "too many tokens from "+remote+" that the issuer has to be asked about")
		r.after = full.RetryAfter
		return by, nil, r
	}
	return by, release, err
}

// revoked reports whether the token of an open connection no longer counts, where its issuer is
// asked.
func (s *state) revoked(ctx context.Context, c *Conn) bool {
	p := c.Principal
	if p == nil || p.shown == nil || p.Method != "jwt" || s.verifier == nil || !s.verifier.Introspects(p.Issuer) {
		return false
	}
	_, refused := s.again(ctx, c)
	return refused != nil && refused.status == http.StatusUnauthorized
}
