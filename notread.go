package farcall

import (
	"fmt"

	"github.com/farcall-dev/farcall/internal/beginning"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// What becomes of a frame that is not read, because it is too large, or no JSON, or there is no
// memory for it: the call or the caller that waits gets an error, as far as the beginning names it.
//
//	a request                  its id gets the error
//	the answer to a call       the call fails
//	an answer without an id    all calls fail: the one that it is for would never end
//	anything else              an error without an id

// notRead refuses a frame that the transport has not read, for a reason.
func (p *Peer) notRead(err error, reason *jsonrpc.Error) {
	f := beginning.Of(beginning.BytesOf(err))
	if p.lostAnswer(f, reason) {
		return
	}
	m := &jsonrpc.Message{}
	if f.Call && !f.Batch && reason.Code != jsonrpc.ParseError { // JSON-RPC 2.0 §5: then it has none
		m.ID = f.ID
	}
	p.refuse(m, reason)
}

// lostAnswer fails the calls that wait for an answer which was not read. It reports false when the
// frame is no answer.
func (p *Peer) lostAnswer(f beginning.Beginning, reason *jsonrpc.Error) bool {
	if !f.Answer {
		return false
	}
	p.observeBad(nil, problemKind(reason.Code))
	var calls []*call
	p.update(func(s *state) {
		s.counts.refused++
		calls = s.takeAnswered(f)
	})
	if len(calls) == 0 {
		return true
	}
	why := reason.Message
	if reason.Cause != nil {
		why += ": " + reason.Cause.Error()
	}
	// the other end did not answer with reason
	err := fmt.Errorf("farcall: the answer was not read: %s", why)
	if reason.Code == jsonrpc.ParseError {
		err = fmt.Errorf("%w: %s", ErrProtocol, why)
	}
	for _, c := range calls {
		c.finish(nil, err)
	}
	return true
}

// takeAnswered takes the calls that an answer may be for.
func (s *state) takeAnswered(f beginning.Beginning) (calls []*call) {
	n, ours := f.ID.Uint()
	switch {
	case f.ID.IsNull():
		return s.takeSole()
	case !f.ID.IsAbsent() && (!ours || s.calls[n] == nil):
		return nil // it has ended already
	}
	for id, c := range s.calls {
		if f.ID.IsAbsent() || id == n || f.Batch && c.batch == s.calls[n].batch {
			calls = append(calls, c)
		}
	}
	for _, c := range calls {
		delete(s.calls, c.id)
	}
	return calls
}

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
