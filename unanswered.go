package farcall

import "github.com/farcall-dev/farcall/jsonrpc"

// maxUnanswered is how many calls a connection remembers that have ended without an answer.
const maxUnanswered = 64

// unanswered remembers the ids of calls of this end that have ended without an answer, so that an
// answer which arrives later differs from one that arrives twice. Nil: there was none.
type unanswered struct {
	ids       []uint64 // the newest last, at most maxUnanswered
	forgotten uint64   // the greatest id that had to make room; up to it, answers count as late
}

// gaveUp notes that a call has ended without an answer.
func (s *state) gaveUp(id uint64) {
	if s.unanswered == nil {
		s.unanswered = new(unanswered)
	}
	u := s.unanswered
	if len(u.ids) == maxUnanswered {
		u.forgotten = max(u.forgotten, u.ids[0])
		u.ids = append(u.ids[:0], u.ids[1:]...)
	}
	u.ids = append(u.ids, id)
}

// take reports whether the call with that id has ended without an answer, and forgets it.
func (u *unanswered) take(id uint64) bool {
	if u == nil {
		return false
	}
	for i, known := range u.ids {
		if known == id {
			u.ids = append(u.ids[:i], u.ids[i+1:]...)
			return true
		}
	}
	return id <= u.forgotten
}

// unexpectedAnswer says what is wrong with an answer that no call waits for.
func (p *Peer) unexpectedAnswer(s *state, id jsonrpc.ID) string {
	n, ok := id.Uint()
	switch {
	case !ok || n < p.opts.FirstID || n > p.ids.Load():
		return problemUnknown
	case s.unanswered.take(n):
		return problemLate
	}
	return problemDuplicate
}
