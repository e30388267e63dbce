package farcall

import (
	"fmt"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// state is everything about a connection that changes while it lives. It is
// changed by Peer.update only.
type state struct {
	calls   map[uint64]*call      // ours, that wait for an answer, by id
	served  map[string]*serving   // theirs, being handled, by the bytes of the id
	nulls   map[*serving]struct{} // the same, where the id is null, which any number may have
	numbers map[uint64]*serving   // the same, where the id is a plain number
	running int                   // handlers that run
	waiting int                   // handlers that wait for a call of their own
	bytes   int                   // of the messages in served and notes
	note    *serving              // the notification that is being handled
	notes   []*serving            // notifications that wait for their turn
	out     *outbox               // frames to write; nil when there are none
	written int                   // bytes of the frames that are being written
	owed    int                   // of these, the bytes of answers
	writing bool                  // somebody writes
	room    chan struct{}         // closed when frames were written; nil when nobody waits
	reading bool                  // the other end may still send
	drain   bool                  // Shutdown was called, or the other end sends no more
	err     error                 // why the connection ended; nil while it lives
	stats   Stats
}

// update changes the state. f must not block and must not call out.
func (p *Peer) update(f func(s *state)) {
	p.mu.Lock()
	f(&p.st)
	s := &p.st
	bad := s.running < 0 || s.waiting < 0 || s.bytes < 0 || s.written < 0
	p.mu.Unlock()
	if bad {
		//nolint:forbidigo // the counters are ours alone; a wrong one would disable the limits
		panic(fmt.Sprintf("farcall: a counter of the connection is negative: %d running, %d waiting, %d bytes, %d written",
			s.running, s.waiting, s.bytes, s.written))
	}
}

// unsent is how many bytes wait for the other end to read them.
func (s *state) unsent() int {
	if s.out == nil {
		return s.written
	}
	return s.written + s.out.bytes
}

// idle reports whether nothing is left to finish.
func (s *state) idle() bool {
	return len(s.served)+len(s.numbers)+len(s.nulls)+len(s.notes) == 0 && s.note == nil && s.running == 0 && s.unsent() == 0 && !s.writing
}

// unread is how many answers, and bytes of answers, wait for the other end to
// read them.
func (s *state) unread() (answers, bytes int) {
	if s.out == nil {
		return 0, s.owed
	}
	return s.out.answers, s.owed + s.out.owed
}

// queue adds a frame to what is to be written and reports whether it has taken
// the frame's memory.
func (s *state) queue(frame []byte) (taken bool) {
	if s.out == nil {
		s.out = outboxes.Get().(*outbox) //nolint:errcheck // only those are in it
	}
	return s.out.add(frame)
}

// answer queues an answer, as queue does.
func (s *state) answer(frame []byte) (taken bool) {
	taken = s.queue(frame)
	s.out.answers++
	s.out.owed += len(frame)
	return taken
}

// find returns what is being handled under an id.
func (s *state) find(id jsonrpc.ID) *serving {
	if n, ok := id.Uint(); ok {
		return s.numbers[n]
	}
	return s.served[string(id.Raw())]
}

// enter books a request. It reports false when its id is in use already.
func (s *state) enter(v *serving) bool {
	if v.req.ID.IsNull() {
		if s.nulls == nil {
			s.nulls = map[*serving]struct{}{}
		}
		s.nulls[v] = struct{}{}
	} else if n, ok := v.req.ID.Uint(); ok {
		if s.numbers[n] != nil {
			return false
		}
		if s.numbers == nil {
			s.numbers = map[uint64]*serving{}
		}
		s.numbers[n] = v
	} else {
		if s.served[string(v.req.ID.Raw())] != nil {
			return false
		}
		if s.served == nil {
			s.served = map[string]*serving{}
		}
		s.served[string(v.req.ID.Raw())] = v
	}
	s.bytes += v.size
	return true
}

// leave takes a request out of the books.
func (s *state) leave(v *serving) {
	if v.req.ID.IsNull() {
		delete(s.nulls, v)
	} else if n, ok := v.req.ID.Uint(); ok {
		delete(s.numbers, n)
	} else {
		delete(s.served, string(v.req.ID.Raw()))
	}
	s.bytes -= v.size
}

// wake tells those who wait for room that there may be some.
func (s *state) wake() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}
