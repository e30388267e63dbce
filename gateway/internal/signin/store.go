package signin

import (
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

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/seal"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
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
// and several processes may use the directory.
type Store struct {
	keys []storeKey
	disk disk

	mu   sync.Mutex           // while a record is changed
	busy sync.Mutex           // guards held
	held map[ID]chan struct{} // while a token request is in flight; closed when that has ended
}

// A storeKey is what is derived from a key of the configuration.
type storeKey struct {
	id   [keyIDSize]byte
	name []byte // makes the names of records
	aead cipher.AEAD
}

// A disk is where records are: memory, or a directory.
type disk interface { //nolint:interfacebloat // it is a small file system
	// read returns nil when there is no such record.
	read(name string) ([]byte, error)
	write(name string, text []byte) error
	remove(name string) error
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
var errDamaged = errors.New("signin: a record is damaged, or was copied from another owner or upstream; remove it and sign in again")

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
	s := &Store{held: map[ID]chan struct{}{}}
	for _, key := range keys {
		k, err := newStoreKey(key)
		if err != nil {
			return nil, err
		}
		s.keys = append(s.keys, k)
	}
	if dir == "" {
		s.disk = &memory{all: map[string][]byte{}, stamps: map[string]int{}}
		return s, nil
	}
	var err error
	if s.disk, err = openFiles(dir); err != nil {
		return nil, err
	}
	return s, s.rotate()
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

// nameOf returns the name of a record: a keyed hash, from which nothing of the ID can be learned.
func (k *storeKey) nameOf(id ID) string {
	h := hmac.New(sha256.New, k.name)
	h.Write(id.bytes())
	return hex.EncodeToString(h.Sum(nil)[:20])
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
}

// A label names the owner of the record. It is sealed apart, for lists, and bound to the name of
// the record.
type label struct {
	Owner     []byte `json:"owner"` // it is not always UTF-8
	Upstream  string `json:"upstream"`
	Principal string `json:"principal"`
}

func (l *label) id() ID { return ID{string(l.Owner), l.Upstream} }

// rotate seals everything with the first key.
func (s *Store) rotate() error {
	names, err := s.disk.names()
	if err != nil {
		return err
	}
	old := map[string]*label{}
	unknown := 0
	for _, name := range names {
		text, err := s.disk.read(name)
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
	if unknown > 0 {
		return fmt.Errorf("signin: %s: %d of %d records are %w; add the key that they were written with after the others, or move them away "+
			"(their owners sign in again)", s.disk, unknown, len(names), ErrKey)
	}
	for name, l := range old {
		if err := s.change(l.id(), l.Principal, func(*record) bool { return true }); err != nil {
			return err
		}
		if err := s.disk.remove(name); err != nil { // it may be left from a process that was killed
			return err
		}
	}
	return nil
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

// find reads the record of an ID. It returns no name when there is none.
func (s *Store) find(id ID) (name string, rec *record, err error) {
	for i := range s.keys {
		k := &s.keys[i]
		name := k.nameOf(id)
		text, err := s.disk.read(name)
		if err != nil {
			return name, nil, err
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
		return name, rec, err
	}
	return "", nil, nil
}

// change writes the record of an ID again if do says so. A damaged one is replaced.
func (s *Store) change(id ID, principal string, do func(*record) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := s.disk.lock(context.Background(), "") //nolint:forbidigo // others hold it for a moment only
	if err != nil {
		return err
	}
	defer unlock()
	name, rec, err := s.find(id)
	if err != nil && !errors.Is(err, errDamaged) {
		return err
	}
	if rec == nil {
		rec = &record{}
	}
	if !do(rec) && err == nil {
		return nil
	}
	k := &s.keys[0]
	now := k.nameOf(id)
	if len(rec.Entries) > 0 {
		text, err := k.seal(now, id, principal, rec)
		if err != nil {
			return err
		}
		if err := s.disk.write(now, text); err != nil {
			return err
		}
		if name == now {
			return nil
		}
	}
	if name == "" {
		return nil
	}
	return s.disk.remove(name)
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
		text, err := s.disk.read(name)
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
		return strings.Compare(a.Principal+"\x00"+a.Upstream+"\x00"+a.Owner, b.Principal+"\x00"+b.Upstream+"\x00"+b.Owner)
	})
	return all, damaged, nil
}

// Stamp differs when the record of an ID was written since, by this process or another one.
func (s *Store) Stamp(id ID) string {
	for i := range s.keys {
		if stamp := s.disk.stamp(s.keys[i].nameOf(id)); stamp != "" {
			return stamp
		}
	}
	return ""
}

// Remove forgets the tokens of an ID. It is no error when there are none.
func (s *Store) Remove(id ID) error {
	return s.change(id, "", func(r *record) bool {
		there := len(r.Entries) > 0
		clear(r.Entries)
		return there
	})
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

// Tokens returns the store of an mcpauth.Client that gets the tokens of an ID, for a principal of
// that name. Registrations at authorization servers are in the record of the gateway, for all
// owners. A client that signs out keeps those.
func (s *Store) Tokens(id ID, principal string, signsOut bool) mcpauth.Store {
	return &tokens{store: s, id: id, principal: principal, signsOut: signsOut}
}

// tokens is what one mcpauth.Client sees of a store.
type tokens struct {
	store     *Store
	id        ID
	principal string
	signsOut  bool
}

// String keeps tokens out of logs.
func (t *tokens) String() string { return t.id.String() }

// GoString keeps tokens out of logs.
func (t *tokens) GoString() string { return t.String() }

// of returns the record for a key of mcpauth.
func (t *tokens) of(key string) (id ID, principal string) {
	if strings.HasPrefix(key, "tokens ") {
		return t.id, t.principal
	}
	return ID{Upstream: t.id.Upstream}, ""
}

// Load implements [mcpauth.Store].
func (t *tokens) Load(_ context.Context, key string) ([]byte, error) {
	id, _ := t.of(key)
	_, rec, err := t.store.find(id)
	if errors.Is(err, errDamaged) {
		return nil, nil // the owner signs in again, or the gateway registers again
	}
	if err != nil || rec == nil {
		return nil, err
	}
	return rec.Entries[key], nil
}

// maxEntry bounds what is kept under one key, in bytes.
const maxEntry = 256 << 10

// Save implements [mcpauth.Store].
func (t *tokens) Save(_ context.Context, key string, value []byte) error {
	if len(value) > maxEntry {
		return fmt.Errorf("signin: the tokens have %d bytes, more than %d", len(value), maxEntry)
	}
	id, principal := t.of(key)
	return t.store.change(id, principal, func(r *record) bool {
		if r.Entries == nil {
			r.Entries = map[string]jsonrpc.Raw{}
		}
		r.Entries[key] = slices.Clone(value)
		return true
	})
}

// Delete implements [mcpauth.Store].
func (t *tokens) Delete(_ context.Context, key string) error {
	id, principal := t.of(key)
	if id.Owner == "" && t.signsOut {
		return nil
	}
	return t.store.change(id, principal, func(r *record) bool {
		_, there := r.Entries[key]
		delete(r.Entries, key)
		return there
	})
}

// Lock is for mcpauth, which looks for it: one refresh of the same tokens is in flight.
func (t *tokens) Lock(ctx context.Context, key string) (unlock func(), err error) {
	id, _ := t.of(key)
	return t.store.Lock(ctx, id)
}
