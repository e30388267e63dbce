package valkeystore

import (
	"context"
	"time"

	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/internal/process"
)

// Claim implements [store.Once].
func (s *Store) Claim(ctx context.Context, key string, until time.Time) (first bool, err error) {
	if !until.After(time.Now()) {
		return false, store.ErrPast
	}
	s.mu.Lock()
	birth := s.birth
	s.mu.Unlock()
	keys := []string{s.key("once:" + process.Hash(key)), s.key("birth")}
	n, err := s.number(ctx, claim, keys, s.process.ID, s.keep(until), birth)
	if err != nil || n >= 0 {
		return n == 1 && err == nil, err
	}
	ctx, end := s.process.Bound(ctx)
	defer end()
	if err := s.relearn(ctx); err != nil {
		return false, err
	}
	return false, errRebuilt
}

// Release implements [store.Once].
func (s *Store) Release(ctx context.Context, key string) error {
	_, err := s.run(ctx, release, []string{s.key("once:" + process.Hash(key))}, s.process.ID)
	return err
}

// Since implements [store.Once]. It is later by Skew than the start of the server, or than the time
// at which it became the primary.
func (s *Store) Since(ctx context.Context) (time.Time, error) {
	ctx, end := s.process.Bound(ctx)
	defer end()
	if err := s.relearn(ctx); err != nil {
		return time.Time{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := milliseconds(s.birth)
	return at.Add(s.process.Skew), err
}

// Take implements [store.Counter]. Sums are exact up to 2^53.
func (s *Store) Take(
	ctx context.Context, key string, n, limit int64, until time.Time,
) (granted int64, err error) {
	if !until.After(time.Now()) {
		return 0, store.ErrPast
	}
	return s.number(ctx, take, []string{s.key("sum:" + process.Hash(key))}, n, limit, s.keep(until))
}

// Give implements [store.Counter].
func (s *Store) Give(ctx context.Context, key string, n int64) error {
	_, err := s.run(ctx, give, []string{s.key("sum:" + process.Hash(key))}, n)
	return err
}
