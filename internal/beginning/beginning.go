// Package beginning answers one question: what was the frame that was not read, by its first bytes?
package beginning

import (
	"errors"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Beginning is what the first bytes of a frame say.
type Beginning struct {
	ID     jsonrpc.ID // absent: it is not known
	Call   bool       // it is a request or a notification
	Answer bool       // it is an answer
	Batch  bool       // it is an array; the other fields are about its first element
}

// Of reads the beginning of a frame, which may end anywhere.
func Of(b []byte) (f Beginning) {
	i := scan.Space(b, 0)
	if f.Batch = i < len(b) && b[i] == '['; f.Batch {
		b = b[i+1:]
	}
	for key, value := range scan.Beginning(b) {
		switch string(key) {
		case "id":
			if id, err := jsonrpc.ParseID(value); err == nil && len(value) > 0 {
				f.ID = id
			}
		case "method":
			f.Call = true
		case "result", "error":
			f.Answer = true
		}
	}
	f.Answer = f.Answer && !f.Call
	return f
}

// BytesOf returns the beginning of the frame that the error of a transport refuses, nil when the
// error does not have it: see farcall.Transport.
func BytesOf(err error) []byte {
	part, ok := errors.AsType[interface {
		error
		Begins() []byte
	}](err)
	if !ok {
		return nil
	}
	return part.Begins()
}
