package valkeystore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/internal/process"
)

// overhead is what a record, and an item, take beside their bytes.
const overhead = 512

// recordKeys are the keys of the scripts for records.
func (s *Store) recordKeys(record string) []string {
	return []string{record, s.key("record-ends"), s.key("record-costs"), s.key("record-owners")}
}

func (s *Store) recordKey(owner, id string) string {
	return s.key("record:" + process.Hash(process.Identity(owner, id)))
}

// Put implements [store.Records].
func (s *Store) Put(ctx context.Context, r *store.Record) (uint64, error) {
	data, err := r.MarshalBinary()
	if err != nil {
		return 0, err
	}
	if !r.Expires.After(time.Now()) {
		return 0, fmt.Errorf("valkeystore: the record has expired: %w", store.ErrPast)
	}
	group := "o" + process.Hash(r.Owner)
	if r.Group != "" {
		group = process.Hash(r.Group)
	}
	n, err := s.number(ctx, put, s.recordKeys(s.recordKey(r.Owner, r.ID)),
		strconv.FormatUint(r.Version, 10), process.Identity(r.Owner, r.ID)+"\x00"+r.Group, data,
		r.Expires.UnixMilli()+1, s.process.ID, len(data)+overhead, process.Hash(r.Owner), group,
		s.opts.MaxRecords)
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, store.ErrConflict
	case n < 0:
		return 0, store.ErrFull
	}
	return uint64(n), nil
}

// Get implements [store.Records].
func (s *Store) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	if s.process.Closed() {
		return nil, store.ErrClosed
	}
	ctx, end := s.process.Bound(ctx)
	defer end()
	found, err := s.client.HMGet(ctx, s.recordKey(owner, id), "v", "d").Result()
	if err != nil {
		return nil, s.failed(err)
	}
	r, err := decode(found)
	switch {
	case err != nil:
		return nil, err
	case r == nil || r.Owner != owner || r.ID != id || !r.Expires.After(time.Now()):
		return nil, store.ErrNotFound
	}
	return r, nil
}

// decode makes a record of its version and data; nil: there is none.
func decode(found []any) (*store.Record, error) {
	if len(found) != 2 || found[0] == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	text, is := found[0].(string)
	data, also := found[1].(string)
	version, err := strconv.ParseUint(text, 10, 64)
	if !is || !also || err != nil {
		return nil, fmt.Errorf("valkeystore: a record has the version %v", found[0])
	}
	var r store.Record
	if err := r.UnmarshalBinary([]byte(data)); err != nil {
		return nil, fmt.Errorf("valkeystore: %w", err)
	}
	r.Version = version
	return &r, nil
}

// Delete implements [store.Records].
func (s *Store) Delete(ctx context.Context, owner, id string) error {
	_, err := s.run(ctx, remove, s.recordKeys(s.recordKey(owner, id)))
	return err
}

// Adopt implements [store.Records]: it yields the records that a process which has ended wrote
// last, and makes this process their writer, by which their version grows: a writer that is not
// dead finds another version.
func (s *Store) Adopt(ctx context.Context) iter.Seq2[*store.Record, error] {
	return func(yield func(*store.Record, error) bool) {
		list, end := s.process.Bound(ctx)
		all, err := s.client.ZRange(list, s.key("record-ends"), 0, -1).Result()
		end()
		if err != nil {
			yield(nil, s.failed(err))
			return
		}
		for _, record := range all {
			r, err := s.adopt(ctx, record)
			if (r != nil || err != nil) && !yield(r, err) {
				return
			}
		}
	}
}

// adopt takes a record over when its writer has ended; nil: it is not for this process.
func (s *Store) adopt(ctx context.Context, record string) (*store.Record, error) {
	look, end := s.process.Bound(ctx)
	defer end()
	writer, err := s.client.HGet(look, record, "w").Result()
	switch {
	case errors.Is(err, redis.Nil), err == nil && writer == s.process.ID:
		return nil, nil //nolint:nilnil // it is not for this process
	case err != nil:
		return nil, s.failed(err)
	}
	found, err := s.run(ctx, adopt, []string{record, s.key("process:" + writer)}, writer, s.process.ID)
	switch {
	case errors.Is(err, redis.Nil): // the writer is there, or another process was faster
		return nil, nil //nolint:nilnil // it is not for this process
	case err != nil:
		return nil, err
	}
	parts, is := found.([]any)
	if !is {
		return nil, fmt.Errorf("valkeystore: the server answered %T for a record", found)
	}
	return decode(parts)
}

func (s *Store) present(ctx context.Context) error {
	ctx, end := s.process.Bound(ctx)
	defer end()
	return s.failed(s.client.Set(ctx, s.key("process:"+s.process.ID), 1, process.PresenceTTL).Err())
}
