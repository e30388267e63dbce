package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// SSE changes to the transport of 2024-11-05: it opens an event stream at the
// client's URL and waits, as long as ctx, for the event that says where to post.
// From then on each frame is posted there, and all answers come on that stream.
//
// Of what comes on it, a response goes to the exchange that waits for it, and so does the progress
// of its request. All else is given to take, in order, from the first event on: what comes after it
// on the stream is not looked at before take returns. So take must not wait for an exchange; its
// error ends the stream, and its context ends with it. When the stream ends, so do all exchanges,
// and later ones fail; call SSE again, and initialize.
func (c *Client) SSE(
	ctx context.Context, take func(ctx context.Context, frame []byte) error,
) error {
	st, err := c.now()
	if err != nil {
		return err
	}
	life, end := context.WithCancel(c.ctx) //nolint:contextcheck // the stream outlives this call
	stop := context.AfterFunc(ctx, end)
	//nolint:contextcheck // the same
	e, err := c.openChannel(life, &st)
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		if e != nil {
			e.close()
		}
		end()
		return c.ended(ctx, err)
	}
	e.life, e.end, e.take = life, end, take
	c.mu.Lock()
	old := c.st.events
	c.st.events, c.st.session = e, nil
	c.mu.Unlock()
	if old != nil {
		old.end()
	}
	if !c.spawn(e.run) {
		e.close()
		end()
		return farcall.ErrClosed
	}
	return nil
}

// openChannel connects and reads the first event.
func (c *Client) openChannel(ctx context.Context, st *state) (*eventChannel, error) {
	resp, err := c.getEvents(ctx, func(h http.Header) { st.legacyHeader(h) })
	if err != nil {
		return nil, err
	}
	if !succeeded(resp) || !isEvents(resp.Header.Get("Content-Type")) {
		defer discard(resp)
		return nil, newStatusError(resp)
	}
	e := &eventChannel{
		c: c, resp: resp, loan: budget.Lend(c.opts.Budget),
		waiting: map[string]*inbox{}, done: make(chan struct{}),
	}
	e.events = sse.NewReader(resp.Body, c.opts.MaxEvent, &e.loan)
	first, err := e.events.Next()
	switch {
	case err != nil:
		err = fmt.Errorf("%w: the event stream ended before its first event: %w", ErrConnect, endOf(err))
	case first.Type != "endpoint":
		err = fmt.Errorf("%w: the event stream begins with an event of type %q instead of endpoint",
			farcall.ErrProtocol, first.Type)
	default:
		e.endpoint, err = endpoint(resp.Request.URL, string(first.Data))
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// endpoint resolves the address to post to. One of another origin would make us
// send messages and credentials to any host that the server names.
func endpoint(base *url.URL, address string) (*url.URL, error) {
	u, err := base.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: the endpoint %q is no URL: %w", farcall.ErrProtocol, address, err)
	}
	if !sameOrigin(u, base) {
		return nil, fmt.Errorf("%w: the endpoint %q is of another origin than the event stream",
			farcall.ErrProtocol, u.Redacted())
	}
	return u, nil
}

// eventChannel is the event stream of 2024-11-05. Its goroutine is the only one that
// reads: it puts what comes into the inboxes of exchanges, or has it taken.
type eventChannel struct {
	c        *Client
	endpoint *url.URL
	resp     *http.Response
	events   *sse.Reader
	loan     budget.Loan     // holds an event that is large
	life     context.Context //nolint:containedctx // ends with the stream
	end      context.CancelFunc
	take     func(ctx context.Context, frame []byte) error // what belongs to no exchange
	done     chan struct{}
	err      error // why it has ended; to be read after done

	mu      sync.Mutex
	waiting map[string]*inbox // by what the frames say: see responseKey and progressKey
}

// The keys of eventChannel.waiting, from an id and a progress token as written.
func responseKey(id []byte) string    { return "r" + string(id) }
func progressKey(token []byte) string { return "p" + string(token) }

// close ends what is read from the stream.
func (e *eventChannel) close() {
	e.resp.Body.Close()
	e.loan.Close()
}

// run reads the stream until it ends.
func (e *eventChannel) run() {
	defer e.close()
	defer e.end()
	for {
		ev, err := e.events.Next()
		switch {
		case errors.Is(err, sse.ErrTooLarge):
			err = fmt.Errorf("%w: %w; raise DialOptions.MaxEvent", farcall.ErrProtocol, err)
		case err != nil:
			err = fmt.Errorf("%w: the event stream that carries all answers has ended; connect again: %w",
				ErrConnect, endOf(err))
		case len(ev.Data) == 0 || ev.Type != "" && ev.Type != "message":
			continue
		default:
			err = e.sort(ev.Data)
		}
		if err != nil {
			e.err = err
			close(e.done)
			return
		}
	}
}

// sort gives a frame to the exchange that waits for it, or has it taken.
func (e *eventChannel) sort(frame []byte) error {
	key := addressee(frame)
	e.mu.Lock()
	box := e.waiting[key]
	e.mu.Unlock()
	if box == nil {
		return e.take(e.life, frame)
	}
	if !box.put(frame, e.c.opts.MaxMessage) {
		return fmt.Errorf(
			"%w: more than %d messages, or %d bytes, wait for one call to take them; raise "+
				"DialOptions.MaxMessage",
			farcall.ErrProtocol, maxWaiting, e.c.opts.MaxMessage)
	}
	return nil
}

// addressee returns the key of the exchange that a frame is for, or "". Of a
// batch the first response decides.
func addressee(frame []byte) string {
	if i := scan.Space(frame, 0); i < len(frame) && frame[i] == '[' {
		for message := range scan.Elements(frame) {
			if key := addressee(message); key != "" {
				return key
			}
		}
		return ""
	}
	method, id, params := envelope(frame)
	switch {
	case method == nil && id != nil:
		return responseKey(id)
	case string(method) == spec.NotificationProgress:
		for name, value := range scan.Members(params) {
			if string(name) == "progressToken" {
				return progressKey(value)
			}
		}
	}
	return ""
}

// exchange posts a frame and waits for the responses.
func (e *eventChannel) exchange(x *trip, body []byte) error {
	box := &inbox{more: make(chan struct{}, 1)}
	defer e.expect(x, box)()
	if err := e.post(x, body); err != nil {
		return err
	}
	for len(x.out.open) > 0 {
		frame, err := e.next(x.ctx, box)
		if err != nil {
			return err
		}
		if err := x.give(frame); err != nil {
			return err
		}
	}
	return nil
}

func (e *eventChannel) post(x *trip, body []byte) error {
	select {
	case <-e.done:
		return e.err
	default:
	}
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)() //nolint:contextcheck // the end of the stream ends it, too
	err := x.c.oneWay(ctx, func(ctx context.Context) error {
		resp, err := x.c.post(ctx, e.endpoint, &x.out, &x.st, body)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if !succeeded(resp) {
			return x.c.statusError(resp, &x.st, !x.out.initialize)
		}
		discard(resp)
		return nil
	})
	if err == nil || e.life.Err() == nil || errors.As(err, new(*StatusError)) {
		return err
	}
	<-e.done
	if len(x.out.open) > 0 {
		return nil // the response may have come before
	}
	return e.err
}

