package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func newBatchCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	concurrency := 10
	cmd := command("batch TARGET FILE|-", "Make many calls and print their answers in order",
		func(cmd *cobra.Command, args []string) error { return r.batch(cmd, args, concurrency) })
	r.callFlags(cmd, defaultTimeout)
	cmd.Flags().IntVar(&concurrency, "concurrency", concurrency,
		"how many of the calls of lines to make at a time")
	return cmd
}

func (r *remote) batch(cmd *cobra.Command, args []string, concurrency int) error {
	t, rest, err := r.split(cmd, args)
	switch {
	case err != nil:
		return err
	case len(rest) != 1:
		return usagef("For example: "+cmd.CommandPath()+
			" localhost:7331 requests.json, or - for standard input.", "give one FILE with the requests")
	case concurrency < 1:
		return usagef("Use --concurrency 1 for one after the other.", "--concurrency %d makes no call",
			concurrency)
	}
	entries, array, err := r.readBatch(rest[0])
	if err != nil {
		return err
	}
	return r.with(cmd.Context(), t, nil, func(ctx, _ context.Context, s *session) error {
		b := &batchRun{remote: r, target: t, session: s, entries: entries}
		if array {
			return b.sendArray(ctx)
		}
		return b.sendLines(ctx, concurrency)
	})
}

// entry is one request of a file, and what became of it.
type entry struct {
	where  string // "line 3"
	id     jsonrpc.ID
	method string
	params jsonrpc.Raw
	result jsonrpc.Raw
	err    error
	done   chan struct{}
}

// readBatch reads the requests. array is true when they are one batch.
func (r *remote) readBatch(name string) (entries []*entry, array bool, err error) {
	var b []byte
	if name == "-" {
		b, err = io.ReadAll(r.stdin)
	} else {
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, false, unreadable("the requests", name, err)
	}
	b = bytes.TrimSpace(b)
	switch {
	case len(b) == 0:
		return nil, false, usagef("Give a JSON array of requests, or a request a line.",
			"there are no requests in %s", name)
	case b[0] == '[':
		entries, err = appendEntries(nil, b, "element")
		return entries, true, err
	case jsonrpc.Valid(b) == nil: // one request, perhaps over several lines
		entries, err = appendEntries(nil, b, "request")
		return entries, false, err
	}
	n := 0
	for line := range bytes.Lines(b) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if entries, err = appendEntries(entries, line, fmt.Sprintf("line %d", n)); err != nil {
			return nil, false, err
		}
	}
	return entries, false, nil
}

// appendEntries adds the requests in one JSON text.
func appendEntries(entries []*entry, text []byte, where string) ([]*entry, error) {
	d := jsonrpc.Decoder{MaxBatch: 1 << 20}
	var b jsonrpc.Batch
	if err := d.Decode(text, &b); err != nil {
		return nil, usagef("Give a JSON array of requests, or a request a line.", "%s: %w", where,
			because(err))
	}
	for i := range b.Messages {
		m := &b.Messages[i]
		at := where
		if b.Array {
			at = fmt.Sprintf("%s %d", where, i+1)
		}
		switch m.Kind {
		case jsonrpc.Request, jsonrpc.Notification:
			entries = append(entries,
				&entry{
					where: at, id: m.ID, method: string(m.Method), params: m.Params,
					done: make(chan struct{}),
				})
		case jsonrpc.Response:
			return nil, usagef("", "%s is a response, not a request", at)
		default:
			return nil, usagef(`A request is {"jsonrpc":"2.0","id":1,"method":"name","params":{}}.`,
				"%s is not a request: %w", at, because(m.Err))
		}
	}
	return entries, nil
}

// because is the private cause of a refusal: here it is for the one who typed.
func because(e *jsonrpc.Error) error {
	if e.Cause != nil {
		return e.Cause
	}
	return e
}

// batchRun makes the calls of a file.
type batchRun struct {
	*remote
	target  *target.Target
	session *session
	entries []*entry
}

// sendArray sends all in one frame and prints one array.
func (b *batchRun) sendArray(ctx context.Context) error {
	limited, cancel := b.limit(ctx)
	defer cancel()
	calls := make([]*farcall.BatchCall, len(b.entries))
	for i, e := range b.entries {
		calls[i] = &farcall.BatchCall{
			Method: e.method, Params: orNil(e.params), Result: &e.result,
			Notify: e.id.IsAbsent(),
		}
	}
	if err := b.session.Batch(limited, calls...); err != nil {
		return callFailure(ctx, "batch", b.target, b.session, err)
	}
	var tally tally
	out := jsonrpc.Raw{'['}
	for i, e := range b.entries {
		e.err = calls[i].Err
		answer := b.answer(ctx, e, &tally)
		if answer == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, answer...)
	}
	if len(out) > 1 {
		if err := b.printJSON(append(out, ']')); err != nil {
			return err
		}
	}
	if tally.failed == 0 {
		if err := delivered(limited, b.session); err != nil {
			return callFailure(ctx, "batch", b.target, b.session, err)
		}
	}
	return tally.exit()
}

// sendLines makes each call on its own, several at a time, and prints the
// answers in the order of the lines as soon as that is possible.
func (b *batchRun) sendLines(ctx context.Context, concurrency int) error {
	next := make(chan *entry)
	var wg sync.WaitGroup
	defer wg.Wait()
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	for range min(concurrency, len(b.entries)) {
		wg.Go(func() {
			for e := range next {
				b.one(calling, e)
				close(e.done)
			}
		})
	}
	wg.Go(func() {
		defer close(next)
		for _, e := range b.entries {
			next <- e
		}
	})
	var tally tally
	for _, e := range b.entries {
		<-e.done
		answer := b.answer(ctx, e, &tally)
		if answer == nil {
			continue
		}
		if err := b.printLine(answer); err != nil {
			return err
		}
	}
	return tally.exit()
}

func (b *batchRun) one(ctx context.Context, e *entry) {
	ctx, cancel := b.limit(ctx)
	defer cancel()
	if e.id.IsAbsent() {
		e.err = b.session.Notify(ctx, e.method, orNil(e.params))
		return
	}
	e.err = b.session.Call(ctx, e.method, orNil(e.params), &e.result)
}

// answer is the response to an entry under the id that the file gave it. It is
// nil for a notification, and when there was no answer.
func (b *batchRun) answer(ctx context.Context, e *entry, t *tally) jsonrpc.Raw {
	var wire *jsonrpc.Error
	switch {
	case errors.As(e.err, &wire):
		t.failed++
		return b.version().AppendError(nil, e.id, wire)
	case e.err != nil:
		t.lost(callFailure(ctx, e.where+", "+e.method, b.target, b.session, e.err))
		return nil
	case e.id.IsAbsent():
		return nil
	}
	t.answered++
	return b.version().AppendResult(nil, e.id, e.result)
}

// tally counts what became of the calls.
type tally struct {
	answered, failed, unanswered int
	first                        error // why the first unanswered call was
}

func (t *tally) lost(err error) {
	if t.unanswered++; t.first == nil {
		t.first = err
	}
}

func (t *tally) exit() error {
	var first *exitError
	switch {
	case errors.As(t.first, &first) && t.unanswered > 1:
		return &exitError{
			code: first.code,
			err:  fmt.Errorf("%w (and %d more without an answer)", first.err, t.unanswered-1),
			hint: first.hint,
		}
	case t.first != nil:
		return t.first
	case t.failed > 0:
		return &exitError{
			code: exitAnswered,
			err: fmt.Errorf("answered with an error: %d of %s", t.failed,
				countOf(t.failed+t.answered, "call")),
		}
	}
	return nil
}
