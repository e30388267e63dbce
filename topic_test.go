package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func topicMux[T any](topic *farcall.Topic[T]) *farcall.Mux {
	mux := farcall.NewMux()
	farcall.HandleTopic(mux, "news", func(context.Context, struct{}) (*farcall.Topic[T], error) {
		return topic, nil
	})
	return mux
}

// encodedOnce counts how often it is encoded.
type encodedOnce struct {
	text  string
	count *atomic.Int32
}

func (e encodedOnce) MarshalJSON() ([]byte, error) {
	e.count.Add(1)
	return fmt.Appendf(nil, "%q", e.text), nil
}

// An event is encoded once for all subscribers, who get all of them in order.
func TestTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic farcall.Topic[encodedOnce]
		mux := topicMux(&topic)
		var subs []*farcall.Subscription[string]
		for i := range 20 {
			a, b := farcall.Pipe()
			p, _ := connect(t, a, b, nil, mux, nil, nil)
			for range 1 + i%3 { // so that their ids are not all the same
				sub, err := farcall.Subscribe[string](t.Context(), p, "news", nil)
				if err != nil {
					t.Fatal(err)
				}
				subs = append(subs, sub)
			}
		}
		if n := topic.Subscribers(); n != len(subs) {
			t.Errorf("%d subscribers, want %d", n, len(subs))
		}
		var count atomic.Int32
		for _, text := range []string{"a", strings.Repeat("b", 20_000), "c"} {
			if err := topic.Publish(encodedOnce{text, &count}); err != nil {
				t.Fatal(err)
			}
		}
		if count.Load() != 3 {
			t.Errorf("3 events were encoded %d times", count.Load())
		}
		topic.Close(jsonrpc.Errorf(1001, "no more"))
		for _, sub := range subs {
			got, err := collect(sub.Events())
			var wire *jsonrpc.Error
			if len(got) != 3 || got[0] != "a" || len(got[1]) != 20_000 || got[2] != "c" ||
				!errors.As(err, &wire) || wire.Code != 1001 {
				t.Errorf("%d events, %v", len(got), err)
			}
		}
		if n := topic.Subscribers(); n != 0 {
			t.Errorf("%d subscribers are left", n)
		}
		if err := topic.Publish(encodedOnce{"d", &count}); err != nil {
			t.Fatal(err)
		}
	})
}

// A lateReader reads one frame, and the others when it is opened.
type lateReader struct {
	farcall.Transport
	frames int
	open   chan struct{}
}

func (g *lateReader) Read() ([]byte, error) {
	if g.frames++; g.frames > 1 {
		<-g.open
	}
	return g.Transport.Read()
}

// slowAndFast subscribes twice: over a connection that does not read, until the gate is opened, and
// one that does.
func slowAndFast(
	t *testing.T, topic *farcall.Topic[string],
) (slow, fast *farcall.Subscription[string], server *farcall.Peer, gate chan struct{}) {
	t.Helper()
	mux := topicMux(topic)
	subscribe := func(p *farcall.Peer) *farcall.Subscription[string] {
		sub, err := farcall.Subscribe[string](t.Context(), p, "news", nil)
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	gate = make(chan struct{})
	a, b := farcall.Pipe()
	p, server := connect(t, &lateReader{Transport: a, open: gate}, b, nil, mux, nil, nil)
	slow = subscribe(p)
	a, b = farcall.Pipe()
	p, _ = connect(t, a, b, nil, mux, nil, nil)
	return slow, subscribe(p), server, gate
}

// A subscriber that does not read loses its oldest events, and gets their number; it delays no
// other.
func TestTopicDropsOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 1000
		topic := farcall.Topic[string]{Buffer: 10}
		slow, fast, server, gate := slowAndFast(t, &topic)
		for i := range events {
			if err := topic.Publish(fmt.Sprint(i, strings.Repeat(" ", 1000))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		n := 0
		for v, err := range fast.Events() {
			if err != nil || !strings.HasPrefix(v, fmt.Sprint(n, " ")) {
				t.Fatalf("%d: %.10s %v", n, v, err)
			}
			if n++; n == events {
				break
			}
		}
		if unsent := server.Stats().UnsentBytes; unsent > 200_000 {
			t.Errorf("%d bytes wait", unsent)
		}
		close(gate)
		next, dropped := 0, 0
		for v, err := range slow.Events() {
			var gap *farcall.GapError
			if errors.As(err, &gap) && gap.Lost == nil && gap.Dropped > 0 {
				next += int(gap.Dropped)
				dropped += int(gap.Dropped)
				continue
			}
			if err != nil || !strings.HasPrefix(v, fmt.Sprint(next, " ")) {
				t.Fatalf("%d: %.10s %v", next, v, err)
			}
			if next++; next == events {
				break
			}
		}
		if dropped < events/2 {
			t.Errorf("%d events were dropped", dropped)
		}
	})
}

