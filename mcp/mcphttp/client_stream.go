package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/sse"
)

const (
	// firstDelay is how long to wait before a stream is resumed with a server that does
	// not say how long; with each connection that brings nothing it doubles, up
	// to maxDelay. minDelay is for a server that wants it at once.
	firstDelay = 250 * time.Millisecond
	maxDelay   = 30 * time.Second
	minDelay   = 20 * time.Millisecond
)

// Listen opens the legacy stream of what the server sends without being asked,
// and gives its messages to reply, in order. It connects again when the stream
// ends, with back-off, and resumes where that broke off. It blocks until ctx
// ends, reply fails or the server is no use any more: [ErrSessionLost], or a
// [*StatusError] that will not change. It returns nil at once when the server
// has no such stream, as in every stateless revision.
//
// After [Client.SSE], Listen waits for the end of that stream instead: what comes
// there is given to SSE's take.
//
// opened, unless nil, is called once: when the server has answered for the first
// time, or cannot be asked. A server may drop what it has to say before.
func (c *Client) Listen(ctx context.Context, opened func(), reply func(frame []byte) error) error {
	if opened == nil {
		opened = func() {}
	}
	opened = sync.OnceFunc(opened)
	defer opened()
	st, err := c.now()
	switch {
	case err != nil:
		return err
	case st.rev != nil && !st.rev.Handshake:
		return nil
	}
	inner, cancel := c.bind(ctx)
	defer cancel()
	var refused error
	give := func(frame []byte) error {
		refused = reply(frame)
		return refused
	}
	if st.events != nil {
		opened()
		err = st.events.wait(inner)
	} else {
		err = c.listen(inner, &st, opened, give)
	}
	if refused != nil {
		return refused
	}
	return c.ended(ctx, err)
}

func (c *Client) listen(ctx context.Context, st *state, opened func(), reply func(frame []byte) error) error {
	s := eventStream{c: c, st: st, tried: opened, lastID: c.takeResumeFrom()}
	s.handled = func(event string) { c.handled(st.session, event) }
	resumed := s.lastID != ""
	var last error
	for {
		resp, err := s.open(ctx, last)
		if resumed && badRequest(err) { // the server may know the session, but not the event
			s.lastID = ""
			s.handled("")
			resp, err = s.open(ctx, nil)
		}
		resumed = false
		if noStream(err) {
			return nil
		}
		if err != nil {
			return err
		}
		var refused error
		last = s.read(resp.Body, func(frame []byte) error {
			if !c.deliver(frame) {
				refused = reply(frame)
			}
			return refused
		})
		resp.Body.Close()
		if refused != nil || ctx.Err() != nil || errors.Is(last, farcall.ErrProtocol) {
			return last
		}
	}
}

// noStream reports whether a server says that it has no stream, or nothing at
// all to GET where there is no session that it may not know.
func noStream(err error) bool {
	var status *StatusError
	if !errors.As(err, &status) || errors.Is(err, ErrSessionLost) {
		return false
	}
	return status.Status == http.StatusMethodNotAllowed || status.Status == http.StatusNotFound
}

// badRequest reports whether a server has answered 400, as to a Last-Event-ID that
// it does not know.
func badRequest(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Status == http.StatusBadRequest
}

// eventStream is one stream of events over a row of connections.
type eventStream struct {
	c     *Client
	st    *state
	tries int    // how many connections in a row may fail; 0: any number
	tried func() // unless nil, called when the server has answered, or not

	handled func(event string) // unless nil, gets the id of each event after message has returned

	lastID string        // of the last event that came whole
	retry  time.Duration // what the server wants to be left alone for; 0: it did not say
	idle   int           // connections in a row that brought nothing
	failed int           // those of them that did not end in order: a server may let us poll
}

var errStreamEnd = errors.New("the server closed it")

// endOf names the end of a stream, which is no separate failure.
func endOf(err error) error {
	if err == io.EOF { //nolint:errorlint // the reader returns it bare; a wrapped one is a broken connection
		return errStreamEnd
	}
	return err
}

// read gives the messages of a connection to message until the connection ends,
// with an error in any case. Events without data, and of other types, only
// count for their ids.
func (s *eventStream) read(body io.Reader, message func(data []byte) error) error {
	loan := budget.Lend(s.c.opts.Budget)
	defer loan.Close()
	r := sse.NewReader(body, s.c.opts.MaxEvent, &loan)
	s.idle, s.failed = s.idle+1, s.failed+1
	for {
		e, err := r.Next()
		if d := r.Retry(); d > 0 {
			s.retry = d
		}
		switch {
		case errors.Is(err, sse.ErrTooLarge):
			return fmt.Errorf("%w: %w; raise DialOptions.MaxEvent", farcall.ErrProtocol, err)
		case err != nil:
			if err = endOf(err); err == errStreamEnd { //nolint:errorlint // ours, and bare
				s.failed = 0
			}
			return err
		}
		if s.idle, s.failed = 0, 0; e.ID != "" {
			s.lastID = e.ID
		}
		if len(e.Data) > 0 && (e.Type == "" || e.Type == "message") {
			if err := message(e.Data); err != nil {
				return err
			}
		}
		if e.ID != "" && s.handled != nil {
			s.handled(e.ID)
		}
	}
}

// open connects, again if need be, and returns an answer that is an event
// stream. last is how the connection before has ended; nil: there was none.
func (s *eventStream) open(ctx context.Context, last error) (*http.Response, error) {
	for {
		if last != nil {
			if s.tries > 0 && s.failed > s.tries {
				return nil, fmt.Errorf("%d attempts have failed: %w", s.failed, classify(last))
			}
			if err := wait(ctx, s.delay()); err != nil {
				return nil, err
			}
		}
		resp, err := s.get(ctx)
		if s.tried != nil {
			s.tried()
		}
		if err == nil {
			return resp, nil
		}
		last = classify(err)
		s.idle, s.failed = s.idle+1, s.failed+1
		if ctx.Err() != nil || !transient(last) {
			return nil, last
		}
	}
}

func (s *eventStream) get(ctx context.Context) (*http.Response, error) {
	resp, err := s.c.getEvents(ctx, func(h http.Header) {
		s.st.legacyHeader(h)
		if s.lastID != "" {
			h["Last-Event-Id"] = []string{s.lastID}
		}
	})
	if err != nil {
		return nil, err
	}
	switch {
	case !succeeded(resp):
		defer discard(resp)
		return nil, s.c.statusError(resp, s.st, true)
	case !isEvents(resp.Header.Get("Content-Type")):
		defer discard(resp)
		return nil, newStatusError(resp)
	}
	s.c.accepted(s.st)
	return resp, nil
}

// getEvents asks for an event stream.
func (c *Client) getEvents(ctx context.Context, header func(http.Header)) (*http.Response, error) {
	return c.do(ctx, func() (*http.Request, error) {
		r := c.request(ctx, http.MethodGet, c.url, nil)
		r.Header["Accept"] = eventsHeader
		r.Header["Cache-Control"] = []string{"no-store"}
		header(r.Header)
		return r, nil
	})
}

// delay is how long to wait before the next connection: never less than the
// server wants (2025-11-25, Transports, "Sending Messages"), and a little more,
// so that not all clients of a server that restarts come at once.
func (s *eventStream) delay() time.Duration {
	d := max(s.retry, minDelay)
	if s.retry == 0 {
		d = firstDelay
	}
	if s.retry == 0 || s.failed > 0 {
		d = max(s.retry, min(d<<min(s.idle, 10), maxDelay))
	}
	return d + rand.N(d/4+1) //nolint:gosec // nothing to guess
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
