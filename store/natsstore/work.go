package natsstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/internal/process"
)

// pullWait is how long one request for work waits at the engine. A worker that leaves takes no item
// with it.
const pullWait = 5 * time.Second

// Push implements [store.Queue].
func (s *Store) Push(ctx context.Context, queue string, data []byte) error {
	ctx, end := s.process.Bound(ctx)
	defer end()
	subject := s.subject(work, process.Hash(queue))
	_, err := s.publish(ctx, &nats.Msg{Subject: subject, Data: data}, 0, nil)
	return err
}

// consumer returns the consumer of a queue, which all processes share.
func (s *Store) consumer(ctx context.Context, queue string) (jetstream.Consumer, error) {
	s.mu.Lock()
	c := s.pulls[queue]
	s.mu.Unlock()
	switch {
	case s.process.Closed():
		return nil, store.ErrClosed
	case c != nil:
		return c, nil
	}
	ctx, end := s.process.Bound(ctx)
	defer end()
	c, err := s.streams[work].CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "work-" + process.Hash(queue), FilterSubject: s.subject(work, process.Hash(queue)),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: s.process.Lease, MaxDeliver: -1,
	})
	if err != nil {
		return nil, s.failed(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulls[queue] = c
	return c, nil
}

// Pull implements [store.Queue].
func (s *Store) Pull(ctx context.Context, queue string) (store.Item, error) {
	for {
		c, err := s.consumer(ctx, queue)
		if err != nil {
			return nil, err
		}
		m, err := s.pull(ctx, c)
		switch {
		case err == nil:
			meta, err := m.Metadata()
			if err != nil {
				return nil, fmt.Errorf("natsstore: an item without its description: %w", err)
			}
			return &item{s: s, msg: m, attempt: int(meta.NumDelivered)}, nil
		case s.process.Closed():
			return nil, store.ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoMessages),
			errors.Is(err, context.DeadlineExceeded):
			continue
		case errors.Is(err, jetstream.ErrConsumerDeleted), errors.Is(err, jetstream.ErrConsumerNotFound):
			s.mu.Lock()
			delete(s.pulls, queue)
			s.mu.Unlock()
		}
		select { // no leader, no connection
		case <-ctx.Done():
		case <-s.process.Context.Done():
		case <-time.After(retryWait):
		}
	}
}

func (s *Store) pull(ctx context.Context, c jetstream.Consumer) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	defer context.AfterFunc(s.process.Context, cancel)()
	return c.Next(jetstream.FetchContext(ctx))
}

// item is leased work.
type item struct {
	s       *Store
	msg     jetstream.Msg
	attempt int
}

// Data implements [store.Item].
func (i *item) Data() []byte { return i.msg.Data() }

// Attempt implements [store.Item].
func (i *item) Attempt() int { return i.attempt }

// Done implements [store.Item]: it waits until the engine has confirmed.
func (i *item) Done(ctx context.Context) error {
	ctx, end := i.s.process.Bound(ctx)
	defer end()
	if err := i.msg.DoubleAck(ctx); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return i.s.failed(err)
	}
	return nil
}

// Extend implements [store.Item].
func (i *item) Extend(context.Context) error { return i.s.failed(i.msg.InProgress()) }

// Return implements [store.Item].
func (i *item) Return(context.Context) error { return i.s.failed(i.msg.Nak()) }
