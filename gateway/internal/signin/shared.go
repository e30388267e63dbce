package signin

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/store"
)

const (
	sharedFor = 100 * 365 * 24 * time.Hour
	goneFor   = time.Minute     // while it is known that a record was removed
	storeTime = 2 * time.Second // in which the store answers, if it decides
	// between two looks whether a record has changed, when nothing is heard
	lookEvery = 30 * time.Second
	maxSeen   = 1 << 16 // records

	claimTime  = 30 * time.Second // until the outcome of a request with a refresh token is unknown,
	clockSkew  = time.Minute      // by clocks that differ so much
	claimWait  = 15 * time.Second // for the renewal of another node
	claimPause = 500 * time.Millisecond
	savePause  = time.Second
	moveTries  = 30 // with a pause after each
)

// ErrStore means that the store of the nodes has not answered. What was to be done may be tried
// again.
var ErrStore = errors.New("the store that the nodes share does not answer; try again later")

// isLater reports whether the same may be done later.
func isLater(err error) bool { return errors.Is(err, ErrStore) || errors.Is(err, ErrFull) }

var (
	errRenewing = errors.New("signin: another node is renewing the tokens; try again later")
	errChanged  = errors.New("signin: another node has begun to renew the tokens") // look again
)

// shared is a disk of all processes with a store: a record for each name, and lists of the names,
// which are keyed hashes. A name stays in its list as long as the record is there.
type shared struct {
	records store.Records

	forgets atomic.Int64 // calls of forget
	mu      sync.Mutex
	seen    map[string]look // by name
}

// A look is what a record was when it was looked at.
type look struct {
	version uint64
	empty   bool
	at      time.Time // zero: it is looked at again
}

func newShared(records store.Records) *shared {
	return &shared{records: records, seen: map[string]look{}}
}

// roomOf is the owner of what is stored: each principal has its own share of the store, and so has
// each list.
func roomOf(id string) string { return "sign-ins " + id[:min(len(id), ownerSize)] }

// within bounds an operation of the store.
func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), storeTime) //nolint:forbidigo // it is short
}

func (*shared) String() string { return "the store" }

func (d *shared) read(name string) (text []byte, version uint64, err error) {
	forgets := d.forgets.Load()
	ctx, cancel := within()
	defer cancel()
	r, err := d.records.Get(ctx, roomOf(name), name)
	if errors.Is(err, store.ErrNotFound) {
		r, err = &store.Record{}, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("signin: %w: %w", ErrStore, err)
	}
	d.note(name, look{version: r.Version, empty: len(r.Value) == 0}, forgets)
	if len(r.Value) == 0 {
		return nil, r.Version, nil
	}
	return r.Value, r.Version, nil
}

// note takes what was found. When forget was called since forgets was read, that may be out of
// date.
func (d *shared) note(name string, is look, forgets int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if forgets == d.forgets.Load() {
		is.at = time.Now()
	}
	if len(d.seen) >= maxSeen {
		clear(d.seen)
	}
	d.seen[name] = is
}

// forget has the next stamp of a name look again; "" is all names.
func (d *shared) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgets.Add(1)
	for n, is := range d.seen {
		if n == name || name == "" {
			is.at = time.Time{}
			d.seen[n] = is
		}
	}
}

// write lists a new name first, for a process that ends meanwhile, and again, for one that removes
// the record before.
func (d *shared) write(name string, text []byte, version uint64) (err error) {
	d.mu.Lock()
	is := d.seen[name]
	d.mu.Unlock()
	listed := version > 0 && is.version == version && !is.empty
	if !listed {
		err = d.list(name, true)
	}
	if err == nil {
		err = d.put(name, text, version, sharedFor)
	}
	if err == nil && !listed {
		_ = d.list(name, true)
	}
	return err
}

// list puts a name in its list, or takes it out.
func (d *shared) list(name string, in bool) error {
	id := "names " + name[:2]
	return again(store.ErrConflict, func() error {
		text, version, err := d.read(id)
		all := strings.Fields(string(text))
		if err != nil || slices.Contains(all, name) == in {
			return err
		}
		if all = slices.DeleteFunc(all, func(n string) bool { return n == name }); in {
			all = append(all, name)
		}
		return d.put(id, []byte(strings.Join(all, " ")), version, sharedFor)
	})
}

func (d *shared) put(id string, text []byte, version uint64, life time.Duration) error {
	forgets := d.forgets.Load()
	ctx, cancel := within()
	defer cancel()
	version, err := d.records.Put(ctx, &store.Record{
		Owner: roomOf(id), ID: id, Version: version, Expires: time.Now().Add(life), Value: text,
	})
	switch {
	case err == nil:
		d.note(id, look{version: version, empty: len(text) == 0}, forgets)
	case errors.Is(err, store.ErrFull):
		err = ErrFull
	case !errors.Is(err, store.ErrConflict):
		d.forget(id)
		err = fmt.Errorf("signin: %w: %w", ErrStore, err)
	}
	return err
}

// remove leaves an empty record for a while: Delete removes whatever is there. The name is listed
// again when the record was written meanwhile.
func (d *shared) remove(name string, version uint64) error {
	err := d.put(name, nil, version, goneFor)
	if err == nil && d.list(name, false) == nil {
		if text, _, lost := d.read(name); lost != nil || text != nil {
			_ = d.list(name, true)
		}
	}
	return err
}

