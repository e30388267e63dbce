package guard

import "context"

// unauthenticatedMessage bounds the messages on an unauthenticated connection: they are read, and
// held, before it can be seen who has signed them.
const unauthenticatedMessage = 1 << 20

// MaxMessage returns the most bytes that a message on a connection may have: 1 MiB while the
// connection is unauthenticated. 0: the guard sets no bound.
func (g *Guard) MaxMessage(ctx context.Context, c *Conn) int {
	if k, refused := g.state.Load().conn(ctx, c); k != nil && refused == nil {
		return 0
	}
	return unauthenticatedMessage
}

// maxRefusals is how many messages may be refused on a connection on which none was accepted.
const maxRefusals = 100

// dropAbusive closes a connection after maxRefusals refused messages and no accepted one.
func (x *connected) dropAbusive(who *session, err error) {
	switch {
	case x.c == nil || x.accepted.Load():
	case who != nil && who.principal != nil:
		x.accepted.Store(true)
	case err != nil && x.refusals.Add(1) == maxRefusals && x.c.Close != nil:
		_ = x.c.Close() // an error means that it is closed already
	}
}