// expect has the responses to x, and its progress, put into box until the
// returned function is called.
func (e *eventChannel) expect(x *trip, box *inbox) (stop func()) {
	var keys []string
	for _, id := range x.out.open {
		keys = append(keys, responseKey(id))
	}
	if x.out.token != nil {
		keys = append(keys, progressKey(x.out.token))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		e.waiting[key] = box
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, key := range keys {
			delete(e.waiting, key)
		}
	}
}

// wait waits for the end of the stream.
func (e *eventChannel) wait(ctx context.Context) error {
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next waits for the next frame of an inbox. What came before the stream ended
// is still taken.
func (e *eventChannel) next(ctx context.Context, box *inbox) ([]byte, error) {
	for {
		if frame, ok := box.get(); ok {
			return frame, nil
		}
		select {
		case <-box.more:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.done:
			if frame, ok := box.get(); ok {
				return frame, nil
			}
			return nil, e.err
		}
	}
}

// maxWaiting bounds the frames of one inbox.
const maxWaiting = 10_000

// inbox is a queue of frames between the stream and one who waits.
type inbox struct {
	more chan struct{} // has one element when there may be frames

	mu     sync.Mutex
	frames [][]byte
	size   int
}

// put reports false when the inbox is full.
func (b *inbox) put(frame []byte, limit int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.frames) >= maxWaiting || len(b.frames) > 0 && b.size+len(frame) > limit {
		return false
	}
	b.frames, b.size = append(b.frames, frame), b.size+len(frame)
	select {
	case b.more <- struct{}{}:
	default:
	}
	return true
}

func (b *inbox) get() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.frames) == 0 {
		return nil, false
	}
	frame := b.frames[0]
	b.frames[0] = nil
	b.frames, b.size = b.frames[1:], b.size-len(frame)
	if len(b.frames) > 0 { // several may take
		select {
		case b.more <- struct{}{}:
		default:
		}
	}
	return frame, true
}
