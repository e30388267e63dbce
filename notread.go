package farcall

import (
	"errors"
	"fmt"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// What becomes of a frame that is not read, because it is too large, or no JSON, or there is no memory
// for it: whoever waits for it is told, as far as its beginning says who that is.
//
//	a request                  its id gets the error
//	the answer to a call       the call fails
//	an answer without an id    all calls fail: the one that it is for would never end
//	anything else              an error without an id

// A beginning is what the beginning of a frame says.
type beginning struct {
	id     jsonrpc.ID // absent: it is not known
	call   bool       // it is a request or a notification
	answer bool
	batch  bool // it is an array, of which this is the first element
}

// beginningOf reads the beginning of a frame.
func beginningOf(b []byte) (f beginning) {
	i := scan.Space(b, 0)
	if f.batch = i < len(b) && b[i] == '['; f.batch {
		b = b[i+1:]
	}
	scan.Beginning(b, func(key, value []byte) bool {
		switch string(key) {
		case "id":
			if id, err := jsonrpc.ParseID(value); err == nil && len(value) > 0 {
				f.id = id
			}
		case "method":
			f.call = true
		case "result", "error":
			f.answer = true
		}
		return true
	})
	f.answer = f.answer && !f.call
	return f
}

// notRead refuses a frame that the transport has not read, for a reason.
func (p *Peer) notRead(err error, reason *jsonrpc.Error) {
	var f beginning
	if part, ok := errors.AsType[interface {
		error
		Begins() []byte
	}](err); ok {
		f = beginningOf(part.Begins())
	}
	if p.lostAnswer(f, reason) {
		return
	}
	m := &jsonrpc.Message{}
	if f.call && !f.batch && reason.Code != jsonrpc.ParseError { // JSON-RPC 2.0 §5: then it has none
		m.ID = f.id
	}
	p.refuse(m, reason)
}

// lostAnswer fails the calls that wait for an answer which was not read. It reports false when the
// frame is no answer.
func (p *Peer) lostAnswer(f beginning, reason *jsonrpc.Error) bool {
	if !f.answer {
		return false
	}
	var calls []*call
	p.update(func(s *state) {
		s.stats.Refused++
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
func (s *state) takeAnswered(f beginning) (calls []*call) {
	n, ours := f.id.Uint()
	switch {
	case f.id.IsNull():
		return s.takeSole()
	case !f.id.IsAbsent() && (!ours || s.calls[n] == nil):
		return nil // it has ended already
	}
	for id, c := range s.calls {
		if f.id.IsAbsent() || id == n || f.batch && c.batch == s.calls[n].batch {
			calls = append(calls, c)
		}
	}
	for _, c := range calls {
		delete(s.calls, c.id)
	}
	return calls
}
