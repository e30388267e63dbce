// Package sse reads and writes event streams, the text/event-stream format of
// the WHATWG HTML standard, section 9.2 (Server-Sent Events).
//
// It knows nothing of JSON-RPC and nothing of HTTP: a [Reader] takes bytes from
// an io.Reader, a [Writer] gives each event to an io.Writer in one Write.
package sse

import "errors"

// ErrTooLarge says that one event, or one line, is longer than the limit of the
// Reader. The stream cannot be read on.
var ErrTooLarge = errors.New("sse: event too large")

// ContentType is the media type of an event stream.
const ContentType = "text/event-stream"

// DefaultMaxEvent bounds one event when the caller gives no limit: 10 MB.
const DefaultMaxEvent = 10 << 20

// An Event is one event of a stream.
type Event struct {
	// ID is the last event id (WHATWG HTML 9.2.6): when read, it is that of the
	// latest event that had one; when written, empty writes none.
	ID string
	// Type is the event's name. Empty means "message".
	Type string
	// Data has no trailing line break. Its line breaks are LF when read.
	Data []byte
}
