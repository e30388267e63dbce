package traffic

import (
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// describe fills in what a message says, and finds what it belongs to. Only a row with a number is
// registered for what comes later. The lock is held.
func (s *Store) describe(row *Row, in scope, m *jsonrpc.Message) {
	switch m.Kind {
	case jsonrpc.Request:
		row.Kind = Request
		s.named(row, m)
		s.request(row, in, m)
	case jsonrpc.Notification:
		row.Kind = Notification
		s.named(row, m)
		if row.Parent == 0 {
			row.Parent = s.about(row, in, m)
		}
	case jsonrpc.Response:
		row.Kind = Response
		s.response(row, in, m)
	default:
		row.Kind = Invalid
	}
}

func (s *Store) named(row *Row, m *jsonrpc.Message) {
	row.Method = cut(m.Method)
	if len(m.Params) == 0 || m.Params[0] != '{' {
		return
	}
	for _, member := range []string{"name", "uri", "taskId"} {
		if row.Name = text(m.Params, member); row.Name != "" {
			return
		}
	}
}

// request registers a request until its answer comes.
func (s *Store) request(row *Row, in scope, m *jsonrpc.Message) {
	if row.Dir == '<' && row.Parent == 0 {
		row.Parent = s.caller(row, in)
	}
	if row.Seq == 0 {
		return
	}
	if len(s.open) >= maxOpen { // a server that never answers
		clear(s.open)
	}
	s.open[callKey{in, row.Dir, 0, string(m.ID.Raw())}] = openCall{row.Seq, row.Time, row.Link}
	if len(m.Params) == 0 || m.Params[0] != '{' {
		if token := m.Member("progressToken"); token != nil {
			s.remember(s.tokens, in, row.Seq, token)
		}
		return
	}
	if token := scan.Member(scan.Member(m.Params, "_meta"), "progressToken"); token != nil {
		s.remember(s.tokens, in, row.Seq, token)
	}
	if state := scan.Member(m.Params, "requestState"); len(state) > 0 {
		if first := s.rounds[tokenKey{in, string(state)}]; first > 0 {
			row.Parent = first
		}
	}
}

func (s *Store) remember(list map[tokenKey]uint64, in scope, seq uint64, token []byte) {
	if len(list) >= maxOpen {
		clear(list)
	}
	list[tokenKey{in, string(token)}] = seq
}

// maxSearched bounds the search of caller. Among more calls the right one is not known anyway.
const maxSearched = 256

// caller returns the request during which the server asks: that of the same exchange, or the only
// one without an answer.
func (s *Store) caller(row *Row, in scope) (parent uint64) {
	if len(s.open) > maxSearched {
		return 0
	}
	open := 0
	for key, call := range s.open {
		if key.conn != in || key.dir == row.Dir {
			continue
		}
		if call.link == row.Link {
			open++
			parent = call.seq
		}
		if open > 1 {
			return 0
		}
	}
	return parent
}

// about returns the request that a notification is about.
func (s *Store) about(row *Row, in scope, m *jsonrpc.Message) uint64 {
	for _, member := range []string{"progressToken", "token"} {
		if token := scan.Member(m.Params, member); token != nil {
			return s.tokens[tokenKey{in, string(token)}]
		}
	}
	for _, member := range []string{"requestId", "id"} {
		if id := scan.Member(m.Params, member); id != nil {
			return s.open[callKey{in, row.Dir, 0, string(id)}].seq
		}
	}
	if row.Dir == '<' {
		return s.caller(row, in)
	}
	return 0
}

// response finds the request of a response.
func (s *Store) response(row *Row, in scope, m *jsonrpc.Message) {
	dir := byte('>')
	if row.Dir == '>' {
		dir = '<'
	}
	key := callKey{in, dir, 0, string(m.ID.Raw())}
	if call, ok := s.open[key]; ok {
		if row.Seq > 0 {
			delete(s.open, key)
		}
		if row.Ref == 0 {
			row.Ref, row.Took = call.seq, row.Time-call.time
		}
		if r := s.rowLocked(row.Ref); r != nil {
			row.Method, row.Name = r.Method, r.Name
		}
	}
	switch failure := m.Failure(); {
	case failure != nil:
		row.Code = int(failure.Code)
	case len(m.Result) > 0 && m.Result[0] == '{':
		row.Failed = string(scan.Member(m.Result, "isError")) == "true"
		if state := scan.Member(m.Result, "requestState"); len(state) > 0 && row.Ref > 0 && row.Seq > 0 {
			if len(s.rounds) >= maxOpen {
				clear(s.rounds)
			}
			s.rounds[tokenKey{in, string(state)}] = row.Ref
		}
	}
}

// rowLocked returns the row of a number, nil when it is forgotten.
func (s *Store) rowLocked(seq uint64) *Row {
	low, high := 0, len(s.parts)
	for low < high {
		if mid := (low + high) / 2; s.parts[mid].first+uint64(len(s.parts[mid].rows)) <= seq {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(s.parts) || seq < s.parts[low].first {
		return nil
	}
	return &s.parts[low].rows[seq-s.parts[low].first]
}
