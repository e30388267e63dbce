package http1

import "time"

// writeSlack is how much later than it says a deadline for writes may come. Handlers
// set one for each answer; with it, the connection gets one each second.
const writeSlack = time.Second

// setReadDeadline bounds the reads of the body. Bytes that are there already need
// none, so it is applied when the connection is read.
func (x *exchange) setReadDeadline(t time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over.Load() {
		return errOver
	}
	if x.readBy = t; !x.reading {
		return nil
	}
	x.conn.readSet = true
	return x.conn.rwc.SetReadDeadline(t)
}

// readBody reads from the buffer or the connection.
func (c *conn) readBody(x *exchange, p []byte) (n int, err error) {
	if c.r < c.w {
		n = copy(p, c.in[c.r:c.w])
		c.r += n
		return n, nil
	}
	if c.readErr != nil {
		return 0, c.readErr
	}
	x.mu.Lock()
	if c.readSet || !x.readBy.IsZero() {
		c.readSet = !x.readBy.IsZero()
		err = c.rwc.SetReadDeadline(x.readBy)
	}
	x.reading = true
	x.mu.Unlock()
	if err == nil {
		n, err = c.rwc.Read(p)
	}
	x.mu.Lock()
	x.reading = false
	x.mu.Unlock()
	return n, err
}

// readUnbounded takes a deadline for reads back.
func (c *conn) readUnbounded(x *exchange) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.readSet {
		c.readSet = false
		_ = c.rwc.SetReadDeadline(time.Time{}) // fails when it is closed
	}
}

// setWriteDeadline bounds the writes of an answer.
func (x *exchange) setWriteDeadline(t time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over.Load() {
		return errOver
	}
	if x.writeBy = t; !x.writing {
		return nil
	}
	x.conn.writeBy = t
	return x.conn.rwc.SetWriteDeadline(t)
}

// flush sends what is in the output.
func (x *exchange) flush() error {
	out := x.conn.out()
	if len(out.b) == 0 {
		return x.conn.writeErr
	}
	err := x.send(out.b)
	out.b = out.b[:0]
	return err
}

// send writes to the connection. An error is sticky, and ends the context.
func (x *exchange) send(p []byte) (err error) {
	c := x.conn
	if c.writeErr != nil {
		return c.writeErr
	}
	x.mu.Lock()
	err = c.writeUntilLocked(x.writeBy)
	x.writing = true
	x.mu.Unlock()
	if err == nil {
		_, err = c.rwc.Write(p)
	}
	x.mu.Lock()
	x.writing = false
	x.mu.Unlock()
	if err != nil {
		c.writeErr = err
		x.ctx.cancel()
	}
	return err
}

// writeUntilLocked makes a deadline that of the connection, unless that is near
// enough.
func (c *conn) writeUntilLocked(t time.Time) error {
	switch {
	case t.IsZero() && c.writeBy.IsZero():
		return nil
	case !t.IsZero() && !t.After(c.writeBy) && c.writeBy.Sub(t) <= writeSlack:
		return nil
	case time.Until(t) > 10*writeSlack:
		t = t.Add(writeSlack)
	}
	c.writeBy = t
	return c.rwc.SetWriteDeadline(t)
}
