package guard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/owner"
)

// Budget returns the part of b for the large frames of a connection: the share of
// its principal or, as long as no credentials are accepted, the part for
// unauthenticated connections. Nil is the budget of the process.
func (g *Guard) Budget(c *Conn, b *farcall.Budget) *farcall.Budget {
	return budget.By(b, func() (owner.Key, bool) {
		//nolint:forbidigo // the connection's own; what is looked up was verified before
		k, refused := g.state.Load().conn(context.Background(), c)
		if k == nil || refused != nil {
			return c.owner(), true
		}
		return owner.Or(k.principal.owner(), c.owner()), false
	})
}

// owner returns the owner that stands for an unauthenticated connection.
func (c *Conn) owner() owner.Key { return owner.Connection(fmt.Sprintf("%p", c), c.Remote) }

// body reads the body of a request with a signature that is that of k, and which may be
// read again. It holds its part of the budget until the request ends.
func (x *exchange) body(k *known) ([]byte, error) {
	if x.r.Body == nil || x.r.Body == http.NoBody {
		return nil, nil
	}
	most := cmp.Or(x.s.c.Limits.MaxBody, signedBody)
	of := budget.By(x.s.g.opts.Budget, func() (owner.Key, bool) { return k.principal.owner(), false })
	loan := budget.Lend(of)
	x.loan = &loan
	b, err := loan.ReadAll(nil, x.r.Body, x.r.ContentLength, int(most), budget.Body(x.w, x.r))
	switch {
	case errors.Is(err, budget.ErrTooLarge):
		return nil, errors.New("it is too large to be signed: more than " + strconv.FormatInt(most, 10) + " bytes")
	case err != nil:
		return nil, err
	}
	x.r.Body = io.NopCloser(bytes.NewReader(b))
	return b, nil
}
