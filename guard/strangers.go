package guard

import "context"

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
