package natsstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/internal/process"
)

// birthKey is the subject of the message that says when the store began. Those of claims are
// hashes.
const birthKey = "birth"

// birth is the beginning of the claims that a process knows.
type birth struct {
	id string
	at time.Time
}

// born returns the birth of the store, and makes it where there is none: at the first start, and
// after all claims were lost. With known it makes it the one that this process relies on from now
// on.
func (s *Store) born(ctx context.Context, known bool) (*birth, error) {
	subject := s.subject(claims, birthKey)
	for {
		m, err := s.last(ctx, claims, subject)
		switch {
		case err != nil:
			return nil, err
		case m != nil:
			b := &birth{id: string(m.Data), at: m.Time.Add(s.process.Skew)}
			if known {
				s.mu.Lock()
				s.birth = b
				s.mu.Unlock()
			}
			return b, nil
		}
		id := s.process.ID + time.Now().Format(time.RFC3339Nano)
		made := &nats.Msg{Subject: subject, Data: []byte(id)}
		if _, err := s.publish(ctx, made, 0, new(uint64)); err != nil && !conflict(err) {
			return nil, err
		}
	}
}

// Claim implements [store.Once].
func (s *Store) Claim(ctx context.Context, key string, until time.Time) (first bool, err error) {
	if !until.After(time.Now()) {
		return false, store.ErrPast
	}
	ctx, end := s.process.Bound(ctx)
	defer end()
	s.mu.Lock()
	known := s.birth
	s.mu.Unlock()
	subject := s.subject(claims, process.Hash(key))
	for {
		m := &nats.Msg{Subject: subject, Data: []byte(s.process.ID)}
		_, err = s.publish(ctx, m, s.keep(until), new(uint64))
		if err == nil {
			break
		}
		if !conflict(err) {
			return false, err
		}
		// Another claim was first, or is under way and may come to nothing: look.
		if m, err := s.last(ctx, claims, subject); m != nil || err != nil {
			return false, err
		}
		if err := s.pause(ctx); err != nil {
			return false, err
		}
	}
	// Had the store lost its claims before this one, its birth would be another now.
	now, err := s.born(ctx, false)
	if err != nil {
		return false, err
	}
	if now.id != known.id {
		if _, err := s.born(ctx, true); err != nil {
			return false, err
		}
		return false, errRebuilt
	}
	return true, nil
}

// Release implements [store.Once].
func (s *Store) Release(ctx context.Context, key string) error {
	ctx, end := s.process.Bound(ctx)
	defer end()
	m, err := s.last(ctx, claims, s.subject(claims, process.Hash(key)))
	if err != nil || m == nil || string(m.Data) != s.process.ID {
		return err
	}
	return s.remove(ctx, claims, m.Sequence)
}

// remove removes one revision, if it is there.
func (s *Store) remove(ctx context.Context, kind int, revision uint64) error {
	if err := s.streams[kind].DeleteMsg(ctx, revision); err != nil && !gone(err) {
		return s.failed(err)
	}
	return nil
}

// Since implements [store.Once]. It is later than the birth of the store by Skew.
func (s *Store) Since(ctx context.Context) (time.Time, error) {
	ctx, end := s.process.Bound(ctx)
	defer end()
	b, err := s.born(ctx, true)
	if err != nil {
		return time.Time{}, err
	}
	return b.at, nil
}

// Take implements [store.Counter].
func (s *Store) Take(
	ctx context.Context, key string, n, limit int64, until time.Time,
) (granted int64, err error) {
	if !until.After(time.Now()) {
		return 0, store.ErrPast
	}
	err = s.count(ctx, key, func(sum int64, there bool) (int64, bool) {
		granted = max(min(n, limit-sum), 0)
		return sum + granted, granted > 0 || !there
	}, until)
	if err != nil {
		return 0, err
	}
	return granted, nil
}

// Give implements [store.Counter].
func (s *Store) Give(ctx context.Context, key string, n int64) error {
	return s.count(ctx, key, func(sum int64, there bool) (int64, bool) {
		return max(sum-n, 0), there
	}, time.Time{})
}

// count replaces the sum of a key by what next says, or leaves it.
func (s *Store) count(
	ctx context.Context, key string, next func(sum int64, there bool) (int64, bool), until time.Time,
) error {
	ctx, end := s.process.Bound(ctx)
	defer end()
	subject := s.subject(sums, process.Hash(key))
	for {
		m, err := s.last(ctx, sums, subject)
		if err != nil {
			return err
		}
		var sum int64
		if m != nil {
			if len(m.Data) != 16 {
				return fmt.Errorf("natsstore: the sum of %q has %d bytes, of 16", key, len(m.Data))
			}
			sum = int64(binary.BigEndian.Uint64(m.Data))
			until = time.Unix(0, int64(binary.BigEndian.Uint64(m.Data[8:])))
		}
		sum, write := next(sum, m != nil)
		if !write {
			return nil
		}
		data := binary.BigEndian.AppendUint64(nil, uint64(sum))
		data = binary.BigEndian.AppendUint64(data, uint64(until.UnixNano()))
		out := &nats.Msg{Subject: subject, Data: data}
		if _, err = s.publish(ctx, out, s.keep(until), sequence(m)); !conflict(err) {
			return err
		}
		if err := s.pause(ctx); err != nil {
			return err
		}
	}
}
