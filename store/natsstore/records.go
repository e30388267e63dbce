package natsstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/internal/process"
)

// writerHeader names the process that wrote a record last.
const writerHeader = "Farcall-Writer"

func (s *Store) recordSubject(owner, id string) string {
	return s.subject(records, process.Hash(process.Identity(owner, id)))
}

// read returns a record and its message; both nil: none is stored. One that has expired, and one
// that was deleted lately, has a message only.
func (s *Store) read(
	ctx context.Context, subject string,
) (*store.Record, *jetstream.RawStreamMsg, error) {
	m, err := s.last(ctx, records, subject)
	if err != nil || m == nil {
		return nil, nil, err
	}
	if len(m.Data) == 0 {
		return nil, m, nil
	}
	var r store.Record
	if err := r.UnmarshalBinary(m.Data); err != nil {
		return nil, nil, fmt.Errorf("natsstore: revision %d of the records: %w", m.Sequence, err)
	}
	if !r.Expires.After(time.Now()) {
		return nil, m, nil
	}
	return &r, m, nil
}

// Put implements [store.Records].
func (s *Store) Put(ctx context.Context, r *store.Record) (uint64, error) {
	ctx, end := s.process.Bound(ctx)
	defer end()
	subject := s.recordSubject(r.Owner, r.ID)
	for {
		old, m, err := s.read(ctx, subject)
		switch {
		case err != nil:
			return 0, err
		case old == nil && r.Version != 0, old != nil && !replaces(r, old):
			return 0, store.ErrConflict
		}
		version, err := s.write(ctx, subject, r, m)
		if !errors.Is(err, store.ErrConflict) {
			return version, err
		}
		// Another write was first, or is under way and may come to nothing: look again.
		if err := s.pause(ctx); err != nil {
			return 0, err
		}
	}
}

// replaces reports whether a record may be put in place of another.
func replaces(r, old *store.Record) bool {
	return old.Version == r.Version && old.Owner == r.Owner && old.ID == r.ID && old.Group == r.Group
}

// write writes a record in place of a message.
func (s *Store) write(
	ctx context.Context, subject string, r *store.Record, m *jetstream.RawStreamMsg,
) (version uint64, err error) {
	written := *r
	written.Version++
	data, err := written.MarshalBinary()
	if err != nil {
		return 0, err
	}
	out := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		writerHeader: {s.process.ID}, ownerHeader: {process.Hash(r.Owner)},
		endHeader: {strconv.FormatInt(r.Expires.Unix(), 10)},
	}}
	if r.Group != "" {
		out.Header.Set(groupHeader, process.Hash(r.Group))
	}
	if !s.shares.fits(subject, out, len(data)) {
		return 0, store.ErrFull
	}
	revision, err := s.publish(ctx, out, s.keep(r.Expires), sequence(m))
	switch {
	case conflict(err):
		return 0, store.ErrConflict
	case err != nil:
		return 0, err
	}
	s.shares.note(subject, out.Header, len(data), revision)
	return written.Version, nil
}

// Get implements [store.Records].
func (s *Store) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	ctx, end := s.process.Bound(ctx)
	defer end()
	r, _, err := s.read(ctx, s.recordSubject(owner, id))
	switch {
	case err != nil:
		return nil, err
	case r == nil || r.Owner != owner || r.ID != id:
		return nil, store.ErrNotFound
	}
	return r, nil
}

// Delete implements [store.Records].
func (s *Store) Delete(ctx context.Context, owner, id string) error {
	ctx, end := s.process.Bound(ctx)
	defer end()
	subject := s.recordSubject(owner, id)
	for {
		m, err := s.last(ctx, records, subject)
		if err != nil || m == nil || len(m.Data) == 0 {
			return err
		}
		// A revision that is removed (DeleteMsg) could come back: the engine compares the revisions
		// of a Put before it, and applies the Put after it. Among writes there is an order.
		revision, err := s.publish(ctx, &nats.Msg{Subject: subject}, s.keep(time.Now()), sequence(m))
		if err == nil {
			s.shares.forget(subject, revision)
		}
		if !conflict(err) {
			return err
		}
		if err := s.pause(ctx); err != nil {
			return err
		}
	}
}

// Adopt implements [store.Records]: it yields the records that another process has written last,
// and makes this process their writer, by which their version grows: a writer that is not dead
// finds another version.
func (s *Store) Adopt(ctx context.Context) iter.Seq2[*store.Record, error] {
	return func(yield func(*store.Record, error) bool) {
		for subject := range s.shares.subjects() {
			r, err := s.adopt(ctx, subject)
			if (r != nil || err != nil) && !yield(r, err) {
				return
			}
		}
	}
}

// adopt takes a record over when its writer has ended; nil: it is not for this process.
func (s *Store) adopt(ctx context.Context, subject string) (*store.Record, error) {
	ctx, end := s.process.Bound(ctx)
	defer end()
	r, m, err := s.read(ctx, subject)
	if err != nil || r == nil {
		return nil, err
	}
	if there, err := s.alive(ctx, m.Header.Get(writerHeader)); err != nil || there {
		return nil, err
	}
	r.Version, err = s.write(ctx, subject, r, m)
	if errors.Is(err, store.ErrConflict) { // another process was faster
		return nil, nil //nolint:nilnil // it is not for this process
	}
	return r, err
}
