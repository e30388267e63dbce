package signin

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/seal"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/store"
)

// An ID names a record: the tokens of one owner for one upstream.
type ID struct {
	// Owner is the text of the key of the owner (owner.Key.Text). "": the gateway itself, which has no
	// tokens, and its registrations at authorization servers.
	Owner string
	// Upstream is the name of the upstream.
	Upstream string
}

// String names the upstream. The owner is not for people.
func (id ID) String() string { return "the sign-in to " + id.Upstream }

// bytes are those that the record is bound to, different for different IDs.
func (id ID) bytes() []byte {
	b := binary.AppendUvarint(nil, uint64(len(id.Owner)))
	return append(append(b, id.Owner...), id.Upstream...)
}

// A Store keeps records. Each is sealed (AES-256-GCM) and bound to its ID, so that a copy of it is
// of no use for another owner or upstream. Its methods may be called by any number of goroutines,
// and several processes may use the directory or the records.
type Store struct {
	keys   []storeKey
	box    *seal.Box // of attempts
	disk   disk
	claims bool       // nodes share it
	mu     sync.Mutex // while a file is changed

	ctx    context.Context //nolint:containedctx // of what is stored later; it ends with the store
	cancel context.CancelFunc
	wg     sync.WaitGroup

	busy sync.Mutex           // guards held
	held map[ID]chan struct{} // while a token request is in flight; closed when that has ended
}

// A storeKey is what is derived from a key of the configuration.
type storeKey struct {
	id   [keyIDSize]byte
	name []byte // makes the names of records
	aead cipher.AEAD
}

// A disk is where records are: memory, a directory, or the store that nodes share. That one has
// versions: a record is written or removed only if it still has the version that was read, and
// otherwise the error is store.ErrConflict.
type disk interface { //nolint:interfacebloat // it is a small file system
	// read returns nil when there is no such record.
	read(name string) (text []byte, version uint64, err error)
	write(name string, text []byte, version uint64) error
	remove(name string, version uint64) error
	names() ([]string, error)
	String() string
	// stamp differs when a record was written since. "": there is none.
	stamp(name string) string
	// lock keeps other processes away.
	lock(ctx context.Context, name string) (unlock func(), err error)
}

// ErrKey means that records were sealed with a key that is not among those of the store.
var ErrKey = errors.New("sealed with a key that is not in the configuration")

// errDamaged means that a record was changed, or copied from another owner or upstream.
var errDamaged = errors.New(
	"signin: a record is damaged, or was copied from another owner or upstream; remove it and " +
		"sign in again")

// Open returns the store in a directory, which it makes if it is not there; "" is memory. The first
// key seals, each one opens, and they have seal.KeySize bytes. Without keys the store makes one,
// which ends with the process: that is for memory only.
//
// Records that another key than the first one has sealed are sealed again with the first one. Where
// no key opens a record, Open fails with ErrKey and changes nothing.
func Open(dir string, keys [][]byte) (*Store, error) {
	if len(keys) == 0 {
		if dir != "" {
			return nil, errors.New("signin: a directory needs a key")
		}
		key := make([]byte, seal.KeySize)
		rand.Read(key)
		keys = [][]byte{key}
	}
	s, err := newStore(keys)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		s.disk = newShared(store.New(nil))
		return s, nil
	}
	if s.disk, err = openFiles(dir); err != nil {
		return nil, err
	}
	return s, s.rotate()
}

// OpenShared returns the store in records that several nodes share. The keys are as for Open, and
// at least one. What another node has changed is seen when Forget is called, or 30 s later.
func OpenShared(records store.Records, keys [][]byte) (*Store, error) {
	s, err := newStore(keys)
	if err != nil {
		return nil, err
	}
	s.disk, s.claims = newShared(records), true
	if len(keys) > 1 {
		err = s.rotate()
	}
	return s, err
}