// Events that were dropped and that no other one followed are counted at the end.
func TestTopicDropsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic farcall.Topic[string]
		gate := make(chan struct{})
		a, b := farcall.Pipe()
		// 500 for events that wait
		p, server := connect(t, &lateReader{Transport: a, open: gate}, b, nil, topicMux(&topic), nil,
			&farcall.Options{MaxUnsent: 2000})
		sub, err := farcall.Subscribe[string](t.Context(), p, "news", nil)
		if err != nil {
			t.Fatal(err)
		}
		const events = 400
		for range events {
			if err := topic.Publish(strings.Repeat(" ", 1000)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		topic.Close(nil)
		if n := server.Stats().Subscriptions; n != 1 {
			t.Errorf("%d subscriptions wait for their end", n)
		}
		close(gate)
		got, dropped := 0, 0
		for _, err := range sub.Events() {
			var gap *farcall.GapError
			switch {
			case errors.As(err, &gap):
				dropped += int(gap.Dropped)
			case err != nil:
				t.Fatal(err)
			default:
				got++
			}
		}
		if dropped == 0 || got+dropped != events {
			t.Errorf("%d events, %d dropped", got, dropped)
		}
	})
}

// With NoDrop the subscription of such a subscriber ends, after the events that it can have.
func TestTopicNoDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := farcall.Topic[string]{Buffer: 10, NoDrop: true}
		slow, _, _, gate := slowAndFast(t, &topic)
		for i := range 1000 {
			if err := topic.Publish(fmt.Sprint(i, strings.Repeat(" ", 1000))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := topic.Subscribers(); n != 1 {
			t.Errorf("%d subscribers", n)
		}
		close(gate)
		got, err := collect(slow.Events())
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) || wire.Code != jsonrpc.Overloaded ||
			!strings.Contains(string(wire.Data), "the subscriber does not read events") {
			t.Errorf("%v", err)
		}
		for i, v := range got {
			if !strings.HasPrefix(v, fmt.Sprint(i, " ")) {
				t.Fatalf("%d: %.10s", i, v)
			}
		}
		if len(got) < 100 || len(got) > 500 {
			t.Errorf("%d events", len(got))
		}
	})
}

// A client that does not take its events loses the oldest, too.
func TestSubscriptionNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 12_000
		var topic farcall.Topic[int]
		a, b := farcall.Pipe()
		p, _ := connect(t, a, b, nil, topicMux(&topic), nil, nil)
		sub, err := farcall.Subscribe[int](t.Context(), p, "news", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			if err := topic.Publish(i); err != nil {
				t.Fatal(err)
			}
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		var gap *farcall.GapError
		next := 0
		for v, err := range sub.Events() {
			switch {
			case errors.As(err, &gap):
				next += int(gap.Dropped)
				continue
			case err != nil || v != next:
				t.Fatalf("%d, want %d, %v", v, next, err)
			}
			if next++; next == events {
				break
			}
		}
		if gap == nil || gap.Dropped != 2000 ||
			gap.Error() != "farcall: 2000 events are missing: they came faster than they were taken" {
			t.Errorf("gap %v", gap)
		}
	})
}

