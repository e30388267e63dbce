package guard

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
)

// Of a stranger nobody is known, or not yet. What strangers make the server hold, read and write is bounded.

// strangerMessage bounds the messages of a connection at whose other end nobody is known: they are read, and held,
// before it can be seen who has signed them.
const strangerMessage = 1 << 20

// MaxMessage bounds the messages of a connection in bytes: those of strangers. 0: it is for the transport to say.
func (g *Guard) MaxMessage(ctx context.Context, c *Conn) int {
	if k, refused := g.state.Load().conn(ctx, c); k != nil && refused == nil {
		return 0
	}
	return strangerMessage
}

// patience is how many messages a connection may send at whose other end nobody is known.
const patience = 100

// saw ends a connection of which nothing comes but what must be refused.
func (x *connected) saw(who *session, err error) {
	switch {
	case x.c == nil || x.known.Load():
	case who != nil && who.principal != nil:
		x.known.Store(true)
	case err != nil && x.refusals.Add(1) == patience && x.c.Close != nil:
		_ = x.c.Close() // it is closed already
	}
}

// strangers are those whose refusals are not all written down, since they are not to fill the audit until there is
// nothing else in it.
type strangers struct {
	limiter   *limit.Limiter
	unwritten atomic.Int64
}

func strangerLimits(now func() time.Time) *limit.Limiter {
	return limit.New(&limit.Options{
		Rates: []limit.Rate{{Per: "address", Limit: 10, Burst: 100, Every: time.Second}, {Per: "all", Limit: 100, Burst: 1000, Every: time.Second}}, Now: now,
	})
}

// next reports whether there is room for a line, and how many were left out before it.
func (s *strangers) next(address string) (left int64, ok bool) {
	if _, full := s.limiter.Take(&limit.Caller{Address: address}, "audit"); full != nil {
		s.unwritten.Add(1)
		return 0, false
	}
	return s.unwritten.Swap(0), true
}

// recordStranger writes down what somebody did whom nobody knows, where there is room for it.
func (s *state) recordStranger(who *session, c *Call, decision string, r *refusal) error {
	address := ""
	if who != nil {
		address = who.remote
	}
	left, ok := s.g.strangers.next(address)
	if !ok {
		return nil
	}
	told := *r
	if left > 0 {
		told.reason += fmt.Sprintf(" (before it, %d refusals of strangers were not written down)", left)
	}
	return s.write(who, c, decision, nil, &told, 0)
}
