package httprpc_test

import (
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/observe"
)

// An observer sees event streams, and no answer that is plain JSON.
func TestObservedStreams(t *testing.T) {
	var opened, closed atomic.Int32
	count := func(n *atomic.Int32) func(observe.Lifetime) {
		return func(l observe.Lifetime) {
			if l.Kind == observe.Stream && l.Transport == "http" {
				n.Add(1)
			}
		}
	}
	o := &httprpc.Options{RPC: &farcall.Options{
		Observer: &observe.Observer{Open: count(&opened), Close: count(&closed)},
	}}
	call := func(method string) string {
		return `{"jsonrpc":"2.0","method":"` + method + `","params":[2],"id":1}`
	}
	address := serve(t, httprpc.NewHandler(service(t), o))
	request(t, "POST", address, call("echo"), jsonCT, acceptSSE)
	if opened.Load() != 0 {
		t.Errorf("%d streams were open for an answer of JSON", opened.Load())
	}
	request(t, "POST", address, call("push"), jsonCT, acceptSSE)
	browser := serve(t, httprpc.NewStreamHandler(service(t), o))
	request(t, "GET", browser+"?method=count&to=2", "")
	if opened.Load() != 2 || closed.Load() != 2 {
		t.Errorf("%d streams were opened and %d closed, want 2", opened.Load(), closed.Load())
	}
}
