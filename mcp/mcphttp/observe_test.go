package mcphttp

import (
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/observe"
)

// An observer sees each event stream from its first event until its client has gone.
func TestObservedStreams(t *testing.T) {
	t.Parallel()
	opened, closed := make(chan string, 8), make(chan string, 8)
	note := func(to chan string) func(observe.Lifetime) {
		return func(l observe.Lifetime) {
			if l.Kind == observe.Stream {
				to <- l.Transport
			}
		}
	}
	e := serve(t, &Options{RPC: &farcall.Options{
		Observer: &observe.Observer{Open: note(opened), Close: note(closed)},
	}})
	old := e.do("GET", "/sse", "")
	old.wants("/messages?sessionId=")
	if got := <-opened; got != "mcp-http" {
		t.Errorf("a stream of the transport %q was opened", got)
	}
	select {
	case <-closed:
		t.Error("the stream was closed while its client reads")
	default:
	}
	old.cancel()
	<-closed
	e.modern("1", "tools/call", `"name":"add"`).text()
	if len(opened) != len(closed) {
		t.Errorf("%d streams were opened and %d closed", len(opened), len(closed))
	}
}
