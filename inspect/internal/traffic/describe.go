package traffic

import (
	"strings"

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
	remember(s.open, callKey{in, row.Dir, string(m.ID.Raw())}, openCall{row.Seq, row.Time, row.Link})
	token := scan.Member(scan.Member(m.Params, "_meta"), "progressToken")
	if len(m.Params) == 0 || m.Params[0] != '{' {
		token = m.Member("progressToken")
	}
	if token != nil {
		remember(s.tokens, tokenKey{in, string(token)}, row.Seq)
	}
	state := scan.Member(m.Params, "requestState")
	if first := s.rounds[tokenKey{in, string(state)}]; first > 0 {
		row.Parent = first
	}
}

// remember bounds what waits for its end, which may never come.
func remember[K comparable, V any](list map[K]V, key K, value V) {
	if len(list) >= maxOpen {
		clear(list)
	}
	list[key] = value
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
	for _, member := range []string{"progressToken", "token", "subscription"} {
		if token := scan.Member(m.Params, member); token != nil {
			return s.tokens[tokenKey{in, string(token)}]
		}
	}
	for _, member := range []string{"requestId", "id"} {
		if id := scan.Member(m.Params, member); id != nil {
			return s.open[callKey{in, row.Dir, string(id)}].seq
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
	key := callKey{in, dir, string(m.ID.Raw())}
	if call, ok := s.open[key]; ok {
		if row.Seq > 0 {
			delete(s.open, key)
		}
		if row.Ref == 0 {
			row.Ref, row.Took = call.seq, max(1, row.Time-call.time)
		}
		if p, i := s.at(row.Ref); p != nil {
			row.Method, row.Name = p.rows[i].Method, p.rows[i].Name
		}
	}
	switch failure := m.Failure(); {
	case failure != nil:
		row.Code = int(failure.Code)
	case len(m.Result) > 0 && m.Result[0] == '{':
		row.Failed = string(scan.Member(m.Result, "isError")) == "true"
		if state := scan.Member(m.Result, "requestState"); len(state) > 0 && row.Ref > 0 && row.Seq > 0 {
			remember(s.rounds, tokenKey{in, string(state)}, row.Ref)
		}
	case strings.HasSuffix(row.Method, "subscribe") && row.Ref > 0 && row.Seq > 0:
		remember(s.tokens, tokenKey{in, string(m.Result)}, row.Ref) // what its events name
	}
}
