package valkeystore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/internal/process"
)

// A Pull asks again after pullPause where there is no work, and after twice that, up to pullMax.
const (
	pullPause = 5 * time.Millisecond
	pullMax   = 160 * time.Millisecond
)

// The parts of a queue.
func (s *Store) waiting(queue string) string  { return s.key("work:" + process.Hash(queue)) }
func (s *Store) leased(queue string) string   { return s.key("leased:" + process.Hash(queue)) }
func (s *Store) data(queue string) string     { return s.key("data:" + process.Hash(queue)) }
func (s *Store) attempts(queue string) string { return s.key("attempts:" + process.Hash(queue)) }

// Push implements [store.Queue].
func (s *Store) Push(ctx context.Context, queue string, data []byte) error {
	keys := []string{s.waiting(queue), s.data(queue), s.key("work-number"), s.key("work-bytes")}
	n, err := s.number(ctx, push, keys, data, len(data)+overhead, s.opts.MaxWork)
	if err == nil && n == 0 {
		return store.ErrFull
	}
	return err
}

// Pull implements [store.Queue]. It asks the server from time to time, 6 to 200 times a second.
func (s *Store) Pull(ctx context.Context, queue string) (store.Item, error) {
	keys := []string{s.waiting(queue), s.leased(queue), s.data(queue), s.attempts(queue)}
	for pause := pullPause; ; pause = min(2*pause, pullMax) {
		found, err := s.run(ctx, pull, keys, s.process.Lease.Milliseconds())
		switch {
		case err == nil:
			return s.item(queue, found)
		case !errors.Is(err, redis.Nil) && !errors.Is(err, store.ErrUnavailable):
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.process.Context.Done():
			return nil, store.ErrClosed
		case <-time.After(pause):
		}
	}
}

// item is leased work.
type item struct {
	s         *Store
	queue, id string
	attempt   int
	data      []byte
}

// item makes an item of an answer: its id, attempt and data.
func (s *Store) item(queue string, found any) (*item, error) {
	parts, is := found.([]any)
	if !is || len(parts) != 3 {
		return nil, fmt.Errorf("valkeystore: the server answered %T for an item", found)
	}
	id, is := parts[0].(string)
	attempt, also := parts[1].(string)
	data, too := parts[2].(string)
	n, err := strconv.Atoi(attempt)
	if !is || !also || !too || err != nil {
		return nil, fmt.Errorf("valkeystore: the item %v of a queue has lost its data", parts[0])
	}
	return &item{s: s, queue: queue, id: id, attempt: n, data: []byte(data)}, nil
}

// Data implements [store.Item].
func (i *item) Data() []byte { return i.data }

// Attempt implements [store.Item].
func (i *item) Attempt() int { return i.attempt }

// Done implements [store.Item].
func (i *item) Done(ctx context.Context) error {
	s := i.s
	keys := []string{
		s.waiting(i.queue), s.leased(i.queue), s.data(i.queue), s.attempts(i.queue), s.key("work-bytes"),
	}
	_, err := s.run(ctx, done, keys, i.id, len(i.data)+overhead)
	return err
}

// Extend implements [store.Item].
func (i *item) Extend(ctx context.Context) error {
	return i.change(ctx, i.s.process.Lease.Milliseconds())
}

// Return implements [store.Item].
func (i *item) Return(ctx context.Context) error { return i.change(ctx, 0) }

func (i *item) change(ctx context.Context, lease int64) error {
	keys := []string{i.s.waiting(i.queue), i.s.leased(i.queue), i.s.attempts(i.queue)}
	n, err := i.s.number(ctx, change, keys, i.id, i.attempt, lease)
	if err == nil && n == 0 {
		return store.ErrNotFound
	}
	return err
}