func newStore(keys [][]byte) (s *Store, err error) {
	s = &Store{held: map[ID]chan struct{}{}}
	for _, key := range keys {
		k, err := newStoreKey(key)
		if err != nil {
			return nil, err
		}
		s.keys = append(s.keys, k)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	s.box, err = seal.New(keys, "sign-in attempts")
	return s, err
}

// Close ends what is to be stored later. What is stored stays.
func (s *Store) Close() {
	s.cancel()
	s.wg.Wait()
}

func newStoreKey(key []byte) (k storeKey, err error) {
	if len(key) != seal.KeySize {
		return k, fmt.Errorf("signin: a key has %d bytes; make it %d random ones", len(key), seal.KeySize)
	}
	sealing, err := seal.Derive(key, "sign-in tokens")
	if err != nil {
		return k, err
	}
	if k.name, err = seal.Derive(key, "sign-in names"); err != nil {
		return k, err
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return k, err
	}
	if k.aead, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return k, err
	}
	sum := sha256.Sum256(append([]byte("id "), sealing...))
	copy(k.id[:], sum[:])
	return k, nil
}

// nameOf returns the name of a record: keyed hashes, from which nothing of the ID can be learned.
// It begins with what is the same for all of an owner.
func (k *storeKey) nameOf(id ID) string {
	part := func(text string) []byte {
		h := hmac.New(sha256.New, k.name)
		h.Write([]byte(text))
		return h.Sum(nil)[:ownerSize/2]
	}
	return hex.EncodeToString(append(part("owner "+id.Owner), part("id "+string(id.bytes()))...))
}

// String keeps keys out of logs.
func (*Store) String() string { return "sign-in store" }

// GoString keeps keys out of logs.
func (s *Store) GoString() string { return s.String() }

// An Entry is a record as it is listed.
type Entry struct {
	ID
	// Principal is the name of the owner, for people.
	Principal string
}

// A record is what is sealed.
type record struct {
	Entries map[string]jsonrpc.Raw `json:"entries"`
	Claim   *claim                 `json:"claim,omitzero"` // of a node that renews the tokens
	Keeps   bool                   `json:"keeps,omitzero"` // the last renewal since the sign-in gave no other refresh token
}

// A label names the owner of the record. It is sealed apart, for lists, and bound to the name of
// the record.
type label struct {
	Owner     []byte `json:"owner"` // it is not always UTF-8
	Upstream  string `json:"upstream"`
	Principal string `json:"principal"`
}

func (l *label) id() ID { return ID{string(l.Owner), l.Upstream} }

// rotate seals with the first key what others have sealed.
func (s *Store) rotate() error {
	names, err := s.disk.names()
	if err != nil {
		return err
	}
	old := map[string]*label{}
	unknown := 0
	for _, name := range names {
		text, _, err := s.disk.read(name)
		if err != nil {
			return err
		}
		f, err := parseFile(text)
		if err != nil {
			continue // damaged: what needs it says so
		}
		k := s.key(f.key)
		if k == nil {
			unknown++
			continue
		}
		if l, err := k.open(name, f); err == nil && k != &s.keys[0] {
			old[name] = l
		}
	}
	if unknown > 0 && !s.claims {
		return fmt.Errorf(
			"signin: %s: %d of %d records are %w; add the key that they were written with after the "+
				"others, or move them away "+
				"(their owners sign in again)", s.disk, unknown, len(names), ErrKey)
	}
	for name, l := range old {
		if err := s.move(name, l.id(), l.Principal); err != nil {
			return err
		}
	}
	return nil
}

