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

// within returns a new span in the trace of its caller, or in a new one.
func within(caller observe.Span) observe.Span {
	s := observe.Span{Trace: caller.Trace, Local: true}
	for s.Trace == [16]byte{} {
		binary.BigEndian.PutUint64(s.Trace[:8], random())
		binary.BigEndian.PutUint64(s.Trace[8:], random())
	}
	for s.ID == [8]byte{} {
		binary.BigEndian.PutUint64(s.ID[:], random())
	}
	return s
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
