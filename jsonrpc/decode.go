package jsonrpc

import (
	"strconv"

	"github.com/farcall-dev/farcall/internal/scan"
)

// The defaults of a Decoder.
const (
	defaultDepth = 512
	defaultBatch = 10_000
)

// Decoder turns frames into messages. The zero value is ready for use.
type Decoder struct {
	// MaxDepth bounds how many objects and arrays may be inside each other, the
	// message and the batch included. Negative: no bound. Default 512.
	MaxDepth int
	// MaxBatch bounds the elements of a batch. Negative: no batch is accepted.
	// Default 10,000.
	MaxBatch int
	// AcceptV1 also accepts JSON-RPC 1.0: messages without the member
	// "jsonrpc", where an id of null marks a notification, params are an array,
	// and a response has both a result and an error, one of them null.
	AcceptV1 bool
	// StrictAnswers refuses answers that are not as the specification has them.
	// Otherwise the null one of a result and an error is passed over, and so is a
	// missing "jsonrpc": many servers write such answers. Requests are always held
	// to the specification.
	StrictAnswers bool
}

// Batch is one decoded frame. It can be reused; then decoding allocates nothing
// once it has grown to size. It holds on to the frame and to its size.
type Batch struct {
	Array    bool // the frame is an array, and so must be the answer
	Messages []Message

	ids []uint32 // memory of refuseDuplicates
}

// add returns the next message, zeroed.
func (b *Batch) add() *Message {
	n := len(b.Messages)
	if n < cap(b.Messages) {
		b.Messages = b.Messages[:n+1]
	} else {
		b.Messages = append(b.Messages, Message{})
	}
	return &b.Messages[n]
}

func (b *Batch) reset() {
	clear(b.Messages)
	b.Messages, b.Array = b.Messages[:0], false
}

// Decode validates a frame completely and finds its messages, which borrow the frame. An error
// refuses the frame as a whole and is answered with the id null: [ParseError] when it is not JSON,
// [InvalidRequest] for a batch that is empty, [TooLarge] for one that is too long. Anything else
// that is wrong concerns one message only: see [Message.Err]. The error's data says where and what:
// see [Refusal].
func (d *Decoder) Decode(frame []byte, into *Batch) *Error {
	into.reset()
	depth, limit := d.MaxDepth, d.MaxBatch
	if depth == 0 {
		depth = defaultDepth
	}
	if limit == 0 {
		limit = defaultBatch
	}
	start := scan.Space(frame, 0)
	if start == len(frame) || frame[start] != '[' {
		end, f := d.decodeMessage(frame, start, depth, into.add())
		return into.finish(frame, end, f)
	}
	n, end, f := d.decodeElements(frame, start+1, depth-1, limit, into)
	err := into.finish(frame, end, f)
	switch {
	case err != nil:
		return err
	case limit < 0:
		err = invalid(start, "batches are not accepted here")
	case n == 0:
		err = invalid(start, "the batch is empty")
	case n > limit:
		err = Oversize("Batch", int64(limit), "elements")
	default:
		into.Array = true
		into.refuseDuplicates()
		return nil
	}
	into.reset()
	return err
}

// decodeElements decodes the elements of an array of messages (specification,
// section 6), and returns their number and the array's end.
func (d *Decoder) decodeElements(
	frame []byte, i, depth, limit int, into *Batch,
) (n, end int, f scan.Fault) {
	if i = scan.Space(frame, i); i < len(frame) && frame[i] == ']' {
		return 0, i + 1, scan.OK
	}
	for {
		if n++; n <= limit {
			i, f = d.decodeMessage(frame, i, depth, into.add())
		} else { // will be refused, but first it must be JSON
			i, f = scan.Value(frame, i, depth)
		}
		if f != scan.OK {
			return n, i, f
		}
		if i = scan.Space(frame, i); i == len(frame) {
			return n, i, scan.End
		}
		switch frame[i] {
		case ',':
			i = scan.Space(frame, i+1)
		case ']':
			return n, i + 1, scan.OK
		default:
			return n, i, scan.NoComma
		}
	}
}

// finish checks what follows the value of the frame.
func (b *Batch) finish(frame []byte, end int, f scan.Fault) *Error {
	if f == scan.OK {
		if end = scan.Space(frame, end); end == len(frame) {
			return nil
		}
		f = scan.Trailing
	}
	b.reset()
	return Refusal(ParseError, located(end, f.String()))
}

func invalid(offset int, text string) *Error {
	return Refusal(InvalidRequest, located(offset, text))
}

// located says where in a frame something is wrong.
func located(offset int, text string) string { return text + " at offset " + strconv.Itoa(offset) }
