package inspect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A server of JSON-RPC at the path / is found at an address without a path, as geth is.
func TestRoot(t *testing.T) {
	t.Parallel()
	mux := farcall.NewMux()
	farcall.Handle(mux, "add", func(_ context.Context, in addIn) (int, error) {
		return in.A + in.B, nil
	})
	routes := http.NewServeMux()
	routes.Handle("POST /{$}", httprpc.NewHandler(mux, nil))
	routes.Handle("GET /{$}", wsrpc.NewHandler(func(tr farcall.Transport, _ *http.Request) {
		<-farcall.NewPeer(tr, mux, nil).Done()
	}, nil))
	web := httptest.NewServer(routes)
	t.Cleanup(web.Close)
	for _, protocol := range []string{protocolAuto, protocolRPC} {
		for _, at := range []string{web.URL, "ws" + strings.TrimPrefix(web.URL, "http")} {
			t.Run(protocol+" "+at[:2], func(t *testing.T) {
				t.Parallel()
				_, p, _ := inspector(t, &Options{
					Servers: []Server{{Target: at, Protocol: protocol}}, Connect: true,
				})
				if v := p.state(1, stateReady); v.Speaks != protocolRPC || v.Target != at+"/" {
					t.Errorf("the server is %+v", v)
				}
				var o outcome
				c := callParams{Conn: 1, Call: "c", Kind: kindMethod, Name: "add"}
				c.Params = []byte(`{"a":2,"b":40}`)
				if p.call("call", c, &o); o.Result != "42" {
					t.Errorf("%+v", o)
				}
			})
		}
	}
}
