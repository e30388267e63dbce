package raw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// maxDepth is how deep a message may nest. What reads it may allow less.
const maxDepth = 10_000

var (
	errFull     = errors.New("raw: too many calls are under way")
	errCrowded  = errors.New("raw: there are too many connections")
	errTooLarge = errors.New("raw: the message is too large")
)

// newDecoder accepts all that might be JSON-RPC to a peer.
func newDecoder() jsonrpc.Decoder { return jsonrpc.Decoder{MaxDepth: maxDepth, AcceptV1: true} }

// letGo forgets a frame that is large: a batch holds on to the last one, and the
// next may be long in coming.
func letGo(b *jsonrpc.Batch) {
	if b.Array || len(b.Messages) > 0 && len(b.Messages[0].Raw) >= largeSize {
		*b = jsonrpc.Batch{}
	}
}

// front is the client's end of a pipe.
type front struct {
	u     *Upstream
	t     farcall.Transport
	ctx   context.Context //nolint:containedctx // of the pipe, for records
	track tracker

	// Of the goroutine that reads.
	dec   jsonrpc.Decoder
	batch jsonrpc.Batch
	asked []func(jsonrpc.Raw, error) // by message of the batch, of those that were admitted

	admission Admission // nil: all may pass
	admitted  bool      // something was

	mu sync.Mutex // for writing
}

func newFront(ctx context.Context, u *Upstream, t farcall.Transport) *front {
	f := &front{u: u, t: t, ctx: ctx, dec: newDecoder(), track: tracker{meter: &u.meter}}
	if u.opts.Admit != nil {
		f.admission = u.opts.Admit(ctx)
	}
	if b, ok := t.(interface{ Busy(f func() bool) }); ok {
		b.Busy(f.track.busy)
	}
	return f
}

// write writes frames to the client.
func (f *front) write(frames ...[]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.t.Write(frames...)
}

// next reads a frame and returns it when it is to go to the upstream, with its
// messages in f.batch. What is not to go there it answers, and returns nil: it may
// be long until there is another, and the caller may hold some for that one. Its
// error is that of the connection.
func (f *front) next() (frame []byte, err error) {
	if f.admission != nil {
		f.settleAsked(nil)
	}
	letGo(&f.batch)
	frame, err = f.t.Read()
	if err != nil {
		refused := new(jsonrpc.Error)
		if !errors.As(err, &refused) || errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, f.refuse(jsonrpc.NullID(), refused)
	}
	switch ok, err := f.passable(frame); {
	case !ok:
		return nil, err
	case f.admission != nil || f.owns():
		return f.screen(frame)
	}
	return frame, nil
}

// passable reports whether a frame may go on, and answers it otherwise. Whether
// its messages are valid is up to the upstream.
func (f *front) passable(frame []byte) (ok bool, err error) {
	if e := f.dec.Decode(frame, &f.batch); e != nil {
		return false, f.refuse(jsonrpc.NullID(), e)
	}
	m := &f.batch.Messages[0]
	switch most := f.u.opts.MaxMessage; {
	case !f.batch.Array && m.Kind == jsonrpc.Invalid && m.Raw[0] != '{':
		return false, f.refuse(jsonrpc.NullID(), m.Err)
	case most > 0 && len(frame) > most:
		e := jsonrpc.Oversize("Request", int64(most), "bytes")
		e.Cause = errTooLarge
		return false, f.reject(e)
	}
	return true, nil
}

// admit tracks the calls in the frame at hand, or answers them when there shall be
// none any more.
func (f *front) admit() (g *group, ok bool, err error) {
	g, why := f.track.add(&f.batch, f.u.opts.OnRecord != nil, f.asked)
	if why != nil {
		return nil, false, f.reject(f.u.failure(why, false))
	}
	if f.admission != nil {
		f.settleCancelled()
	}
	return g, true, nil
}

// refuse answers what is no message.
func (f *front) refuse(id jsonrpc.ID, e *jsonrpc.Error) error {
	return f.write(jsonrpc.V2.AppendError(nil, id, e))
}

