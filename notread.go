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
	err := fmt.Errorf("farcall: the answer was not read: %s", why) // the other end did not answer with reason
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
