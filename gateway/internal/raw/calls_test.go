package raw

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall"
)

// A pipe with messages that are handled one by one has its own connection to the upstream: the
// upstream asks and notifies its client, and the pipe ends with that connection, but not before the
// calls have their answers.
func TestCalls(t *testing.T) {
	ends, began := make(chan *farcall.Peer, 2), make(chan struct{})
	server := newServer()
	server.Handle("wait",
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			close(began)
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	var u *Upstream
	u = open(t, &Options{
		Dial: func(context.Context) (farcall.Transport, error) {
			ours, theirs := farcall.Pipe()
			peer := farcall.NewPeer(theirs, server, nil)
			t.Cleanup(func() { _ = peer.Close() })
			ends <- peer
			return ours, nil
		},
		Calls: func(context.Context) (farcall.Handler, *farcall.Options) {
			return u, &farcall.Options{}
		},
		MaxConnections: 8, // one owner has seven of them
	})
	one, two := pipeTo(t, u), pipeTo(t, u)
	one.send(t, call("7", "echo", `{ "a": 1.0 }`))
	one.expect(t, result("7", `{ "a": 1.0 }`))
	one.send(t, call("8", "ask", `["x"]`))
	one.expectLike(t, `"method":"question"`, `"params":["x"]`, `"id":1`)
	one.send(t, result("1", `"fine"`))
	one.expect(t, result("8", `"fine"`))
	two.send(t, call("1", "tell", `["new"]`))
	told := map[string]bool{} // in any order
	for range 2 {
		frame, err := two.Read()
		if err != nil {
			t.Fatal(err)
		}
		told[string(frame)] = true
	}
	if !told[result("1", `"told"`)] || !told[`{"jsonrpc":"2.0","method":"news","params":["new"]}`] {
		t.Errorf("two got %v", told)
	}
	first := <-ends
	<-ends
	two.send(t, call("2", "echo", "[1]"))
	two.expect(t, result("2", "[1]"))
	one.send(t, call("9", "wait", "[]"))
	<-began
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	one.expectLike(t, `"id":9`, `"sent":"unknown"`)
	one.ended(t)
	two.send(t, call("3", "echo", "[3]"))
	two.expect(t, result("3", "[3]"))

	u.EndCarried() // two is not carried
	two.send(t, call("4", "echo", "[4]"))
	two.expect(t, result("4", "[4]"))
}
