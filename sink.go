package farcall

import (
	"context"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A sink takes the values of a streaming method while its handler runs, so that interceptors
// surround all of the call. The values go to item where there is one, else out as progress when the
// caller asked for it, and else into the array that is the answer.
type sink struct {
	call   *serving                // nil: the handler was called by a program itself
	item   func(jsonrpc.Raw) error // of Responder.Stream
	asked  bool                    // the caller asked for progress
	values jsonrpc.Raw             // the array so far
	count  int
}

// newSink returns the sink of a request.
func newSink(req *Request) *sink {
	k := &sink{call: req.call}
	if s := req.call; s != nil {
		s.req.streams = true
		if x := s.extra.Load(); x != nil {
			k.item = x.item
		}
		if k.item == nil {
			k.asked = s.reporting() != nil
		}
	}
	return k
}

// put takes a value. Its error is for the handler to return: the caller has gone, the context has
// ended, or the value has no JSON.
func (k *sink) put(ctx context.Context, v any) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	k.count++
	switch {
	case k.item != nil:
		raw, err := jsonv2.Append(nil, v)
		if err != nil {
			return err
		}
		return k.item(raw)
	case k.asked:
		return Progress(ctx, v)
	case len(k.values) == 0:
		k.values = append(k.values, '[')
	default:
		k.values = append(k.values, ',')
	}
	if k.values, err = jsonv2.Append(k.values, v); err != nil {
		return err
	}
	if k.call != nil && len(k.values) > k.call.core.opts.MaxUnsent {
		e := jsonrpc.Oversize("Answer", int64(k.call.core.opts.MaxUnsent), "bytes")
		e.Message += ": the stream is longer than an answer may be; ask for progress to get it in parts"
		return e
	}
	return nil
}

// result returns the answer of a sequence that has ended: null when its values went elsewhere.
func (k *sink) result() any {
	switch {
	case k.item != nil || k.asked:
		return nil
	case k.count == 0:
		return jsonrpc.Raw("[]")
	}
	return append(k.values, ']')
}
