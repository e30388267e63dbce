package pin

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/store"
)

// Errors of pins that are shared.
var (
	ErrOther = errors.New("something else was accepted meanwhile: look at the changes again")
	ErrStore = errors.New("the store that the nodes share does not answer")
)

// Shared are pins of all processes with a store: a record for each source, replaced by
// compare-and-swap. A record has the digests of all that was accepted before, so that a lock file
// is taken once, by the first process that has it: one that was accepted earlier changes nothing.
type Shared struct {
	File    string // a farcall.lock
	Records store.Records
	Changed func(source string) // is called when this process has written a record
}

const (
	sharedOwner = "pins"
	sharedFor   = 100 * 365 * 24 * time.Hour
	maxAccepted = 1000 // digests, 64 KB
)

// AcceptAll is Accept for all lists of a source.
func (l *Lock) AcceptAll(source string, all map[string][]jsonrpc.Raw) error {
	for list, items := range all {
		if err := l.Accept(source, list, items); err != nil {
			return err
		}
	}
	return nil
}

// Load returns what was accepted of sources. What the file has of one, and was never accepted, it
// accepts. ErrStore: it is not known now.
func (s *Shared) Load(ctx context.Context, sources []string) (*Lock, error) {
	file, err := Load(s.File)
	if err != nil {
		return nil, err
	}
	l := New()
	for _, source := range sources {
		own := file.Of(source)
		r, err := s.read(ctx, source)
		for err == nil && len(own.sources) > 0 && !slices.Contains(r.accepted, own.Digest()) {
			if err = s.write(ctx, source, r, own); err == nil || errors.Is(err, store.ErrConflict) {
				r, err = s.read(ctx, source)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the pins of %s: %w", source, err)
		}
		l.sources[source], l.versions[source] = r.sources[source], r.versions[source]
	}
	return l, nil
}

// Same reports whether two locks were read from the same records.
func (l *Lock) Same(other *Lock) bool { return maps.Equal(l.versions, other.versions) }

// Accept makes what a source lists what was accepted, in place of what the lock has of it.
// ErrOther: something else was accepted since the lock was loaded, and that stays.
func (s *Shared) Accept(
	ctx context.Context, lock *Lock, source string, all map[string][]jsonrpc.Raw,
) error {
	next := New()
	if err := next.AcceptAll(source, all); err != nil {
		return err
	}
	r, err := s.read(ctx, source)
	switch {
	case err != nil:
		return err
	case r.versions[source] != 0 && r.Digest() == next.Digest():
		err = s.put(ctx, source, r, r) // what is read may be old: only a write decides
	case r.versions[source] != lock.versions[source]:
		return ErrOther
	default:
		err = s.write(ctx, source, r, next)
	}
	if errors.Is(err, store.ErrConflict) {
		return ErrOther
	}
	return err
}

// read returns what is stored of a source; of version 0 when nothing is.
func (s *Shared) read(ctx context.Context, source string) (*Lock, error) {
	stored, err := s.Records.Get(ctx, sharedOwner, source)
	if errors.Is(err, store.ErrNotFound) {
		return New(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	packed, err := gzip.NewReader(bytes.NewReader(stored.Value))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(packed, 2*maxFile))
	if err != nil {
		return nil, err
	}
	l, err := Parse(text)
	if err == nil {
		l.versions[source] = stored.Version
	}
	return l, err
}

// write makes a Lock what is accepted of a source, in place of what is stored.
func (s *Shared) write(ctx context.Context, source string, r, next *Lock) error {
	next.accepted = append(slices.Clone(r.accepted), next.Digest())
	next.accepted = next.accepted[max(0, len(next.accepted)-maxAccepted):]
	err := s.put(ctx, source, r, next)
	if err == nil {
		s.Changed(source)
	}
	return err
}

// put stores a Lock in place of what is stored of a source. After an error other than a conflict it
// may be stored.
func (s *Shared) put(ctx context.Context, source string, r, next *Lock) error {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(next.Bytes())
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	_, err = s.Records.Put(ctx, &store.Record{
		Owner: sharedOwner, ID: source, Version: r.versions[source], Expires: time.Now().Add(sharedFor),
		Value: packed.Bytes(),
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return nil
}
