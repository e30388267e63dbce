// Package oneway sends HTTP requests that are answered without a body.
package oneway

import (
	"context"
	"time"
)

// Send runs send, which sends such a request, in a goroutine that start begins; it reports false
// when it begins no more, and Send returns closed then. When ctx ends before send returns, its
// error is returned, and send goes on: its context ends after linger, and with life.
//
// net/http gives a connection to the next request when an answer without a body has come, and only
// then the answer to who waits for it. A context that ends in between closes the connection under
// that other request, which fails though its own context has not ended (persistConn.readLoop and
// roundTrip, Go 1.26).
func Send(
	ctx, life context.Context, linger time.Duration, start func(func()) bool, closed error,
	send func(context.Context) error,
) error {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(life, cancel) //nolint:contextcheck // it ends that of ctx, too
	sent := make(chan error, 1)
	if !start(func() {
		defer cancel()
		defer stop()
		sent <- send(own)
	}) {
		stop()
		cancel()
		return closed
	}
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		time.AfterFunc(linger, cancel)
		return ctx.Err()
	}
}
