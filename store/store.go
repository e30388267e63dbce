// Package store answers one question: what must outlive the process that wrote it, or be shared?
//
// A [Records] keeps small records under an owner and an id, with compare-and-swap and a time at
// which each expires. [New] makes one in memory, [Open] one in a directory, which survives the
// death of the process. A [Store] is all that several processes can share: it is a Records, a
// [Once], a [Counter], a [Queue] and a [Bus]. [NewMemory] makes one for one process.
package store

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Records keeps records. All methods may be called concurrently.
type Records interface {
	// Put writes a record if the version of the stored one is r.Version; 0: if none is stored. It
	// returns the version of the new one. When it returns no error, the record is as
	// durable as the store promises, and every later Get returns it or a later one until it expires.
	// It keeps nothing of r. ErrConflict: another version is stored. ErrFull: no room is left for the
	// owner. After any other error the stored record is the old one or the new one.
	Put(ctx context.Context, r *Record) (version uint64, err error)
	// Get returns a record, which the caller must not change. ErrNotFound: none is stored, or it has
	// expired.
	Get(ctx context.Context, owner, id string) (*Record, error)
	// Delete removes a record, if one is stored.
	Delete(ctx context.Context, owner, id string) error
	// Adopt yields the records that are now for this process to look after because their writer has
	// ended. An error is that of one record; the others follow. A process calls it once, when it
	// starts.
	Adopt(ctx context.Context) iter.Seq2[*Record, error]
}

// A Record is a value with what a store must know of it.
type Record struct {
	// Owner is an opaque text: the records of one owner do not exist for another. Stores bound what
	// an owner fills.
	Owner string
	// Group is an opaque text: the owners of a group share what one owner may fill. "": the owner
	// is alone.
	Group string
	// ID names the record among those of its owner.
	ID string
	// Version is that of the stored record, 1 at first. For Put it is the one to be replaced.
	Version uint64
	// Expires is when the record ceases to exist.
	Expires time.Time
	// Value is what is kept.
	Value []byte
}

// Errors of stores. Compare with errors.Is.
var (
	ErrNotFound = errors.New("store: no such record")
	ErrConflict = errors.New("store: the record has another version")
	ErrFull     = errors.New("store: no room is left for the owner")
	ErrInUse    = errors.New("store: another process uses the directory")
	ErrClosed   = errors.New("store: closed")
)
