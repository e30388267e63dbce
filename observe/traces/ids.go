package traces

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/observe"
)

// random is for ids of spans, which are no secrets.
func random() uint64 { return rand.Uint64() } //nolint:gosec // it need not be hard to guess

// within makes s a new span in the trace of its caller, or else in a new one. Both ids are of one
// random number: a call that is not sampled needs them, too. See unique.
func within(s, caller *observe.Span) {
	n := random()
	if caller.IsSet() {
		s.Trace = caller.Trace
	} else {
		binary.BigEndian.PutUint64(s.Trace[:8], mixed(n))
		binary.BigEndian.PutUint64(s.Trace[8:], n|1) // 0 would be none
	}
	binary.BigEndian.PutUint64(s.ID[:], mixed(^n)|1)
	s.Local = true
}

// unique gives the trace of s, which begins with it and is recorded, all bits of an id at random.
func unique(s *observe.Span) { binary.BigEndian.PutUint64(s.Trace[:8], random()) }

// mixed returns a number that has nothing to do with n, and another one for another n (the last
// step of SplitMix64). It takes a quarter of the time of a random one.
func mixed(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// low is the part of a trace id by which tracers with a ratio decide.
func low(id [16]byte) uint64 { return binary.BigEndian.Uint64(id[8:]) }

// budget bounds what is kept in a second.
type budget struct {
	most int

	mu   sync.Mutex
	at   int64 // the second
	used int
}

// take reports whether there is room for one more.
func (b *budget) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := now.Unix(); s != b.at {
		b.at, b.used = s, 0
	}
	b.used++
	return b.used <= b.most
}
