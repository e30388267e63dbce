package fault

import (
	"bytes"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// rewrite returns a frame that is wrong.
func (l *channel) rewrite(r *Rule, m *jsonrpc.Message, last jsonrpc.Raw, frame []byte) []byte {
	if r.Fault == "bad-utf8" {
		frame = bytes.Clone(frame)
		if i := bytes.LastIndexByte(frame, '"'); i > 0 {
			return append(frame[:i:i], append([]byte{0xff}, frame[i:]...)...) // at the end of a string
		}
		return append(frame, 0xff)
	}
	if m.Raw == nil || m.Kind != jsonrpc.Request && m.Kind != jsonrpc.Response {
		return frame
	}
	id := m.ID
	switch r.Fault {
	case "duplicate-id":
		if other, err := jsonrpc.ParseID(last); err == nil {
			return m.AppendWithID(nil, other)
		}
	case "wrong-id":
		return m.AppendWithID(nil, jsonrpc.StringID("farcall-fault"))
	case "duplicate-member":
		out := bytes.TrimRight(bytes.Clone(frame), " \t\r\n")
		return append(append(append(out[:len(out)-1:len(out)-1], `,"id":`...), id.Raw()...), '}')
	case "error":
		return m.Version.AppendError(nil, id,
			&jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error"})
	case "huge":
		result := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, r.Size)...), '"')
		return m.Version.AppendResult(nil, id, result)
	}
	return frame
}

// split cuts a frame into pieces of so many bytes.
func split(frame []byte, size int) (pieces [][]byte) {
	size = max(size, 1)
	for len(frame) > size {
		pieces = append(pieces, frame[:size])
		frame = frame[size:]
	}
	return append(pieces, frame)
}

// garbage returns bytes that are no JSON, and no end of a line.
func (d *decider) garbage(size int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]byte, max(size, 1))
	for i := range out {
		out[i] = byte(0x80 | d.noise.IntN(0x80)) // never UTF-8 at the start
	}
	return out
}
