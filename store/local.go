package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	defaultMemory = 256 << 20
	defaultDisk   = 1 << 30

	// overhead is what a record costs beside its texts and value: a block of a file system. So a
	// small value always fits where a record is stored already.
	overhead = 4096
	// sweepPause is the least time between two sweeps for expired records.
	sweepPause = time.Second
)

// Options adjust a store. The zero value, and nil, mean the defaults.
type Options struct {
	// MaxBytes bounds the records, each with 4 KiB of overhead. One owner, and one group, may hold as
	// much as is left free: alone half of it. Default 256 MiB in memory, 1 GiB in a directory.
	MaxBytes int
	// Logger takes what was found in the directory that is no record. Default [slog.Default].
	Logger *slog.Logger
	// Lease is how long a worker may keep an item of a queue without a sign of life, for [NewMemory].
	// Default 30 s.
	Lease time.Duration
}

// A Local is a Records of this process, in memory or in a directory.
type Local struct {
	logger *slog.Logger
	files  *files // nil: in memory

	// writing is held while a record is written, one of them for each record.
	writing [64]sync.Mutex

	mu      sync.Mutex
	entries map[string]*entry // by name
	held    *share.Ledger     // bytes, by owner
	timer   *time.Timer       // of the next sweep
	next    time.Time         // when that is
	closed  bool
	failed  error // of the disk, which leaves unknown what it has
}

var _ Records = (*Local)(nil)

// errExpired is a conflict with a record that has expired and is to be removed.
var errExpired = fmt.Errorf("%w, which has expired", ErrConflict)

// entry is what is known of a stored record.
type entry struct {
	owner   owner.Key
	version uint64
	expires time.Time
	cost    int
	record  *Record // nil: in its file
}

// New returns a store in memory, which ends with the process.
func New(o *Options) *Local { return newLocal(o, defaultMemory) }

func newLocal(o *Options, size int) *Local {
	o = cmp.Or(o, &Options{})
	return &Local{
		logger: cmp.Or(o.Logger, slog.Default()), entries: map[string]*entry{},
		held: share.NewLedger(share.Bounds{Total: cmp.Or(o.MaxBytes, size)}),
	}
}

// Close stops the store, and lets another process open its directory. Records stay.
func (l *Local) Close() error {
	for i := range l.writing { // what is being written is written
		l.writing[i].Lock()
		defer l.writing[i].Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.files == nil {
		return nil
	}
	return l.files.close()
}

// nameOf returns the name of a record, which says nothing of its owner.
func nameOf(owner, id string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d:%s%s", len(owner), owner, id)
	return hex.EncodeToString(h.Sum(nil)[:20])
}

// lock locks a record for writing.
func (l *Local) lock(name string) (unlock func()) {
	m := &l.writing[int(name[0]^name[1]<<3)%len(l.writing)]
	m.Lock()
	return m.Unlock
}

func ownerOf(r *Record) owner.Key {
	k := owner.Named(r.Owner)
	if r.Group != "" && !k.IsZero() {
		k = k.In(owner.Named(r.Group))
	}
	return k
}

func costOf(r *Record) int {
	return overhead + len(r.Owner) + len(r.Group) + len(r.ID) + len(r.Value)
}

// Put implements [Records].
func (l *Local) Put(_ context.Context, r *Record) (uint64, error) {
	version, err := l.put(r)
	if errors.Is(err, ErrFull) || errors.Is(err, errExpired) {
		l.sweep()
		version, err = l.put(r)
	}
	return version, err
}

func (l *Local) put(r *Record) (uint64, error) {
	name := nameOf(r.Owner, r.ID)
	defer l.lock(name)()
	written := *r
	written.Version++
	grown, err := l.reserve(name, &written)
	if err != nil {
		return 0, err
	}
	e := &entry{owner: ownerOf(r), version: written.Version, expires: r.Expires, cost: costOf(r)}
	if l.files == nil {
		written.Value = slices.Clone(r.Value)
		e.record = &written
	} else if unsure, err := l.files.write(name, &written); err != nil {
		err = fmt.Errorf("store: write a record: %w", err)
		l.mu.Lock()
		defer l.mu.Unlock()
		if grown > 0 {
			l.held.Give(e.owner, grown)
		}
		if unsure {
			l.failed = fmt.Errorf(
				"%w; the disk has failed, and nothing more is written until the store is opened again", err)
		}
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if grown < 0 {
		l.held.Give(e.owner, -grown)
	}
	l.entries[name] = e
	l.scheduleLocked(e.expires)
	return e.version, nil
}

// reserve checks the version that is to be replaced, and books what the new record costs more. It
// returns by how much the record grows.
func (l *Local) reserve(name string, r *Record) (grown int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return 0, ErrClosed
	case l.failed != nil:
		return 0, l.failed
	}
	old := l.entries[name]
	if old == nil {
		old = &entry{owner: ownerOf(r)}
	} else if !old.expires.After(time.Now()) {
		return 0, errExpired
	}
	if old.version != r.Version-1 || old.owner != ownerOf(r) {
		return 0, ErrConflict
	}
	grown = costOf(r) - old.cost
	if grown > 0 && !l.held.Take(old.owner, grown) {
		return 0, ErrFull
	}
	return grown, nil
}

// Get implements [Records].
func (l *Local) Get(_ context.Context, owner, id string) (*Record, error) {
	return l.get(nameOf(owner, id))
}

func (l *Local) get(name string) (*Record, error) {
	l.mu.Lock()
	e, closed := l.entries[name], l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case e == nil, !e.expires.After(time.Now()):
		return nil, ErrNotFound
	case e.record != nil:
		return e.record, nil
	}
	r, err := l.files.read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !l.has(name, e):
		return l.get(name)
	case err != nil:
		return nil, fmt.Errorf("store: read a record: %w", err)
	}
	return r, nil
}