// reject answers every call in the frame at hand with an error. Notifications in
// it are lost.
func (f *front) reject(e *jsonrpc.Error) error {
	f.settleAsked(e)
	var answers [][]byte
	for i := range f.batch.Messages {
		m := &f.batch.Messages[i]
		switch {
		case wantsAnswer(m):
			f.u.meter.calls.Add(1)
			f.u.meter.errors.Add(1)
			answers = append(answers, m.Version.AppendError(nil, m.ID, e))
		case m.Kind == jsonrpc.Notification:
			f.u.meter.dropped.Add(1)
		}
	}
	return f.answer(answers, f.batch.Array)
}

// answer writes the answers to one frame.
func (f *front) answer(answers [][]byte, array bool) error {
	switch {
	case len(answers) == 0:
		return nil
	case !array:
		return f.write(answers...)
	}
	all := []byte{'['}
	for i, a := range answers {
		if i > 0 {
			all = append(all, ',')
		}
		all = append(all, a...)
	}
	return f.write(append(all, ']'))
}

// fail answers calls that the upstream has not answered and never will, in their
// order. It may find that the client has gone, too.
func (f *front) fail(left []*openCall, e *jsonrpc.Error) {
	defer f.track.settle(len(left))
	for len(left) > 0 {
		g := left[0].frame
		var answers [][]byte
		for len(left) > 0 && left[0].frame == g {
			c := left[0]
			left = left[1:]
			id, _ := jsonrpc.ParseID(jsonrpc.Raw(c.id)) // it was one
			answers = append(answers, c.version.AppendError(nil, id, e))
			f.u.meter.end(true, time.Since(c.began))
			c.finish(nil, e)
			f.record(c, e.Code, e, nil)
		}
		_ = f.answer(answers, g.array)
	}
}

// answered takes the calls that a frame of the upstream answers out of the table
// and returns how many to settle once it has gone out. pass is false for a frame
// that is no message to anybody.
func (f *front) answered(b *jsonrpc.Batch) (calls int, pass bool) {
	for i := range b.Messages {
		m := &b.Messages[i]
		if m.Kind == jsonrpc.Request || m.Kind == jsonrpc.Notification {
			pass = true
			continue
		}
		c := f.track.answered(m.ID)
		if c == nil {
			// Late, or twice, or to an id that is not tracked; or it is a call that is
			// not quite valid. The client may know better.
			pass = pass || m.Kind == jsonrpc.Response && m.Err == nil || scan.Member(m.Raw, "method") != nil
			continue
		}
		pass = true
		calls++
		f.u.meter.end(m.Result == nil, time.Since(c.began))
		if f.u.opts.OnRecord != nil || c.done != nil {
			var code jsonrpc.Code
			var err error
			if e := m.Failure(); e != nil {
				code, err = e.Code, e
			}
			c.finish(m.Result, err)
			f.record(c, code, err, m.Raw)
		}
	}
	return calls, pass
}

func (f *front) record(c *openCall, code jsonrpc.Code, err error, response jsonrpc.Raw) {
	if f.u.opts.OnRecord == nil {
		return
	}
	id, _ := jsonrpc.ParseID(jsonrpc.Raw(c.id)) // it was one
	ctx := f.ctx
	if c.parent != "" {
		ctx = farcall.WithTrace(ctx, farcall.Trace{Parent: c.parent})
	}
	f.u.opts.OnRecord(ctx, farcall.Record{
		ID: id, Method: c.method, Code: code, Err: err, Latency: time.Since(c.began),
		BytesIn: c.size, BytesOut: len(response), Response: response, Batch: c.frame.array,
	})
}

// garbage notes a frame of the upstream that is no message.
func (u *Upstream) garbage(ctx context.Context, frame []byte, cause error) {
	u.meter.garbage.Add(1)
	u.opts.Logger.WarnContext(ctx, "skipped what is no message of an upstream",
		"upstream", u.opts.Name, "begins", fmt.Sprintf("%.200q", frame), "error", cause)
}
