package audit

import (
	"fmt"
	"math"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	// ownerRatio leaves a tenth of a store to others than the owner that has most of it.
	ownerRatio = 9
	// maxAccounts bounds the owners with bytes that are counted.
	maxAccounts = 10_000

	sealRoom    = 160 // bytes of a seal
	outcomeRoom = 400 // of the line of an outcome
	eventRoom   = 1000
)

// errShare is ErrFull for one owner.
var errShare = fmt.Errorf("%w for a caller that has written most of it: others can still call; "+
	"give callers rates, move old files away, or raise keep or max_size", ErrFull)

// A store counts the bytes of a file and of those before it, and how many of them each owner has
// written. It is under the lock of the log.
//
// The invariant: what is on disk, what waits to be written, and the outcomes that calls will have
// are no more than the total, but for a line of each file that did not fit at its end. An owner
// that holds something has at most ownerRatio times what is free then, so that there always is room
// for another one.
//
// It is not known who has written what a process before this one has.
type store struct {
	bounds   share.Bounds // Total 0: there is no bound
	used     int          // on disk, after the last write
	accounts map[owner.Key]int
}

// limit sets the bounds.
func (s *store) limit(b bounds) {
	s.bounds = share.Bounds{Ratio: ownerRatio}
	if !b.rotate {
		s.bounds.Total = int(min(float64(b.max)*(float64(b.keep)+1), math.MaxInt/2))
	}
}

// fits returns why there is no room for n bytes of an owner, while so many bytes of all owners wait
// to be written; nil when there is.
func (s *store) fits(o owner.Key, n, waiting int) error {
	b, used := s.bounds, s.used+waiting+eventRoom
	switch {
	case b.Total == 0:
		return nil
	case n > b.Total-used:
		return fmt.Errorf("%w: %d bytes of %d are written or wait", ErrFull, s.used+waiting, b.Total)
	case !o.IsZero() && !b.Allows(s.accounts[o.Group()], used, n):
		return errShare
	}
	return nil
}

// charge counts what an owner will have in the store.
func (s *store) charge(o owner.Key, n int) {
	if o = o.Group(); o.IsZero() {
		return
	}
	if _, known := s.accounts[o]; !known && len(s.accounts) >= maxAccounts {
		s.forget()
	}
	if s.accounts == nil {
		s.accounts = map[owner.Key]int{}
	}
	s.accounts[o] += n
}

// forget drops the accounts of those who have little: at least half of them.
func (s *store) forget() {
	all := 0
	for _, n := range s.accounts {
		all += n
	}
	for o, n := range s.accounts {
		if n <= 2*all/maxAccounts {
			delete(s.accounts, o)
		}
	}
}

// report takes what is on disk after n bytes were written. When files have gone, each owner has as
// much less as the store.
func (s *store) report(used, n int) {
	before := s.used + n
	s.used = used
	if used >= before {
		return
	}
	for o, had := range s.accounts {
		if left := int(float64(had) * float64(used) / float64(before)); left > 0 {
			s.accounts[o] = left
		} else {
			delete(s.accounts, o)
		}
	}
}
