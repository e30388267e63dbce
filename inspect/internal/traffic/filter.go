package traffic

import (
	"strings"

	"github.com/farcall-dev/farcall/capture"
)

// A Filter chooses rows. Nil chooses all.
type Filter capture.Filter

// Parse reads a filter in the language of captures, in which the record of a row is of type frame,
// or event for what became of a connection. It returns nil for an empty text.
func Parse(text string) (*Filter, error) {
	f, err := capture.ParseFilter(text)
	if err != nil || strings.TrimSpace(text) == "" {
		return nil, err
	}
	return (*Filter)(f), nil
}

// What rows and records call the same.
var (
	recordKinds = map[byte]string{
		Request: "request", Notification: "notification", Response: "response",
		Batch: "batch", Invalid: "bad",
	}
	recordDirs = map[byte]string{'>': "up", '<': "down"}
)

// Match reports whether a row is chosen.
func (f *Filter) Match(r *Row, raw []byte) bool {
	if f == nil {
		return true
	}
	rec := capture.Record{
		Type: "frame", Seq: r.Seq, Conn: uint64(r.Conn), Dir: recordDirs[r.Dir],
		Kind: recordKinds[r.Kind], Method: r.Method, Name: r.Name, Size: r.Size, Ref: r.Ref,
		Code: r.Code, ToolError: r.Failed, Duration: r.Took * 1000,
	}
	if rec.Kind == "" {
		rec.Type = "event"
	}
	rec.SetData(raw)
	return (*capture.Filter)(f).Match(&rec)
}