// A topic can be streamed, and a subscriber may end while its event is written.
func TestTopicStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic farcall.Topic[int]
		a, b := farcall.Pipe()
		p, _ := connect(t, a, b, nil, topicMux(&topic), nil, nil)
		go func() {
			for topic.Subscribers() == 0 {
				synctest.Wait()
			}
			for i := range 3 {
				_ = topic.Publish(i)
			}
			topic.Close(nil)
		}()
		got, err := collect(farcall.Stream[int](t.Context(), p, "news", nil))
		if err != nil || fmt.Sprint(got) != "[0 1 2]" {
			t.Errorf("%v, %v", got, err)
		}
		if topic.Subscribers() != 0 {
			t.Error("a subscriber is left")
		}
	})
}

// A handler of the end of a connection may publish, also when publishing has found out that it
// ended.
func TestTopicPublishesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic farcall.Topic[string]
		mux := topicMux(&topic)
		a, b := farcall.Pipe()
		p, _ := connect(t, a, b, nil, mux, nil, &farcall.Options{OnClose: func(error) {
			_ = topic.Publish("left")
		}})
		gone, err := farcall.Subscribe[string](t.Context(), p, "news", nil)
		if err != nil {
			t.Fatal(err)
		}
		c, d := farcall.Pipe()
		q, _ := connect(t, c, d, nil, mux, nil, nil)
		sub, err := farcall.Subscribe[string](t.Context(), q, "news", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Close()
		if err := topic.Publish("event"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n := 0
		for v, err := range sub.Events() {
			if n++; err != nil || v != []string{"", "event", "left"}[n] {
				t.Fatalf("%d: %q %v", n, v, err)
			}
			if n == 2 {
				break
			}
		}
		if topic.Subscribers() != 1 {
			t.Errorf("%d subscribers", topic.Subscribers())
		}
		if _, err := collect(gone.Events()); !errors.Is(err, farcall.ErrClosed) {
			t.Error(err)
		}
	})
}

// A late answer to a subscribe call leaves no subscription open.
func TestSubscribeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux, release := farcall.NewMux(), make(chan struct{})
		farcall.HandleTopic(mux, "late", func(context.Context, struct{}) (*farcall.Topic[int], error) {
			// it does not mind its context
			<-release
			return new(farcall.Topic[int]), nil
		})
		slow := func(next farcall.Handler) farcall.Handler { // nor that the call was cancelled
			return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
				return next.ServeRPC(context.WithoutCancel(ctx), req)
			})
		}
		a, b := farcall.Pipe()
		p, server := connect(t, a, b, nil, mux, nil,
			&farcall.Options{Interceptors: []farcall.Interceptor{slow}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := farcall.Subscribe[int](ctx, p, "late", nil); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Fatal(err)
		}
		close(release)
		synctest.Wait()
		if n := server.Stats().Subscriptions; n != 0 {
			t.Errorf("%d subscriptions are left", n)
		}
		if n := p.Stats().Dropped; n != 0 {
			t.Errorf("%d answers were dropped", n)
		}
	})
}

func ExampleTopic() {
	var prices farcall.Topic[float64]
	mux := farcall.NewMux()
	farcall.HandleTopic(mux, "prices/changed",
		func(_ context.Context, p struct{ Symbol string }) (*farcall.Topic[float64], error) {
			if p.Symbol != "ACME" {
				return nil, jsonrpc.Errorf(1001, "unknown symbol %s", p.Symbol)
			}
			return &prices, nil
		})
	a, b := farcall.Pipe()
	server, client := farcall.NewPeer(a, mux, nil), farcall.NewPeer(b, nil, nil)
	defer server.Close()
	defer client.Close()

	ctx := context.Background()
	if _, err := farcall.Subscribe[float64](ctx, client, "prices/changed",
		[]string{"EMCA"}); err != nil {
		fmt.Println(err)
	}
	sub, err := farcall.Subscribe[float64](ctx, client, "prices/changed", []string{"ACME"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sub.Close()
	_ = prices.Publish(12.5) // to each subscriber
	prices.Close(nil)
	for price, err := range sub.Events() {
		if _, gap := errors.AsType[*farcall.GapError](err); gap {
			continue // prices were missed; this one does not need them
		}
		fmt.Println(price, err)
	}
	// Output:
	// unknown symbol EMCA (code 1001)
	// 12.5 <nil>
}