// move gives a record the name and the seal of the first key. Where nodes share it, it never has
// two names, or two nodes could send its refresh token: a node that ends in between has lost it.
func (s *Store) move(name string, id ID, principal string) error {
	return s.locked(func() error {
		text, version, err := s.disk.read(name)
		if err != nil || text == nil {
			return err
		}
		to := place{key: &s.keys[0], name: s.keys[0].nameOf(id)}
		if _, to.version, err = s.disk.read(to.name); err != nil {
			return err
		}
		at, rec, err := s.find(id)
		if errors.Is(err, errDamaged) {
			return nil // what needs it says so
		}
		if err != nil {
			return err
		}
		write := func() error {
			if at.name != name { // there is one from a sign-in, or from a process that was killed
				return nil
			}
			return s.write(to, id, principal, rec)
		}
		if !s.claims {
			if err := write(); err != nil {
				return err
			}
		}
		if err := s.disk.remove(name, version); err != nil || !s.claims {
			return err
		}
		for range moveTries {
			if err = write(); !isLater(err) {
				break
			}
			<-time.After(savePause)
		}
		return err
	})
}

func (s *Store) key(id [keyIDSize]byte) *storeKey {
	for i := range s.keys {
		if s.keys[i].id == id {
			return &s.keys[i]
		}
	}
	return nil
}

// open returns the owner of the record in a file of that name. Both parts of it are whole.
func (k *storeKey) open(name string, f *file) (*label, error) {
	plain, err := k.aead.Open(nil, nil, f.label, append([]byte("label "), name...))
	if err != nil {
		return nil, errDamaged
	}
	l := &label{}
	if err := jsonv2.Unmarshal(plain, l); err != nil || k.nameOf(l.id()) != name {
		return nil, errDamaged
	}
	_, err = k.openRecord(l.id(), f)
	return l, err
}

func (k *storeKey) openRecord(id ID, f *file) (*record, error) {
	plain, err := k.aead.Open(nil, nil, f.record, append([]byte("record "), id.bytes()...))
	if err != nil {
		return nil, errDamaged
	}
	rec := &record{}
	if err := jsonv2.Unmarshal(plain, rec); err != nil {
		return nil, errDamaged
	}
	return rec, nil
}

// A place is where a record is, or would be, and the version of what is stored there.
type place struct {
	key     *storeKey
	name    string
	version uint64
}

// find reads the record of an ID, nil when there is none. It stays where it is until move.
func (s *Store) find(id ID) (at place, rec *record, err error) {
	for i := range s.keys {
		k := &s.keys[i]
		is := place{key: k, name: k.nameOf(id)}
		var text []byte
		text, is.version, err = s.disk.read(is.name)
		if i == 0 {
			at = is
		}
		if err != nil {
			return is, nil, err
		}
		if text == nil {
			continue
		}
		f, err := parseFile(text)
		if err == nil && f.key != k.id {
			err = errDamaged
		}
		if err == nil {
			rec, err = k.openRecord(id, f)
		}
		return is, rec, err
	}
	return at, nil, nil
}

// locked calls do while no other process changes files, and again when one of those that share the
// records was faster.
func (s *Store) locked(do func() error) error {
	return again(store.ErrConflict, func() error {
		if _, ok := s.disk.(*files); ok {
			s.mu.Lock()
			defer s.mu.Unlock()
		}
		unlock, err := s.disk.lock(context.Background(), "") //nolint:forbidigo // others hold it for a moment only
		if err != nil {
			return err
		}
		defer unlock()
		return do()
	})
}

// change writes the record of an ID again if do says so. A damaged one is replaced. do is called
// again when another process was faster.
func (s *Store) change(id ID, principal string, do func(*record) bool) error {
	return s.locked(func() error {
		at, rec, err := s.find(id)
		if err != nil && !errors.Is(err, errDamaged) {
			return err
		}
		is := cmp.Or(rec, &record{})
		changed := do(is)
		switch {
		case len(is.Entries) == 0 && (changed && rec != nil || err != nil):
			return s.disk.remove(at.name, at.version)
		case !changed || len(is.Entries) == 0:
			return nil
		}
		return s.write(at, id, principal, is)
	})
}

