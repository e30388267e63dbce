package farcall

import (
	"context"
	"sync"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Flow control of streams, by credit. The consumer of a stream says how much of it the producer may
// send; the producer waits for more. A dialect with a CreditMethod has it, and each call agrees on
// it alone:
//
//	consumer                                                   producer
//	{"method":"count","id":7,"progressToken":7,"progressCredit":1048576}  →
//	        ←  {"method":"$/progress","params":{"token":7,"credit":true,"value":0}}
//	{"method":"$/credit","params":{"id":7,"limit":1572864}}    →
//
// progressCredit and limit bound the sum of what the values cost since the call began: each its
// bytes as JSON and 64 more. A value may be sent while the sum of those before it is below the
// limit, so one that is larger than any credit passes, too. A limit that is not above the last one
// changes nothing, as in QUIC (RFC 9000 §4.1): grants may be lost, repeated or reordered.
//
// "credit":true says that the producer counts; it is in all values up to the first grant. A
// consumer that has not seen it grants nothing, and reads no further instead while it is behind:
// see holdBack. Nothing of this is sent to a peer that has not begun it, except the member
// progressCredit.
const (
	// streamWindow is how much of a stream may be on its way to its consumer.
	streamWindow = 1 << 20
	// valueCost is what a value costs beside its bytes.
	valueCost = 64
	// maxCredit bounds a limit: JavaScript peers keep integers exact up to 2^53 only.
	maxCredit = 1 << 53

	memberCredit = "progressCredit"
)

// A credit is how much of a stream its producer may send.
type credit struct {
	mu      sync.Mutex
	limit   int64
	sent    int64
	granted bool          // the caller has seen that this end counts
	more    chan struct{} // closed when there is more; nil: nothing waits
}

// draw takes what a value costs, and waits while there is no credit: until the context or the call
// ends. blocked is called before it waits. tell is whether the caller has yet to see that this end
// counts.
func (c *credit) draw(
	ctx context.Context, call *serving, cost int, blocked func(),
) (tell bool, err error) {
	for {
		more := c.take(int64(cost))
		if more == nil {
			return c.untold(), nil
		}
		blocked()
		select {
		case <-more:
		case <-ctx.Done():
			return false, ctx.Err()
		case <-call.Done(): // ctx may be one without cancellation
			return false, call.Err()
		}
	}
}

// take returns nil when the value may be sent, else what is closed when it may be tried again.
func (c *credit) take(cost int64) (more <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent < c.limit {
		c.sent += cost
		return nil
	}
	if c.more == nil {
		c.more = make(chan struct{})
	}
	return c.more
}

func (c *credit) untold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.granted
}

// raise is a grant.
func (c *credit) raise(limit int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granted = true
	if limit <= c.limit {
		return
	}
	c.limit = limit
	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

// newCredit returns the credit that the caller of s begins with; nil when it announced none, or
// cannot grant more. s.end is locked.
func newCredit(s *serving) *credit {
	p := s.peer
	if p == nil || p.opts.Dialect.CreditMethod == "" || s.req.ID.IsNull() {
		return nil
	}
	limit, ok := positive(extension(s.req.msg, memberCredit))
	if !ok {
		return nil
	}
	p.update(func(s *state) { ok = s.reading })
	if !ok { // after endCredit
		return nil
	}
	return &credit{limit: limit}
}

// positive reads a positive integer of digits only, up to 2^53.
func positive(raw jsonrpc.Raw) (limit int64, ok bool) {
	if len(raw) == 0 || len(raw) > len("9007199254740992") {
		return 0, false
	}
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		limit = limit*10 + int64(c-'0')
	}
	return limit, limit > 0 && limit <= maxCredit
}

func (d *Dialect) appendCredit(dst []byte, v jsonrpc.Version, id jsonrpc.ID, limit int64) []byte {
	params := append(jsonrpc.AppendString([]byte{'{'}, d.CancelID), ':')
	params = appendMember(append(params, id.Raw()...), "limit", jsonrpc.IntID(limit).Raw())
	return v.AppendRequest(dst, jsonrpc.ID{}, d.CreditMethod, append(params, '}'))
}

// granted reports whether a notification is a grant. The id is nil when it is not valid.
func (d *Dialect) granted(m *jsonrpc.Message) (id jsonrpc.Raw, limit int64, ok bool) {
	if d.CreditMethod == "" || string(m.Method) != d.CreditMethod {
		return nil, 0, false
	}
	if limit, ok = positive(scan.Member(m.Params, "limit")); !ok {
		return nil, 0, true
	}
	return scan.Member(m.Params, d.CancelID), limit, true
}

// raiseCredit takes a grant. One that names no stream comes late, or is of no meaning.
func (p *Peer) raiseCredit(id jsonrpc.Raw, limit int64) {
	parsed, err := jsonrpc.ParseID(id)
	if err != nil {
		return
	}
	var v *serving
	p.update(func(s *state) { v = s.served.find(parsed) })
	if v != nil {
		v.raiseCredit(limit)
	}
}

func (s *serving) raiseCredit(limit int64) {
	s.end.Before(func() {
		x := s.rare()
		if x != nil && x.report != nil && x.report.credit != nil {
			x.report.credit.raise(limit)
		}
	})
}

// endCredit lets all streams go on when the other end can grant nothing more, but may still read.
func (p *Peer) endCredit() {
	var all []*serving
	p.update(func(s *state) { all = s.served.all() })
	for _, v := range all {
		v.raiseCredit(maxCredit)
	}
}

// grant lets the producer of a stream send more. It never waits: there is one grant for each half
// of a window that was taken.
func (p *Peer) grant(c *call, limit int64) {
	p.update(func(s *state) {
		if s.err == nil && s.calls[c.id] == c {
			s.queue(p.opts.Dialect.appendCredit(nil, p.version(p.ctx), c.wire(), limit))
		}
	})
	p.flush()
}

// holdBack stops the reading while the consumer of a stream is behind and its producer does not
// count: then the transport slows the producer, and with it all else that comes over the
// connection. The reading goes on when another call of this end waits for its answer, which the
// consumer itself may have made.
func (p *Peer) holdBack(q *progressQueue) {
	p.flush() // what is answered so far does not wait
	alone := false
	p.update(func(s *state) {
		if alone = s.err == nil && len(s.calls) == 1; alone {
			s.behind = q
		}
	})
	if !alone {
		return
	}
	q.awaitRoom()
	p.update(func(s *state) { s.behind = nil })
}
