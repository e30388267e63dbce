package natsrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// acceptAfter is when a caller hears that its request has been taken, if there is no answer yet: it
// can cancel it then, and ask whether the server is still there.
const acceptAfter = 20 * time.Millisecond

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

	mu     sync.Mutex
	out    http.Header
	status int // 0: not written yet
	buf    []byte
	sent   uint64 // pieces
	first  bool   // the piece with the status was sent
	ended  bool
	err    error         // of sending
	room   int           // bytes that may be sent before the caller has read
	more   chan struct{} // has a value when there is room again
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
	if c.status == 0 {
		c.status = http.StatusOK
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
	n := 0
	for len(b) > 0 {
		k := min(len(b), piece-len(c.buf))
		c.buf, b, n = append(c.buf, b[:k]...), b[k:], n+k
		if len(c.buf) == piece {
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
	if c.status == 0 {
		c.status = http.StatusOK
	}
	if c.stream {
		_ = c.flushLocked() // Write has its error
	}
}

// SetReadDeadline and SetWriteDeadline are for handlers that require them. What arrives is there
// already, and a caller that does not read has its credit only.
func (c *call) SetReadDeadline(time.Time) error  { return nil }
func (c *call) SetWriteDeadline(time.Time) error { return nil }

var errTooLarge = errors.New("natsrpc: the answer does not fit into a message of the engine")

// limit is how long the body of one message may be: the engine counts headers as well.
func (c *call) limit() int { return int(c.s.nc.MaxPayload()) - 8<<10 }

// flushLocked sends what was written, and waits until there is room for more.
func (c *call) flushLocked() error {
	for c.room <= 0 && c.err == nil {
		c.mu.Unlock()
		select {
		case <-c.more:
		case <-c.ctx.Done():
		}
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

// accept says that the request has been taken, unless something was sent before.
func (c *call) accept() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == 0 && !c.ended {
		m := c.message()
		c.publish(m)
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
	case c.err != nil && !c.stream:
		c.status, c.buf = http.StatusServiceUnavailable, []byte(c.err.Error()+"\n")
	case c.err != nil:
		c.buf, why = nil, c.err.Error()
	case c.status == 0:
		c.status = http.StatusOK
	}
	c.ended = true
	c.err = nil
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

// refuse answers without a handler.
func (c *call) refuse(status int, why string) {
	if c.to == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.ended = status, true
	c.Header().Set("Content-Type", "text/plain; charset=utf-8")
	c.buf = []byte("natsrpc: " + why + "\n")
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
