package natsstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/internal/process"
)

// bus is one Subscribe of a topic.
type bus struct {
	s       *Store
	sub     *nats.Subscription
	stopped func()

	receiving sync.Mutex // held while receive runs
	receive   func(store.Message)
	dropped   int // messages that were lost because receive was slow
	ended     bool
}

func (s *Store) topic(topic string) string { return s.process.Name + ".bus." + process.Hash(topic) }

// Publish implements [store.Bus].
func (s *Store) Publish(_ context.Context, topic string, data []byte) error {
	if s.process.Closed() {
		return store.ErrClosed
	}
	return s.failed(s.nc.PublishMsg(&nats.Msg{Subject: s.topic(topic), Data: data}))
}

// Subscribe implements [store.Bus].
func (s *Store) Subscribe(
	ctx context.Context, topic string, receive func(store.Message),
) (stop func(), err error) {
	ctx, end := s.process.Bound(ctx)
	defer end()
	b := &bus{s: s, receive: receive}
	sub, err := s.nc.Subscribe(s.topic(topic), b.message)
	if err != nil {
		return nil, s.failed(err)
	}
	b.receiving.Lock()
	b.sub = sub
	b.receiving.Unlock()
	b.stopped = sync.OnceFunc(b.end)
	if !s.process.Subscribe(b) {
		b.Stop()
		return nil, store.ErrClosed
	}
	if err := s.nc.FlushWithContext(ctx); err != nil {
		b.Stop()
		return nil, fmt.Errorf("natsstore: subscribe: %w", s.failed(err))
	}
	return b.Stop, nil
}

func (b *bus) message(m *nats.Msg) {
	b.receiving.Lock()
	defer b.receiving.Unlock()
	if b.ended {
		return
	}
	if n, err := b.sub.Dropped(); err == nil && n > b.dropped {
		b.dropped = n
		b.receive(store.Message{Gap: true})
	}
	b.receive(store.Message{Data: m.Data})
}

// gap tells the subscriber that it may have missed messages.
func (b *bus) gap() {
	b.receiving.Lock()
	defer b.receiving.Unlock()
	if !b.ended {
		b.receive(store.Message{Gap: true})
	}
}

// Stop ends the subscription, once.
func (b *bus) Stop() { b.stopped() }

func (b *bus) end() {
	b.s.process.Unsubscribe(b)
	_ = b.sub.Unsubscribe() // it fails only where the connection is closed
	b.receiving.Lock()
	defer b.receiving.Unlock()
	b.ended = true
}
