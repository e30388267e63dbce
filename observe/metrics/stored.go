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

// took times an operation that has ended.
func (s *stored) took(op text, began time.Time, err error) {
	s.m.stores.took.get(op).Observe(time.Since(began).Seconds())
	s.failed(op, err)
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
func (s *stored) Claim(ctx context.Context, key string, until time.Time) (bool, error) {
	began := time.Now()
	first, err := s.Store.Claim(ctx, key, until)
	s.took("claim", began, err)
	return first, err
}

// Release implements store.Once.
func (s *stored) Release(ctx context.Context, key string) error {
	began := time.Now()
	err := s.Store.Release(ctx, key)
	s.took("release", began, err)
	return err
}

// Since implements store.Once.
func (s *stored) Since(ctx context.Context) (time.Time, error) {
	began := time.Now()
	at, err := s.Store.Since(ctx)
	s.took("since", began, err)
	return at, err
}

// Take implements store.Counter.
func (s *stored) Take(
	ctx context.Context, key string, n, limit int64, until time.Time,
) (int64, error) {
	began := time.Now()
	granted, err := s.Store.Take(ctx, key, n, limit, until)
	s.took("take", began, err)
	return granted, err
}

// Give implements store.Counter.
func (s *stored) Give(ctx context.Context, key string, n int64) error {
	began := time.Now()
	err := s.Store.Give(ctx, key, n)
	s.took("give", began, err)
	return err
}

// Put implements store.Records.
func (s *stored) Put(ctx context.Context, r *store.Record) (uint64, error) {
	began := time.Now()
	version, err := s.Store.Put(ctx, r)
	s.took("put", began, err)
	return version, err
}

// Get implements store.Records.
func (s *stored) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	began := time.Now()
	r, err := s.Store.Get(ctx, owner, id)
	s.took("get", began, err)
	return r, err
}

// Delete implements store.Records.
func (s *stored) Delete(ctx context.Context, owner, id string) error {
	began := time.Now()
	err := s.Store.Delete(ctx, owner, id)
	s.took("delete", began, err)
	return err
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
func (s *stored) Push(ctx context.Context, queue string, data []byte) error {
	began := time.Now()
	err := s.Store.Push(ctx, queue, data)
	s.took("push", began, err)
	return err
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
func (s *stored) Publish(ctx context.Context, topic string, data []byte) error {
	began := time.Now()
	err := s.Store.Publish(ctx, topic, data)
	s.took("publish", began, err)
	return err
}

// Subscribe implements store.Bus.
func (s *stored) Subscribe(
	ctx context.Context, topic string, receive func(store.Message),
) (func(), error) {
	began := time.Now()
	stop, err := s.Store.Subscribe(ctx, topic, receive)
	s.took("subscribe", began, err)
	return stop, err
}

// storedItem is work of a store that is measured.
type storedItem struct {
	store.Item

	s *stored
}

// Done implements store.Item.
func (i *storedItem) Done(ctx context.Context) error {
	began := time.Now()
	err := i.Item.Done(ctx)
	i.s.took("done", began, err)
	return err
}

// Extend implements store.Item.
func (i *storedItem) Extend(ctx context.Context) error {
	began := time.Now()
	err := i.Item.Extend(ctx)
	i.s.took("extend", began, err)
	return err
}

// Return implements store.Item.
func (i *storedItem) Return(ctx context.Context) error {
	began := time.Now()
	err := i.Item.Return(ctx)
	i.s.took("return", began, err)
	return err
}
