package mock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/diff"
)

// A Link sends frames to a server and returns what it sends.
type Link interface {
	// Send sends a frame.
	Send(ctx context.Context, frame []byte) error
	// Receive returns the next frame.
	Receive(ctx context.Context) ([]byte, error)
	// Close ends the connection.
	Close() error
}

// A Result is what became of one call that was made again.
type Result struct {
	Seq          uint64 // of the request in the capture
	Method, Name string
	Took         time.Duration
	Findings     []diff.Finding // what has changed in the answer
}

// Report is what became of the calls that were answered in the capture.
type Report struct {
	Results []Result
}

// Changed returns how many calls have findings.
func (r *Report) Changed() int {
	n := 0
	for i := range r.Results {
		if len(r.Results[i].Findings) > 0 {
			n++
		}
	}
	return n
}

// Client is the client's part of a capture.
type Client struct {
	conns []*clientConn
}

type clientConn struct {
	sent    []sent
	want    map[uint64][]byte // answers by the seq of their request
	answers map[string][][]byte
}

type sent struct {
	frame        []byte
	id           []byte // nil: it is a notification
	seq          uint64
	method, name string
	further      bool // it asks for a further page of a list
}

// LoadClient reads the frames of the client, and the answers that it got. It fails with
// [ErrRedacted] as Load does.
func LoadClient(r *capture.Reader, part *Part) (*Client, error) {
	part = cmp.Or(part, &Part{})
	c := &Client{}
	conns := map[uint64]*clientConn{}
	questions := map[string]string{} // methods by connection and id
	err := part.each(r, func(rec *capture.Record, data []byte) {
		conn := conns[rec.Conn]
		if conn == nil {
			conn = &clientConn{want: map[uint64][]byte{}, answers: map[string][][]byte{}}
			conns[rec.Conn] = conn
			c.conns = append(c.conns, conn)
		}
		conn.take(rec, data, questions, part.Filter)
	})
	if err != nil {
		return nil, err
	}
	for _, conn := range c.conns {
		conn.join()
	}
	c.conns = slices.DeleteFunc(c.conns, func(conn *clientConn) bool { return len(conn.sent) == 0 })
	if len(c.conns) == 0 {
		return nil, part.without("request that can be sent")
	}
	return c, nil
}

func (c *clientConn) take(rec *capture.Record, data []byte, questions map[string]string,
	filter *capture.Filter,
) {
	m := parse(data)
	question := fmt.Sprint(rec.Conn, " ", string(m.id))
	switch up := rec.Dir == "up"; {
	case up && m.method != "":
		opens := strings.HasPrefix(m.method, "notifications/") ||
			m.method == methodInitialize || m.method == methodDiscover
		if filter.Match(rec) || opens {
			c.sent = append(c.sent, sent{data, m.id, rec.Seq, m.method, rec.Name, false})
		}
	case up && m.id != nil:
		method := questions[question]
		c.answers[method] = append(c.answers[method], data)
	case !up && m.method != "" && m.id != nil:
		questions[question] = m.method
	case !up && rec.Ref > 0:
		c.want[rec.Ref] = data
	}
}

// join makes the pages of each list one answer.
func (c *clientConn) join() {
	lists, pages := pager[uint64]{}, map[uint64][][]byte{} // by the seq of the first request
	for i := range c.sent {
		s := &c.sent[i]
		answer := c.want[s.seq]
		if answer == nil {
			continue
		}
		m := parse(s.frame)
		first, further := lists.first(&m)
		if s.further = further; !further {
			first = s.seq
		}
		pages[first] = append(pages[first], answer)
		lists.more(first, &m, answer)
	}
	for first, all := range pages {
		c.want[first] = merge(all)
	}
}

// Replay sends what the client sent, over a link for each of its connections, and compares the
// answers. The pages of a list are one answer: the further ones are asked for with the cursors of
// the server.
func (c *Client) Replay(
	ctx context.Context, dial func(context.Context) (Link, error), compare *diff.Comparer,
) (*Report, error) {
	report := &Report{}
	for _, conn := range c.conns {
		link, err := dial(ctx)
		if err != nil {
			return report, err
		}
		err = conn.replay(ctx, link, report, compare)
		if err = errors.Join(err, link.Close()); err != nil {
			return report, err
		}
	}
	return report, nil
}

func (c *clientConn) replay(
	ctx context.Context, link Link, report *Report, compare *diff.Comparer,
) error {
	answers := map[string]int{}
	for _, s := range c.sent {
		if s.method == methodCancelled || s.further {
			continue // its call is over: each is waited for, and a list for all of its pages
		}
		began := time.Now()
		if err := link.Send(ctx, s.frame); err != nil {
			return fmt.Errorf("send record %d: %w", s.seq, err)
		}
		if s.id == nil {
			continue
		}
		want := c.want[s.seq]
		got, err := c.await(ctx, link, s.id, answers)
		if err == nil && want != nil && nextCursor(s.method, want) == nil {
			got, err = c.withPages(ctx, link, &s, got, answers)
		}
		result := Result{Seq: s.seq, Method: s.method, Name: s.name, Took: time.Since(began)}
		if err != nil {
			if want != nil {
				result.Findings = []diff.Finding{{
					Rule: "no-answer", Level: diff.Breaking, Was: string(want), Is: err.Error(),
				}}
				report.Results = append(report.Results, result)
			}
			return fmt.Errorf("wait for the answer to record %d (%s): %w", s.seq, s.method, err)
		}
		if want == nil {
			continue // it was not answered then
		}
		result.Findings = compare.Answers(s.method, want, got)
		report.Results = append(report.Results, result)
	}
	return nil
}

// await returns the answer with the id. Questions get the answers of the capture.
func (c *clientConn) await(
	ctx context.Context, link Link, id []byte, answers map[string]int,
) ([]byte, error) {
	for {
		frame, err := link.Receive(ctx)
		if err != nil {
			return nil, err
		}
		m := parse(frame)
		switch {
		case m.id == nil:
		case m.method == "":
			if bytes.Equal(m.id, id) {
				return frame, nil
			}
		default:
			n, all := answers[m.method], c.answers[m.method]
			answers[m.method]++
			answer := errorAnswer(m.id, -32601, "the capture has no answer to "+m.method)
			if len(all) > 0 {
				answer = replace(all[min(n, len(all)-1)], m.id, "id")
			}
			if err := link.Send(ctx, answer); err != nil {
				return nil, err
			}
		}
	}
}
