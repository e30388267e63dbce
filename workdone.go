package farcall

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	// workToken is the member of the params by which LSP asks how far a call has come.
	workToken = "workDoneToken"
	// maxWorkToken bounds a token in bytes: it is repeated in each report.
	maxWorkToken = 1 << 10
	// workPrefix begins our own tokens, before the id of the call. Those of partial results are the
	// id.
	workPrefix = "work-"
)

// A WorkDone says how far a call has come (LSP 3.17, "Work Done Progress").
type WorkDone struct {
	// Kind is "begin", "report" or "end". A handler sets it for an early end only.
	Kind string `json:"kind"`
	// Title is that of the begin, "Indexing" for example. Default: the name of the method.
	Title string `json:"title,omitzero"`
	// Cancellable says that a user may cancel the call. The end has none.
	Cancellable bool `json:"cancellable,omitzero"`
	// Message has details, "3/25 files" for example.
	Message string `json:"message,omitzero"`
	// Percentage is from 0 to 100; nil: not known. The end has none.
	Percentage *int `json:"percentage,omitzero"`
}

// ReportWorkDone tells the caller how far a call has come, where it asked with the member
// workDoneToken of its params, as clients of LSP do. The first value is the begin, others are
// reports, and the end is sent when the handler returns, or with a Kind of "end" before. It does
// nothing when the caller did not ask, after the end, and in dialects without a ProgressValue; what
// [Progress] sends is apart from it.
//
// On a connection it does not wait: while the caller does not read what was sent before, the begin
// and reports are dropped. It fails when the context, the call or the connection has ended. It may
// be called concurrently.
func ReportWorkDone(ctx context.Context, w WorkDone) error {
	s := servingFrom(ctx)
	if s == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if r := s.working(); r != nil {
		return r.report(s, w)
	}
	return s.Err()
}

// OnWorkDone returns a context for one call, which then asks how far it has come: f is called with
// each value in the order in which they arrive, by the goroutine that reads, before the call
// returns. f must not block. A call with an array as params, one of a batch, and one in a dialect
// without a ProgressValue does not ask.
func OnWorkDone(ctx context.Context, f func(WorkDone)) context.Context {
	return context.WithValue(ctx, workKey{}, workFunc(f))
}

type workKey struct{}

type workFunc func(WorkDone)

// workDone is the progress that one call reports.
type workDone struct {
	token jsonrpc.Raw

	mu           sync.Mutex // held while a value is queued, so that they are in order
	begun, ended bool
}

// working returns where to report, nil when the caller did not ask. Nil, too, once the handler has
// returned: the memory of the message may be in use for another.
func (s *serving) working() (r *workDone) {
	if s.core.opts.Dialect.ProgressValue == "" {
		return nil
	}
	s.end.Before(func() {
		if r = s.worked(); r != nil {
			return
		}
		if token := scan.Member(s.req.msg.Params, workToken); isWorkToken(token) {
			r = &workDone{token: slices.Clone(token)}
			s.needRare().work.Store(r)
		}
	})
	return r
}

// worked returns what the handler has reported; nil: nothing so far.
func (s *serving) worked() *workDone {
	if x := s.rare(); x != nil {
		return x.work.Load()
	}
	return nil
}

// isWorkToken reports whether a token is a string or a number, and not too long to be repeated.
func isWorkToken(token jsonrpc.Raw) bool {
	return len(token) > 0 && len(token) <= maxWorkToken &&
		(token[0] == '"' || token[0] == '-' || '0' <= token[0] && token[0] <= '9')
}

func (r *workDone) report(s *serving, w WorkDone) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := w.Kind == "end"
	switch {
	case r.ended:
		return nil
	case last && !r.begun:
		r.ended = true
		return nil
	case last:
		w = WorkDone{Kind: "end", Message: w.Message}
	case r.begun:
		w.Kind, w.Title = "report", ""
	default:
		w.Kind = "begin"
		if w.Title == "" {
			w.Title = s.req.Method
		}
	}
	value, err := jsonv2.Append(nil, w)
	if err != nil {
		return err
	}
	sent, err := s.tell(s.core.opts.Dialect.appendProgress(nil, s.req.msg.Version, r.token, value, false), last)
	r.begun = r.begun || sent
	r.ended = last
	return err
}

// workEnded ends what the handler has begun to report.
func (s *serving) workEnded() {
	if r := s.worked(); r != nil {
		_ = r.report(s, WorkDone{Kind: "end"}) // it fails only when the caller has gone
	}
}

// tell queues a frame for the caller. It does not wait: unless the caller must have it, the
// frame is dropped when too much waits to be written.
func (s *serving) tell(frame []byte, must bool) (sent bool, err error) {
	p := s.peer
	if p == nil {
		err = s.push.send(frame)
		if sent = err == nil; errors.Is(err, ErrNoCallback) {
			err = nil // this transport carries the answer only
		}
		return sent, err
	}
	p.update(func(st *state) {
		switch {
		case st.err != nil:
			err = closedError(st.err)
		case must || st.unsent() <= min(progressUnsent, p.opts.MaxUnsent/4):
			st.queue(frame)
			sent = true
		}
	})
	p.flush(0)
	return sent, err
}

// appendWorkToken appends the workDoneToken of the call with an id.
func appendWorkToken(dst []byte, id jsonrpc.ID) []byte {
	dst = append(append(dst, '"'), workPrefix...)
	return append(append(dst, id.Raw()...), '"')
}

// tokenOf returns the id of the call that a token names, and whether it is its workDoneToken.
func tokenOf(token jsonrpc.Raw) (n uint64, work, ok bool) {
	if len(token) > 0 && token[0] == '"' {
		digits, ours := bytes.CutPrefix(scan.Unquote(token), []byte(workPrefix))
		n, err := strconv.ParseUint(string(digits), 10, 64)
		return n, true, ours && err == nil
	}
	id, err := jsonrpc.ParseID(token)
	if err != nil {
		return 0, false, false
	}
	n, ok = id.Uint()
	return n, false, ok
}

// worked takes what arrives for the workDoneToken of a call. It reports false when the call has not
// asked. What is no value of LSP is dropped.
func (c *call) worked(value jsonrpc.Raw) bool {
	f := c.extras().work
	if f == nil {
		return false
	}
	var w WorkDone
	if err := jsonv2.Unmarshal(value, &w); err == nil && (w.Kind == "begin" || w.Kind == "report" || w.Kind == "end") {
		f(w)
	}
	return true
}
