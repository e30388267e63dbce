package valkeystore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/internal/process"
)

// reconnectPause is how long a subscriber waits where the server cannot be reached.
const reconnectPause = 100 * time.Millisecond

// bus is one Subscribe of a topic.
type bus struct {
	pubsub *redis.PubSub
	ended  chan struct{}
	stop   func()
}

// Stop ends the subscription, once.
func (b *bus) Stop() { b.stop() }

func (s *Store) topic(topic string) string { return s.key("bus:" + process.Hash(topic)) }

// Publish implements [store.Bus].
func (s *Store) Publish(ctx context.Context, topic string, data []byte) error {
	if s.process.Closed() {
		return store.ErrClosed
	}
	ctx, end := s.process.Bound(ctx)
	defer end()
	return s.failed(s.client.Publish(ctx, s.topic(topic), data).Err())
}

// Subscribe implements [store.Bus]. It has a connection to itself.
func (s *Store) Subscribe(
	ctx context.Context, topic string, receive func(store.Message),
) (stop func(), err error) {
	if s.process.Closed() {
		return nil, store.ErrClosed
	}
	first, end := s.process.Bound(ctx)
	defer end()
	b := &bus{pubsub: s.client.Subscribe(first, s.topic(topic)), ended: make(chan struct{})}
	if _, err := b.pubsub.Receive(first); err != nil { // the answer to the subscription
		_ = b.pubsub.Close() // it fails only where it is closed
		return nil, s.failed(err)
	}
	ending, cancel := context.WithCancel(s.process.Context)
	b.stop = sync.OnceFunc(func() {
		cancel()
		_ = b.pubsub.Close() // it fails only where it is closed
		<-b.ended
		s.process.Unsubscribe(b)
	})
	open := s.process.Subscribe(b)
	s.process.Wait.Go(func() {
		defer close(b.ended)
		b.deliver(ending, receive)
	})
	if !open {
		b.stop()
		return nil, store.ErrClosed
	}
	return b.stop, nil
}

// deliver calls receive until ctx ends. The client connects and subscribes again where the
// connection has ended: then there is a gap.
func (b *bus) deliver(ctx context.Context, receive func(store.Message)) {
	for ctx.Err() == nil {
		m, err := b.pubsub.Receive(ctx)
		switch m := m.(type) {
		case *redis.Subscription:
			receive(store.Message{Gap: true})
		case *redis.Message:
			receive(store.Message{Data: []byte(m.Payload)})
		}
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(reconnectPause):
			}
		}
	}
}
