package main

import (
	"context"
	"net"
	"net/http"
	"os"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

func farcallMethods() *farcall.Mux {
	mux := farcall.NewMux()
	mux.Handle("echo", farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
		return req.Params, nil
	}))
	return mux
}

func joinFarcall(client, server end) (*session, error) {
	c, isPipe := client.(pipeEnd)
	if _, isFile := c.w.(*os.File); isPipe && isFile {
		return joinFarcallStdio(c, server.(pipeEnd)), nil
	}
	return farcallSession(stream.New(client, stream.NDJSON, nil),
		stream.New(server, stream.NDJSON, nil)), nil
}

// joinFarcallStdio speaks over os pipes the way a command does: as standard
// input and output, which the pipes are while they are opened and closed.
func joinFarcallStdio(client, server pipeEnd) *session {
	open := func(p pipeEnd) (t farcall.Transport) {
		asStdio(p, func() { t = stream.Stdio(stream.NDJSON, nil) })
		return t
	}
	s := farcallSession(open(client), open(server))
	closePeers := s.close
	s.close = func() {
		asStdio(client, closePeers)
		server.Close()
	}
	return s
}

func asStdio(p pipeEnd, f func()) {
	in, out := os.Stdin, os.Stdout
	defer func() { os.Stdin, os.Stdout = in, out }()
	os.Stdin, os.Stdout = p.ReadCloser.(*os.File), p.w.(*os.File)
	f()
}

func joinFarcallPipe() (*session, error) {
	return farcallSession(farcall.Pipe()), nil
}

func farcallSession(client, server farcall.Transport) *session {
	s := farcall.NewPeer(server, farcallMethods(), nil)
	c := farcall.NewPeer(client, nil, nil)
	ctx := context.Background()
	return &session{
		caller: func() func() ([]byte, error) {
			var params any = jsonrpc.Raw(echoParams)
			var res jsonrpc.Raw
			return func() ([]byte, error) {
				err := c.Call(ctx, "echo", params, &res)
				return res, err
			}
		},
		close: func() { c.Close(); s.Close() },
	}
}

func farcallHTTP() (http.Handler, func(), error) {
	return httprpc.NewHandler(farcallMethods(), nil), func() {}, nil
}

func farcallTCP() func(net.Conn) {
	methods := farcallMethods()
	return func(c net.Conn) { farcall.NewPeer(stream.New(c, stream.NDJSON, nil), methods, nil) }
}

func farcallWebSocket() http.Handler {
	methods := farcallMethods()
	return wsrpc.NewHandler(func(t farcall.Transport, _ *http.Request) {
		farcall.NewPeer(t, methods, nil)
	}, nil)
}