func (d *shared) names() (all []string, err error) {
	for i := range 256 {
		text, _, err := d.read(fmt.Sprintf("names %02x", i))
		if err != nil {
			return nil, err
		}
		all = append(all, strings.Fields(string(text))...)
	}
	return all, nil
}

// stamp is of what was seen last, while the store does not answer.
func (d *shared) stamp(name string) string {
	d.mu.Lock()
	is, ok := d.seen[name]
	d.mu.Unlock()
	if !ok || time.Since(is.at) >= lookEvery {
		forgets := d.forgets.Load()
		if _, version, err := d.read(name); err == nil {
			is.version = version
		} else if ok {
			d.note(name, is, forgets)
		}
	}
	return strconv.FormatUint(is.version, 10)
}

// lock is for disks without versions.
func (*shared) lock(context.Context, string) (func(), error) { return func() {}, nil }

// A claim lets one node send the refresh token of a record.
//
//	free ──Mark──▶ claimed ──Save──▶ free, with the new tokens
//	 ▲               │ │
//	 └─── unused ────┘ └─ claimTime: it is unknown whether the token was used. Where the authorization
//	                      server keeps its refresh tokens, another node goes on; else there are no
//	                      tokens until Save, or until another sign-in
//
// Each arrow is a compare-and-swap of the record.
type claim struct {
	ID    string `json:"id"`
	Until int64  `json:"until"` // Unix time in milliseconds
}

// over reports whether the time of a claim has passed. The nil claim has none.
func (c *claim) over() bool {
	return c == nil || time.Now().Add(-clockSkew).UnixMilli() >= c.Until
}

// lost reports whether it is unknown if the refresh token still counts. It must not be sent then.
func (r *record) lost() bool { return r.Claim != nil && !r.Keeps && r.Claim.over() }

// has reports whether a record has a claim.
func (r *record) has(mine string) bool { return r.Claim != nil && r.Claim.ID == mine }

// claiming are tokens with a refresh token that one node at a time sends.
type claiming struct{ *tokens }

// Lock is for mcpauth. It waits while another node has a claim, for claimWait since this node has
// seen that claim first, so that the next calls do not wait again. Clocks of nodes may differ.
func (t claiming) Lock(ctx context.Context, key string) (unlock func(), err error) {
	if unlock, err = t.tokens.Lock(ctx, key); err != nil {
		return nil, err
	}
	id, _ := t.of(key)
	for pause := claimPause / 32; ; pause = min(2*pause, claimPause) {
		_, rec, err := t.store.find(id)
		switch {
		case errors.Is(err, errDamaged) || err == nil && (rec == nil || rec.Claim.over()):
			return unlock, nil
		case err != nil:
		case rec.Claim.ID != t.awaited:
			t.awaited, t.since = rec.Claim.ID, time.Now()
		case time.Since(t.since) >= claimWait:
			err = errRenewing
		}
		if err == nil {
			select {
			case <-time.After(min(pause, claimWait-time.Since(t.since))):
				continue
			case <-ctx.Done():
				err = errRenewing
			}
		}
		unlock()
		return nil, err
	}
}

// Mark is for mcpauth: the refresh token that was loaded is about to be sent.
func (t claiming) Mark(_ context.Context, key string) (unused func(), err error) {
	if t.unsaved.Load() != nil { // it is not in the record yet
		return nil, errRenewing
	}
	id, mine, ours := t.id, rand.Text(), false
	unused = func() {
		_ = t.persist(func(r *record) bool {
			ours := r.has(mine)
			if ours {
				r.Claim = nil
			}
			return ours
		})
	}
	err = t.store.change(id, t.principal, func(r *record) bool {
		if ours = r.Claim.over() && !r.lost() && bytes.Equal(r.Entries[key], t.loaded); ours {
			r.Claim = &claim{mine, time.Now().Add(claimTime).UnixMilli()}
		}
		return ours
	})
	switch {
	case err != nil: // it may be claimed
		unused()
		return nil, err
	case !ours:
		return nil, errChanged
	}
	t.claim = mine
	return unused, nil
}

// Save is for mcpauth. Tokens that a renewal gave are not stored when the principal has signed in
// again, or out.
func (t claiming) Save(ctx context.Context, key string, value []byte) error {
	id, _ := t.of(key)
	mine := t.claim
	if id.Owner == "" || mine == "" {
		return t.tokens.Save(ctx, key, value)
	}
	t.claim = ""
	value = bytes.Clone(value)
	t.unsaved.Store(&value)
	return t.persist(func(r *record) bool {
		ours := r.has(mine)
		if ours {
			refresh := scan.Member(value, "refresh_token")
			r.Keeps = bytes.Equal(refresh, scan.Member(r.Entries[key], "refresh_token"))
			r.Claim, r.Entries[key] = nil, value
		}
		return ours
	})
}

// persist is change of what must not be lost: when the store does not answer, or is full, it goes
// on until it has the tokens, or the process ends.
func (t *tokens) persist(do func(*record) bool) error {
	unsaved := t.unsaved.Load()
	try := func() bool {
		err := t.store.change(t.id, t.principal, do)
		if !isLater(err) {
			t.unsaved.CompareAndSwap(unsaved, nil)
		}
		return !isLater(err)
	}
	if try() {
		return nil
	}
	t.store.wg.Go(func() {
		for done := false; !done; done = done || try() {
			select {
			case <-t.store.ctx.Done():
				done = true
			case <-time.After(savePause):
			}
		}
	})
	return nil
}