// has reports, when no write of the record is under way, whether it is still that one: its file may
// be gone before the entry is.
func (l *Local) has(name string, e *entry) bool {
	defer l.lock(name)()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[name] == e
}

// Delete implements [Records].
func (l *Local) Delete(_ context.Context, owner, id string) error {
	return l.remove(nameOf(owner, id), func(*entry) bool { return true })
}

// remove removes a record if which says so.
func (l *Local) remove(name string, which func(*entry) bool) error {
	defer l.lock(name)()
	l.mu.Lock()
	e, closed := l.entries[name], l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case e == nil || !which(e):
		return nil
	}
	if l.files != nil {
		if err := l.files.remove(name); err != nil {
			return fmt.Errorf("store: remove a record: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, name)
	l.held.Give(e.owner, e.cost)
	return nil
}

// Adopt implements [Records]: it yields all records. The directory had another writer before, if
// any.
func (l *Local) Adopt(context.Context) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		l.mu.Lock()
		names := slices.Sorted(maps.Keys(l.entries))
		l.mu.Unlock()
		for _, name := range names {
			r, err := l.get(name)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// Used returns how many bytes all records take of MaxBytes, and how many records there are.
func (l *Local) Used() (bytes, records int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held.Used(), len(l.entries)
}

// sweep removes the expired records.
func (l *Local) sweep() {
	now := time.Now()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	var expired []string
	first := time.Time{}
	for name, e := range l.entries {
		switch {
		case !e.expires.After(now):
			expired = append(expired, name)
		case first.IsZero() || e.expires.Before(first):
			first = e.expires
		}
	}
	l.next = time.Time{}
	if !first.IsZero() {
		l.scheduleLocked(first)
	}
	l.mu.Unlock()
	for _, name := range expired {
		if err := l.remove(name, func(e *entry) bool { return !e.expires.After(now) }); err != nil &&
			!errors.Is(err, ErrClosed) {
			l.logger.Warn("store: an expired record stays", slog.String("name", name),
				slog.Any("error", err))
		}
	}
}

// scheduleLocked has the next sweep at a time, unless one is earlier.
func (l *Local) scheduleLocked(at time.Time) {
	if !l.next.IsZero() && !at.Before(l.next) {
		return
	}
	wait := max(time.Until(at), sweepPause)
	l.next = time.Now().Add(wait)
	if l.timer != nil {
		l.timer.Stop()
	}
	l.timer = time.AfterFunc(wait, l.sweep)
}
