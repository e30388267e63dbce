package http1

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/late"
)

// An exchange is one request and its answer. It is never used again, so that a
// handler may keep what belongs to it.
type exchange struct {
	conn *conn
	req  http.Request
	url  url.URL
	ctx  requestContext
	body body
	res  response

	values [12]string // of the fields, where that is enough
	place  late.Entry

	// Of deadlines: a handler sets them, also from other goroutines and after the
	// request has ended.
	mu               sync.Mutex
	readBy, writeBy  time.Time
	reading, writing bool // the connection: a new deadline is applied at once
	over             atomic.Bool
}

// errOver is what remains of an exchange when the handler has returned.
var errOver = errors.New("http1: the handler of this request has returned")

// newExchange makes the request of a head that is ours.
func (c *conn) newExchange() *exchange {
	x := &exchange{conn: c}
	x.ctx.begin(c.ctx)
	x.url = urlOf(c.target)
	x.body = body{x: x, left: c.head.length}
	x.res = response{x: x, length: -1}
	// The copy that WithContext makes stays on the stack.
	x.req = *(&http.Request{
		Method: http.MethodPost, URL: &x.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: c.header(x), Body: &x.body, ContentLength: c.head.length, Host: c.kept[c.head.host].value,
		RemoteAddr: c.remote, RequestURI: c.target, TLS: c.tls,
	}).WithContext(&x.ctx)
	if c.head.length == 0 {
		x.req.Body = http.NoBody
	}
	return x
}

// A kept field is one of the last head. Clients send much the same head each time,
// so that its strings can be used again: they do not change.
type kept struct{ raw, name, value string }

// header makes the header of a request.
func (c *conn) header(x *exchange) http.Header {
	p, fields := c.in[c.r:], c.head.fields
	values := x.values[:0]
	if len(fields) > len(x.values) {
		values = make([]string, 0, len(fields))
	}
	h := make(http.Header, len(fields)-1)
	for i, f := range fields {
		if i == len(c.kept) {
			c.kept = append(c.kept, kept{})
		}
		k := &c.kept[i]
		if raw := f.name.of(p); k.raw != string(raw) {
			k.raw, k.name = string(raw), canonical(raw)
			if k.raw == k.name {
				k.raw = k.name // one of them is enough
			}
		}
		if value := f.value.of(p); k.value != string(value) {
			k.value = string(value)
		}
		if i == c.head.host {
			continue
		}
		if list, again := h[k.name]; again {
			h[k.name] = append(list, k.value)
			continue
		}
		values = append(values, k.value)
		h[k.name] = values[len(values)-1 : len(values) : len(values)]
	}
	clear(c.kept[len(fields):])
	return h
}

// A body is the body of a request.
type body struct {
	x *exchange

	mu     sync.Mutex
	left   int64 // bytes that were not read
	closed bool
	ended  bool  // the client sends no more
	early  bool  // closed before all was read
	err    error // sticky
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.readLocked(p)
}

func (b *body) readLocked(p []byte) (n int, err error) {
	switch {
	case b.left == 0 || b.ended:
		return 0, io.EOF
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	}
	p = p[:min(int64(len(p)), b.left)]
	if n, err = b.x.conn.readBody(b.x, p); n > 0 {
		if b.left -= int64(n); b.left == 0 {
			b.x.conn.bodyRead(b.x)
			return n, io.EOF
		}
	}
	if errors.Is(err, io.EOF) {
		// As in net/http, that is all of it then.
		b.ended, b.x.conn.readErr = true, err
		return n, io.ErrUnexpectedEOF
	}
	b.err = err
	return n, err
}

// Close implements io.Closer. It reads what is left of a body, if that is little,
// so that the connection can be used for another request.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	err := b.discardLocked()
	b.early = b.left > 0 && !b.ended
	return err
}

// discard reads what is left of a body. It reports false when that cannot be read,
// or is too much.
func (b *body) discard() (all, tooMuch bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left >= maxDiscard {
		return false, !b.closed
	}
	if b.left > 0 && !b.closed && b.discardLocked() != nil {
		return false, false
	}
	return b.left == 0 || b.ended, false
}

func (b *body) discardLocked() error {
	if b.left == 0 || b.left >= maxDiscard {
		return nil
	}
	var waste [512]byte
	for b.left > 0 && !b.ended {
		if _, err := b.readLocked(waste[:]); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}
