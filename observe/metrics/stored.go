package metrics

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farcall-dev/farcall/store"
)

// Store returns a store that times each operation of s and counts those that fail. What a caller
// asks a store to find out is no failure: that a record is not there, that it has another version,
// that the time of a claim is over. How long Pull waits for an item is not measured.
func (m *Metrics) Store(s store.Store) store.Store { return &stored{s, m} }

// stored is a store that is measured. Close is that of the store.
type stored struct {
	store.Store

	m *Metrics
}

// storeMetrics are those of all stores.
type storeMetrics struct {
	took   *bounded[text, prometheus.Observer]
	failed *bounded[pair, prometheus.Counter]
}

func (r *registry) stores() storeMetrics {
	return storeMetrics{
		bound(r, storeTime, r.histogram(storeTime).WithLabelValues, text.values),
		bound(r, storeErrors, r.counter(storeErrors).WithLabelValues, pair.values),
	}
}

// took times an operation that has ended. It is deferred: began is when that was.
func (s *stored) took(op text, began time.Time, err *error) {
	s.m.stores.took.get(op).Observe(time.Since(began).Seconds())
	s.failed(op, *err)
}

// failed counts an operation if it failed.
func (s *stored) failed(op text, err error) {
	if reason := failureOf(err); reason != "" {
		s.m.stores.failed.get(pair{string(op), reason}).Inc()
	}
}

// failureOf says why an operation failed; "": it did not.
func failureOf(err error) string {
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrConflict),
		errors.Is(err, store.ErrPast), errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, store.ErrFull):
		return "full"
	case errors.Is(err, store.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, store.ErrClosed):
		return "closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "unknown_outcome" // see store.Store
}

// Claim implements store.Once.
func (s *stored) Claim(ctx context.Context, key string, until time.Time) (first bool, err error) {
	defer s.took("claim", time.Now(), &err)
	return s.Store.Claim(ctx, key, until)
}

// Release implements store.Once.
func (s *stored) Release(ctx context.Context, key string) (err error) {
	defer s.took("release", time.Now(), &err)
	return s.Store.Release(ctx, key)
}

// Since implements store.Once.
func (s *stored) Since(ctx context.Context) (at time.Time, err error) {
	defer s.took("since", time.Now(), &err)
	return s.Store.Since(ctx)
}

// Take implements store.Counter.
func (s *stored) Take(
	ctx context.Context, key string, n, limit int64, until time.Time,
) (granted int64, err error) {
	defer s.took("take", time.Now(), &err)
	return s.Store.Take(ctx, key, n, limit, until)
}

// Give implements store.Counter.
func (s *stored) Give(ctx context.Context, key string, n int64) (err error) {
	defer s.took("give", time.Now(), &err)
	return s.Store.Give(ctx, key, n)
}

// Put implements store.Records.
func (s *stored) Put(ctx context.Context, r *store.Record) (version uint64, err error) {
	defer s.took("put", time.Now(), &err)
	return s.Store.Put(ctx, r)
}

// Get implements store.Records.
func (s *stored) Get(ctx context.Context, owner, id string) (r *store.Record, err error) {
	defer s.took("get", time.Now(), &err)
	return s.Store.Get(ctx, owner, id)
}

// Delete implements store.Records.
func (s *stored) Delete(ctx context.Context, owner, id string) (err error) {
	defer s.took("delete", time.Now(), &err)
	return s.Store.Delete(ctx, owner, id)
}

// Adopt implements store.Records.
func (s *stored) Adopt(ctx context.Context) iter.Seq2[*store.Record, error] {
	return func(yield func(*store.Record, error) bool) {
		for r, err := range s.Store.Adopt(ctx) {
			s.failed("adopt", err)
			if !yield(r, err) {
				return
			}
		}
	}
}

// Push implements store.Queue.
func (s *stored) Push(ctx context.Context, queue string, data []byte) (err error) {
	defer s.took("push", time.Now(), &err)
	return s.Store.Push(ctx, queue, data)
}

// Pull implements store.Queue.
func (s *stored) Pull(ctx context.Context, queue string) (store.Item, error) {
	item, err := s.Store.Pull(ctx, queue)
	s.failed("pull", err)
	if err != nil {
		return item, err
	}
	return &storedItem{item, s}, nil
}

// Publish implements store.Bus.
func (s *stored) Publish(ctx context.Context, topic string, data []byte) (err error) {
	defer s.took("publish", time.Now(), &err)
	return s.Store.Publish(ctx, topic, data)
}

// Subscribe implements store.Bus.
func (s *stored) Subscribe(
	ctx context.Context, topic string, receive func(store.Message),
) (stop func(), err error) {
	defer s.took("subscribe", time.Now(), &err)
	return s.Store.Subscribe(ctx, topic, receive)
}

// storedItem is work of a store that is measured.
type storedItem struct {
	store.Item

	s *stored
}

// Done implements store.Item.
func (i *storedItem) Done(ctx context.Context) (err error) {
	defer i.s.took("done", time.Now(), &err)
	return i.Item.Done(ctx)
}

// Extend implements store.Item.
func (i *storedItem) Extend(ctx context.Context) (err error) {
	defer i.s.took("extend", time.Now(), &err)
	return i.Item.Extend(ctx)
}

// Return implements store.Item.
func (i *storedItem) Return(ctx context.Context) (err error) {
	defer i.s.took("return", time.Now(), &err)
	return i.Item.Return(ctx)
}
