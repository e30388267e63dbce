package natsrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	// acceptAfter is when a caller hears that its request has been taken, if there is no answer yet:
	// it can cancel it then, and ask whether the server is still there.
	acceptAfter = 20 * time.Millisecond
	// beatEvery is how often it hears it again: the engine says when the caller is not there any more.
	beatEvery = 30 * time.Second
	// readTimeout bounds the waiting for a caller that does not read.
	readTimeout = time.Minute
)

// A call is a request and its answer, which is written as to an http.ResponseWriter.
type call struct {
	s            *Server
	id, to       string
	frame        []byte
	loan         budget.Loan // holds frame, and an answer in one message
	owner        owner.Key
	method, path string
	header       http.Header // of the request
	stream       bool
	ctx          context.Context //nolint:containedctx // of the request
	cancel       context.CancelFunc

	mu      sync.Mutex
	out     http.Header
	status  int // 0: not written yet
	buf     []byte
	sent    uint64 // pieces
	first   bool   // the piece with the status was sent
	ended   bool
	err     error // of sending
	room    int   // bytes that may be sent before the caller has read
	writeBy time.Time
	beat    *time.Timer
	more    chan struct{} // has a value when there is room again
}

// Header implements http.ResponseWriter.
func (c *call) Header() http.Header {
	if c.out == nil {
		c.out = http.Header{}
	}
	return c.out
}

// WriteHeader implements http.ResponseWriter.
func (c *call) WriteHeader(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == 0 && status >= http.StatusOK {
		c.status = status
	}
}

// Write implements http.ResponseWriter. It waits for a caller that reads slowly.
func (c *call) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, errEnded
	}
	c.status = cmp.Or(c.status, http.StatusOK)
	if c.method == http.MethodHead || c.status == http.StatusNoContent {
		return len(b), nil // RFC 9110, sections 9.3.2 and 15.3.5: there is no body
	}
	if !c.stream {
		switch size := len(c.buf) + len(b); {
		case c.err != nil:
		case size > c.limit():
			c.err = errTooLarge
		case !c.loan.Grow(len(c.frame) + size):
			c.err = budget.ErrNoRoom
		default:
			c.buf = append(c.buf, b...)
		}
		return len(b), c.err
	}
	n, most := 0, min(piece, c.limit())
	for len(b) > 0 {
		k := min(len(b), most-len(c.buf))
		c.buf, b, n = append(c.buf, b[:k]...), b[k:], n+k
		if len(c.buf) == most {
			if err := c.flushLocked(); err != nil {
				return n, err
			}
		}
	}
	return n, c.err
}

// Flush implements http.Flusher.
func (c *call) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = cmp.Or(c.status, http.StatusOK)
	if c.stream {
		_ = c.flushLocked() // Write has its error
	}
}

// SetReadDeadline is for handlers that require it: what arrives is there already. One that is over
// ends the call.
func (c *call) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && !t.After(time.Now()) {
		c.cancel()
	}
	return nil
}

// SetWriteDeadline bounds the waiting for a caller that does not read. One that is over ends the
// call: that is how a guard ends streams.
func (c *call) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.writeBy = t
	c.mu.Unlock()
	return c.SetReadDeadline(t)
}

var (
	errTooLarge = errors.New("natsrpc: the answer does not fit into a message of the engine")
	errEnded    = errors.New("natsrpc: the answer has ended")
)

// limit is how long the body of one message may be: the engine counts headers as well.
func (c *call) limit() int { return max(int(c.s.nc.MaxPayload())-8<<10, 1<<10) }

// flushLocked sends what was written, and waits until there is room for more.
func (c *call) flushLocked() error {
	for c.room <= 0 && c.err == nil {
		wait := readTimeout
		if !c.writeBy.IsZero() {
			wait = min(wait, time.Until(c.writeBy))
		}
		c.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-c.more:
		case <-timer.C:
			c.cancel()
		case <-c.ctx.Done():
		}
		timer.Stop()
		c.mu.Lock()
		if err := c.ctx.Err(); err != nil {
			c.err = err
		}
	}
	if c.err != nil || c.ended || len(c.buf) == 0 && c.first {
		return c.err
	}
	c.room -= len(c.buf) + overhead
	c.sendLocked("")
	return c.err
}

// read gives back the room of what the caller has read.
func (c *call) read(n int) {
	c.mu.Lock()
	c.room = min(c.room+n, window)
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// alive says that the request has been taken, and again and again that it is not forgotten.
func (c *call) alive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.publish(c.message())
		c.beat.Reset(beatEvery)
	}
}

// end sends what is left. why is "1" at the end of a whole answer.
func (c *call) end(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.to == "" {
		return
	}
	switch {
	case errors.Is(c.err, errTooLarge):
		c.tooLargeLocked()
	case why != "1" && !c.first:
		c.instead(http.StatusInternalServerError, why)
		why = "1"
	case c.err != nil && !c.stream:
		c.instead(http.StatusServiceUnavailable, c.err.Error())
	case c.err != nil:
		c.buf, why = nil, c.err.Error()
	}
	c.status = cmp.Or(c.status, http.StatusOK)
	c.ended, c.err = true, nil
	c.sendLocked(why)
}

// tooLargeLocked replaces an answer that does not fit by an error that says so.
func (c *call) tooLargeLocked() {
	e := jsonrpc.Oversize("answer", int64(c.limit()), "bytes")
	e.Message += fmt.Sprintf(": the engine takes %d bytes; "+
		"farcall and natsrpc.Transport get it in pieces", c.s.nc.MaxPayload())
	var b jsonrpc.Batch
	id := jsonrpc.ID{} // null: of a batch
	if (&jsonrpc.Decoder{}).Decode(c.frame, &b) == nil && !b.Array && len(b.Messages) > 0 {
		id = b.Messages[0].ID
	}
	c.status, c.out = http.StatusOK, http.Header{"Content-Type": {"application/json"}}
	c.buf = jsonrpc.V2.AppendError(nil, id, e)
}

// instead puts an error in place of an answer that has not begun.
func (c *call) instead(status int, why string) {
	c.status, c.out = status, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	c.buf = []byte("natsrpc: " + strings.TrimPrefix(why, "natsrpc: ") + "\n")
}

// refuse answers without a handler.
func (c *call) refuse(status int, why string) {
	if c.to == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.instead(status, why)
	c.sendLocked("1")
}

// message makes the next piece. c.mu is held, as for publish and sendLocked.
func (c *call) message() *nats.Msg {
	m := nats.NewMsg(c.to)
	if c.stream {
		m.Header.Set(headerPiece, strconv.FormatUint(c.sent, 10))
		if c.id != "" {
			m.Reply = c.s.inbox + "." + c.id
		}
	}
	return m
}

func (c *call) publish(m *nats.Msg) {
	c.sent++
	if err := c.s.nc.PublishMsg(m); err != nil && c.err == nil {
		c.err = err
		c.s.o.Logger.Warn("natsrpc: an answer was not sent", slog.Any("error", err))
	}
}

// sendLocked sends what was written; end is for the last piece.
func (c *call) sendLocked(end string) {
	m := c.message()
	if !c.first {
		c.first = true
		copyHeader(m.Header, c.out)
		m.Header.Set(headerStatus, strconv.Itoa(c.status))
		if c.status >= http.StatusBadRequest {
			m.Header.Set(headerErrorCode, strconv.Itoa(c.status))
			m.Header.Set(headerError, http.StatusText(c.status))
		}
	}
	if end != "" && c.stream {
		m.Header.Set(headerEnd, end)
	}
	m.Data = c.buf
	c.publish(m)
	c.buf = c.buf[:0]
}
