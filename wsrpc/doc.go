// Package wsrpc answers one question: how do messages travel over WebSocket?
//
//	http.Handle("GET /rpc/ws", wsrpc.NewHandler(func(t farcall.Transport, r *http.Request) {
//		farcall.NewPeer(t, mux, nil)
//	}, nil))
//
//	t, err := wsrpc.Dial(ctx, "ws://127.0.0.1:7331/rpc/ws", nil)
//	peer := farcall.NewPeer(t, nil, nil)
//
// One WebSocket message is one frame (RFC 6455). We send text; binary messages
// that hold JSON are read just as well. Messages are not compressed.
//
// # Limits
//
// A message beyond [Options].MaxMessage is answered with an error, and then the
// connection is closed with status 1009, for what is left of the message may be
// of any length. A text message that is not UTF-8 is answered with -32700, and the
// connection is closed with status 1007.
//
// # Closing
//
// Close sends a close frame and gives the other end a second to answer it.
// A connection that the other end closes with status 1000 or 1001, or with none,
// ends with io.EOF. A connection with bytes that violate the framing, such as an unmasked
// frame of a client, is closed with status 1002, and ends with [farcall.ErrProtocol].
//
// # Memory
//
// A connection that is idle holds no frame, no write buffer and one goroutine,
// that of its reader.
package wsrpc
