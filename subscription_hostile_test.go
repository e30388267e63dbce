package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/stream"
)

// A server that gives two subscriptions the same id does not take the first one from its
// subscriber: the second one fails, and the first one has its events and the end of the connection.
func TestSubscriptionsOfTheSameID(t *testing.T) {
	w := newWire(t, 0, nil, nil)
	subscribe := func(id int) (*farcall.Subscription[int], error) {
		var sub *farcall.Subscription[int]
		ended := make(chan error, 1)
		go func() {
			var err error
			sub, err = farcall.Subscribe[int](t.Context(), w.p, "time/ticks", nil)
			ended <- err
		}()
		w.expect(
			fmt.Sprintf(`{"jsonrpc":"2.0","method":"time/subscribe","params":["ticks"],"id":%d}`, id))
		w.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":"0x1"}`, id))
		err := <-ended
		return sub, err
	}
	first, err := subscribe(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := subscribe(2); !errors.Is(err, farcall.ErrProtocol) ||
		!strings.Contains(err.Error(), "another subscription") {
		t.Errorf("the second one: %v", err)
	}
	w.write(
		`{"jsonrpc":"2.0","method":"time/subscription","params":{"subscription":"0x1","result":7}}`)
	w.c.CloseWrite()
	got, err := collect(first.Events())
	if len(got) != 1 || got[0] != 7 || !errors.Is(err, farcall.ErrClosed) {
		t.Errorf("%v, %v", got, err)
	}
}

// Subscriptions that a connection has ended leave nothing behind while it does not read what it is
// sent.
func TestUnsubscribedWhileUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic farcall.Topic[string]
		mux := topicMux(&topic)
		farcall.Handle(mux, "fill", func(context.Context, struct{}) (string, error) {
			return strings.Repeat("x", 1<<20), nil
		})
		a, b := farcall.Pipe()
		server := farcall.NewPeer(b, mux, nil)
		send := func(format string, args ...any) {
			if err := a.Write(fmt.Appendf(nil, format, args...)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for i := range 10 {
			send(`{"jsonrpc":"2.0","method":"fill","id":"fill %d"}`, i)
		}
		for i := 1; i <= 100; i++ {
			send(`{"jsonrpc":"2.0","method":"subscribe","params":["news"],"id":%d}`, i)
			if err := topic.Publish("new"); err != nil {
				t.Fatal(err)
			}
			send(`{"jsonrpc":"2.0","method":"unsubscribe","params":["%#x"]}`, i)
		}
		if st := server.Stats(); st.Subscriptions != 0 || topic.Subscribers() != 0 ||
			st.UnsentBytes < 1<<20 {
			t.Errorf("%d subscribers, %+v", topic.Subscribers(), st)
		}
		if n := farcall.SubscriptionsInTurn(server); n != 0 {
			t.Errorf("%d subscriptions are kept", n)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Events that many connections do not read are bounded together, by the budget and a little for
// each connection.
func TestUnreadEventsDraw(t *testing.T) {
	const conns, subs, events, total = 8, 16, 60, 16 << 20
	synctest.Test(t, func(t *testing.T) {
		var topic farcall.Topic[string]
		mux, b := topicMux(&topic), farcall.NewBudget(total, 0)
		var peers []*farcall.Peer
		for i := range conns {
			x, y := net.Pipe()
			defer y.Close()
			peers = append(peers,
				farcall.NewPeer(stream.New(x, stream.NDJSON, nil), mux, &farcall.Options{Budget: b}))
			for id := range subs {
				if _, err := fmt.Fprintf(y,
					`{"jsonrpc":"2.0","id":%d,"method":"subscribe","params":["news"]}`+"\n", id); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if n := topic.Subscribers(); n != (i+1)*subs {
				t.Fatalf("%d subscribers", n)
			}
		}
		text := strings.Repeat("x", 16<<10) // conns*subs*events of it are 120 MB
		for range events {
			if err := topic.Publish(text); err != nil {
				t.Fatal(err)
			}
		}
		if used, _ := b.Used(); used < total/2 || used > total+conns<<20 {
			t.Errorf("%d MB of %d are held", used>>20, total>>20)
		}
		for _, p := range peers {
			p.Close()
		}
		synctest.Wait()
		if used, _ := b.Used(); used != 0 {
			t.Errorf("%d bytes are still held", used)
		}
	})
}

// A subscription that an interceptor refuses once it was answered is ended at the other end.
func TestSubscribeRefusedHere(t *testing.T) {
	var topic farcall.Topic[string]
	refused := errors.New("refused here")
	refuse := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			result, err := next.ServeRPC(ctx, req)
			if req.Method == "subscribe" {
				err = refused
			}
			return result, err
		})
	}
	a, b := farcall.Pipe()
	p, _ := connect(t, a, b, nil, topicMux(&topic),
		&farcall.Options{CallInterceptors: []farcall.Interceptor{refuse}}, nil)
	if _, err := farcall.Subscribe[string](t.Context(), p, "news", nil); !errors.Is(err, refused) {
		t.Error(err)
	}
	if n := topic.Subscribers(); n != 0 {
		t.Errorf("%d subscribers are left", n)
	}
}
