// Package farcall answers one question: how do two ends call each other?
//
// A [Peer] sits at one end of a [Transport]. It is symmetric: it calls the
// other end and serves the other end's calls at the same time, so there is no
// separate client and server.
//
//	mux := farcall.NewMux()
//	farcall.Handle(mux, "math/add", func(ctx context.Context, p AddParams) (float64, error) {
//		return p.A + p.B, nil
//	})
//	peer := farcall.NewPeer(transport, mux, nil)
//	sum, err := farcall.Call[float64](ctx, peer, "math/add", AddParams{2, 3})
//
// # Concurrency
//
// Every method of a Peer may be called by any number of goroutines. Requests
// are handled concurrently. Notifications are handled one at a time, in the
// order in which they arrived; a request that arrived later may start while an
// earlier notification is still being handled.
//
// A handler may call back over the same connection, to any depth: while it
// waits it does not count against [Options.MaxInFlight], and the reading of
// the connection never waits for a handler.
//
// # Contexts and cancellation
//
// A handler's context ends when its call is cancelled by the caller, when the
// connection ends, and when the handler returns. A call with a context that ends
// returns at once, tells the other end in the [Dialect] of the peer, and a late
// answer is dropped and counted.
//
// # Interceptors
//
// [Options.Interceptors] surround the calls that a peer serves, streams included, and
// [Options.CallInterceptors] those that it makes. Both are of one type. [Options.OnRecord]
// is called for each of them.
//
// # Limits
//
// Work that arrives is bounded in count and in bytes. What exceeds the bound
// is answered with [jsonrpc.Overloaded] at once. An end that does not read its
// answers is disconnected when they exceed [Options.MaxUnsent].
//
// # Shutdown
//
// [Peer.Close] ends the connection now; [Peer.Shutdown] lets the calls in
// flight finish first. When the other end closes its sending half, it still gets
// the answers to what it asked, within 10 seconds.
package farcall
