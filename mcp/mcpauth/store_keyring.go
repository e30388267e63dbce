package mcpauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/zalando/go-keyring"
)

const (
	// A part of a value is what every keyring takes: Windows has 2,560 bytes for one,
	// macOS some 3,000 with the names.
	keyringPart     = 2000
	maxKeyringParts = 64
	keyringWriters  = "all" // the lock of those who write
)

// keyringStore is the desktop's keyring. A long value is in several parts: the first is
//
//	N SUM PART
//
// with the number of parts and the beginning of the SHA-256 of the whole, and the others
// are PART, under the key with "#2", "#3" ... A value in which two writers have mixed
// does not fit its sum.
type keyringStore struct{ service string }

// NewKeyring returns a Store in the desktop's keyring (Keychain, Credential Manager, Secret
// Service), under the name of a service. The keyring may ask the user to unlock it, which no
// context ends. Where there is none every call fails: tokens are never written elsewhere instead.
func NewKeyring(service string) Store { return &keyringStore{service: service} }

// Load implements Store.
func (s *keyringStore) Load(ctx context.Context, key string) ([]byte, error) {
	value, err := s.read(key)
	if !errors.Is(err, errKeyring) {
		return value, err
	}
	unlock, err := s.Lock(ctx, keyringWriters) // another process may be writing it
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.read(key)
}

// read puts the parts together.
func (s *keyringStore) read(key string) ([]byte, error) {
	first, err := keyring.Get(s.service, key)
	if errors.Is(err, keyring.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, keyringError(err)
	}
	n, sum, text, ok := splitPart(first)
	if !ok {
		return nil, damagedKeyring(key)
	}
	var whole strings.Builder
	whole.WriteString(text)
	for i := 2; i <= n; i++ {
		part, err := keyring.Get(s.service, partKey(key, i))
		if errors.Is(err, keyring.ErrNotFound) {
			return nil, damagedKeyring(key)
		}
		if err != nil {
			return nil, keyringError(err)
		}
		whole.WriteString(part)
	}
	if text = whole.String(); sumOf(text) != sum {
		return nil, damagedKeyring(key)
	}
	return []byte(text), nil
}

// Save implements Store.
func (s *keyringStore) Save(ctx context.Context, key string, value []byte) error {
	text := string(value)
	if len(text) > keyringPart*maxKeyringParts {
		return fmt.Errorf("mcpauth: a value for the keyring has %d bytes, more than %d", len(text),
			keyringPart*maxKeyringParts)
	}
	unlock, err := s.Lock(ctx, keyringWriters)
	if err != nil {
		return err
	}
	defer unlock()
	var parts []string
	for part := range slices.Chunk(value, keyringPart) {
		parts = append(parts, string(part))
	}
	if len(parts) == 0 {
		parts = []string{""}
	}
	before := s.parts(key)
	for i := len(parts); i > 1; i-- { // the first comes last: it says that all are there
		if err := keyring.Set(s.service, partKey(key, i), parts[i-1]); err != nil {
			return keyringError(err)
		}
	}
	if err := keyring.Set(s.service, key,
		fmt.Sprintf("%d %s %s", len(parts), sumOf(text), parts[0])); err != nil {
		return keyringError(err)
	}
	for i := len(parts) + 1; i <= before; i++ {
		_ = keyring.Delete(s.service, partKey(key, i)) // it is of no value any more
	}
	return nil
}

// Delete implements Store.
func (s *keyringStore) Delete(ctx context.Context, key string) error {
	unlock, err := s.Lock(ctx, keyringWriters)
	if err != nil {
		return err
	}
	defer unlock()
	for i := s.parts(key); i > 1; i-- {
		_ = keyring.Delete(s.service, partKey(key, i)) // without the first it is of no value
	}
	if err := keyring.Delete(s.service, key); err != nil && !errors.Is(err, keyring.ErrNotFound) {
		return keyringError(err)
	}
	return nil
}

// Lock implements locker, by a file: a keyring has no locks.
func (s *keyringStore) Lock(ctx context.Context, key string) (func(), error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("mcpauth: the keyring cannot be locked: %w", err)
	}
	dir = filepath.Join(dir, "farcall")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("mcpauth: the keyring cannot be locked: %w", err)
	}
	sum := sha256.Sum256([]byte(s.service + "\n" + key))
	f, err := acquire(ctx, filepath.Join(dir, "keyring."+hex.EncodeToString(sum[:8])+".lock"), true)
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil // which ends the lock in any case
}

// parts is the number of parts that a key has now.
func (s *keyringStore) parts(key string) int {
	first, err := keyring.Get(s.service, key)
	if err != nil {
		return 0
	}
	n, _, _, _ := splitPart(first)
	return n
}

func splitPart(first string) (n int, sum, text string, ok bool) {
	count, rest, ok1 := strings.Cut(first, " ")
	sum, text, ok2 := strings.Cut(rest, " ")
	n, err := strconv.Atoi(count)
	if !ok1 || !ok2 || err != nil || n < 1 || n > maxKeyringParts {
		return 0, "", "", false
	}
	return n, sum, text, true
}

func partKey(key string, i int) string { return key + "#" + strconv.Itoa(i) }

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

var errKeyring = errors.New("is damaged; log in again")

func damagedKeyring(key string) error {
	return fmt.Errorf("mcpauth: the keyring's entry for %s %w", key, errKeyring)
}

func keyringError(err error) error {
	return fmt.Errorf("mcpauth: the keyring cannot be used; unlock it, or keep tokens in a file: %w",
		err)
}

// memory is a Store of this process.
type memory struct {
	mu  sync.Mutex
	all map[string][]byte
}

func newMemory() Store { return &memory{all: map[string][]byte{}} }

// Load implements Store.
func (m *memory) Load(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.all[key]), nil
}

// Save implements Store.
func (m *memory) Save(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[key] = slices.Clone(value)
	return nil
}

// Delete implements Store.
func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
	return nil
}
