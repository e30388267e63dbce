package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/inspect/internal/traffic"
	"github.com/farcall-dev/farcall/internal/filelock"
	"github.com/farcall-dev/farcall/internal/watch"
)

// protocolCapture is what a slot speaks that shows a file.
const protocolCapture = "capture"

// open opens the capture of a slot and reads it.
func (x *slot) open(ctx context.Context, path string) {
	r, end, err := x.openFile(ctx, path)
	if err == nil {
		defer end()
		err = x.load(ctx, r)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil && x.protocol == "": // nothing was read
		x.setLocked(stateFailed, strings.TrimPrefix(err.Error(), path+": "))
	}
}

// openFile opens a capture, which is followed while another process records it.
func (x *slot) openFile(ctx context.Context, path string) (
	r *capture.Reader, end func(), err error,
) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if free, err := filelock.Try(f, false); err != nil || free {
		_ = filelock.Close(f) // it was only read
		if r, err = capture.Open(path); err != nil {
			return nil, nil, err
		}
		return r, func() { _ = r.Close() }, nil
	}
	r, err = capture.NewReader(watch.Follow(ctx, f, func() error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.state == stateConnecting && ctx.Err() == nil {
			x.protocol = protocolCapture
			x.setLocked(stateReady, "A capture that is being recorded: the traffic shows it live.")
		}
		return nil
	}))
	if err != nil {
		_ = f.Close() // it was only read
		return nil, nil, err
	}
	return r, func() { _, _ = r.Close(), f.Close() }, nil // as above
}

// load reads a capture into the traffic. It fails when it is no capture; what comes before a line
// that is not valid is shown.
func (x *slot) load(ctx context.Context, r *capture.Reader) error {
	l := loader{x: x, seqs: map[uint64]uint64{}, calls: map[uint64]uint64{}}
	var failed error
	for ctx.Err() == nil {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if failed != nil || l.records == 0 {
				failed = err
				break
			}
			failed = err // it may be only this line
			continue
		}
		l.records++
		l.record(rec)
	}
	if l.records == 0 && failed != nil {
		return failed
	}
	note := fmt.Sprintf("A capture of %s frames.", grouped(l.frames))
	switch {
	case failed != nil:
		note += " A line is not valid: " + failed.Error() + "."
	case r.Torn():
		note += " Its last line is torn: the recorder was stopped while it wrote."
	}
	if l.redacted {
		note += " Secrets in it were replaced when it was recorded."
	}
	if l.lost > 0 {
		note += fmt.Sprintf(" The recorder has lost %s.", grouped(l.lost))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if ctx.Err() == nil {
		x.protocol = protocolCapture
		x.setLocked(stateReady, note)
	}
	return nil
}

// grouped writes a number with commas.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// decide keeps a decision, for as many as a loader remembers.
func (x *slot) decide(seq uint64, d verdict) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.decided == nil || len(x.decided) >= maxLoaded {
		x.decided = map[uint64]verdict{}
	}
	x.decided[seq] = d
}

// A loader makes rows of the records of a capture.
type loader struct {
	x        *slot
	seqs     map[uint64]uint64 // rows of requests, by their number in the capture
	calls    map[uint64]uint64 // rows of requests, by the number of their call
	records  int
	frames   int
	lost     int
	redacted bool
}

// maxLoaded bounds the requests that a loader remembers.
const maxLoaded = 1 << 16

// kindsOf has the kinds of rows by those of records.
var kindsOf = map[string]byte{
	"request": traffic.Request, "notification": traffic.Notification, "response": traffic.Response,
	"batch": traffic.Batch, "bad": traffic.Invalid,
}

// ofCall marks the part of a row that is a call and no connection.
const ofCall = 1 << 63

func (l *loader) record(rec *capture.Record) {
	switch rec.Type {
	case "capture":
		l.redacted = l.redacted || rec.Redact
	case "frame", "call":
		l.frame(rec)
	case "conn":
		l.note(rec, connText(rec))
	case "event":
		l.note(rec, strings.TrimSpace(rec.Upstream+" "+rec.Why))
	case "drop":
		l.lost += rec.Size
		l.note(rec, fmt.Sprintf("%d lost: %s", rec.Size, rec.Why))
	case "http":
		if rec.Status >= 400 {
			l.note(rec, fmt.Sprintf("HTTP status %d", rec.Status))
		}
	case "stderr":
		if data, err := rec.Data(); err == nil {
			text := shorten(strings.TrimRight(string(data), "\r\n"), maxEventText)
			l.x.i.events.add(eventStderr, l.x.id, "", text)
		}
	}
}

// connText says what is known of a connection.
func connText(rec *capture.Record) string {
	if rec.Closed {
		return fmt.Sprintf("connection %d is closed", rec.Conn)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "connection %d:", rec.Conn)
	for _, part := range []string{
		rec.Transport, rec.Label, rec.Peer, rec.TLS, rec.Era, strings.Join(rec.Command, " "),
	} {
		if part != "" {
			text.WriteString(" " + part)
		}
	}
	if rec.Upstream != "" {
		text.WriteString(", to the upstream " + rec.Upstream)
	}
	return text.String()
}

func (l *loader) note(rec *capture.Record, text string) {
	l.x.i.store.Put(traffic.Row{
		Time: rec.Time / 1000, Conn: l.x.id, Link: rec.Conn, Dir: '!', Size: len(text), Method: "",
	}, rec.Conn, []byte(text))
}

func (l *loader) frame(rec *capture.Record) {
	row := traffic.Row{
		Time: rec.Time / 1000, Conn: l.x.id, Link: rec.Conn, Dir: '>', Kind: kindsOf[rec.Kind],
		Method: rec.Method, Name: rec.Name, Size: rec.Size, Code: rec.Code, Failed: rec.ToolError,
		Took: rec.Duration / 1000, Ref: l.seqs[rec.Ref], Hop: rec.Side() != "" && rec.Call != 0,
	}
	if rec.Dir == "down" {
		row.Dir = '<'
	}
	if row.Kind == 0 {
		row.Kind = traffic.Invalid
	}
	part := rec.Conn
	if rec.Exchange != 0 {
		row.Link = rec.Exchange
	}
	if rec.Call != 0 { // ids of several clients are on one connection
		row.Link, part = rec.Call, rec.Call|ofCall
	}
	if rec.Parent != 0 {
		row.Parent = l.calls[rec.Parent]
	}
	if row.Ref == 0 {
		row.Took = 0
	}
	data, err := rec.Data()
	if err != nil || rec.Type == "call" {
		data = nil
	}
	if rec.Type == "call" { // there was no answer
		row.Kind, row.Size = traffic.Response, 0
	}
	l.frames++
	seq := l.x.i.store.Put(row, part, data)
	if rec.Outcome != "" {
		l.x.decide(seq, verdict{shorten(rec.Outcome, 40), shorten(rec.Principal, 200)})
	}
	if rec.Kind == "request" {
		if len(l.seqs) >= maxLoaded {
			clear(l.seqs)
			clear(l.calls)
		}
		l.seqs[rec.Seq] = seq
		if rec.Call != 0 {
			l.calls[rec.Call] = seq
		}
	} else if rec.Ref != 0 {
		delete(l.seqs, rec.Ref)
	}
}