func (s *Store) write(at place, id ID, principal string, rec *record) error {
	text, err := at.key.seal(at.name, id, principal, rec)
	if err != nil {
		return err
	}
	return s.disk.write(at.name, text, at.version)
}

func (k *storeKey) seal(name string, id ID, principal string, rec *record) ([]byte, error) {
	who, err := jsonv2.Append(nil, &label{[]byte(id.Owner), id.Upstream, principal})
	if err != nil {
		return nil, fmt.Errorf("signin: %w", err)
	}
	what, err := jsonv2.Append(nil, rec)
	if err != nil {
		return nil, fmt.Errorf("signin: %w", err)
	}
	return appendFile(nil, &file{
		key:    k.id,
		label:  k.aead.Seal(nil, nil, who, append([]byte("label "), name...)),         //nolint:gosec // the nonce is random: the AEAD makes it
		record: k.aead.Seal(nil, nil, what, append([]byte("record "), id.bytes()...)), //nolint:gosec // the same
	}), nil
}

// List returns the records with tokens, in the order of the principals and upstreams. damaged are
// those that cannot be read.
func (s *Store) List() (all []Entry, damaged int, err error) {
	names, err := s.disk.names()
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		text, _, err := s.disk.read(name)
		if err != nil {
			return nil, 0, err
		}
		if text == nil {
			continue // it was removed in the meantime
		}
		f, err := parseFile(text)
		var l *label
		if err == nil {
			k := s.key(f.key)
			if k == nil {
				damaged++
				continue
			}
			l, err = k.open(name, f)
		}
		if err != nil {
			damaged++
			continue
		}
		if l.id().Owner != "" {
			all = append(all, Entry{l.id(), l.Principal})
		}
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return strings.Compare(a.Principal+"\x00"+a.Upstream+"\x00"+a.Owner,
			b.Principal+"\x00"+b.Upstream+"\x00"+b.Owner)
	})
	return all, damaged, nil
}

// Stamp differs when the record of an ID was written since, by this process or another one.
func (s *Store) Stamp(id ID) string {
	var all []string
	for i := range s.keys {
		all = append(all, s.disk.stamp(s.keys[i].nameOf(id)))
	}
	return strings.TrimSpace(strings.Join(all, " "))
}

// Forget has the next Stamp of the record with a name look again; "" is all records.
func (s *Store) Forget(name string) {
	if d, ok := s.disk.(*shared); ok {
		d.forget(name)
	}
}

// Name names the record of an ID, and says nothing of it.
func (s *Store) Name(id ID) string { return s.keys[0].nameOf(id) }

// Remove forgets the tokens of an ID. It is no error when there are none.
func (s *Store) Remove(id ID) (err error) {
	for range s.keys { // nodes with other first keys may have written it at the same time
		err = errors.Join(err, s.change(id, "", func(r *record) bool {
			there := len(r.Entries) > 0
			clear(r.Entries)
			return there
		}))
	}
	return err
}

// Lock keeps others, and other processes, from the tokens of an ID.
func (s *Store) Lock(ctx context.Context, id ID) (unlock func(), err error) {
	free := make(chan struct{})
	for {
		s.busy.Lock()
		taken := s.held[id]
		if taken == nil {
			s.held[id] = free
		}
		s.busy.Unlock()
		if taken == nil {
			break
		}
		select {
		case <-taken:
		case <-ctx.Done():
			return nil, fmt.Errorf("signin: another token request is in flight: %w", ctx.Err())
		}
	}
	release := func() {
		s.busy.Lock()
		delete(s.held, id)
		s.busy.Unlock()
		close(free)
	}
	// Whatever keys they have, processes meet at one of 256 files; their names tell next to nothing of
	// the owner.
	sum := sha256.Sum256(id.bytes())
	leave, err := s.disk.lock(ctx, hex.EncodeToString(sum[:1]))
	if err != nil {
		release()
		return nil, err
	}
	return func() {
		leave()
		release()
	}, nil
}
