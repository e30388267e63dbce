package inspect

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/inspect/internal/traffic"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A holdTransport lets breakpoints act on the frames of a connection. Those that they do not choose
// overtake those that are held.
type holdTransport struct {
	farcall.Transport

	x       *slot
	ctx     context.Context //nolint:containedctx // the life of the connection
	cancel  context.CancelFunc
	arrived chan arrival
	writing sync.Mutex
}

type arrival struct {
	frame []byte
	err   error
}

// held returns a transport on which breakpoints act.
func (x *slot) held(t farcall.Transport) farcall.Transport {
	h := &holdTransport{Transport: t, x: x, arrived: make(chan arrival)}
	h.ctx, h.cancel = context.WithCancel(x.i.ctx)
	x.i.tasks.Go(h.pump)
	return h
}

// pump reads until the transport is closed.
func (h *holdTransport) pump() {
	for h.ctx.Err() == nil {
		frame, err := h.Transport.Read()
		if k, ok := h.Transport.(farcall.Keeper); ok && err == nil {
			k.Keep()
		}
		if err == nil && h.stops('<', frame) {
			continue
		}
		var refused *jsonrpc.Error
		over := err != nil && (!errors.As(err, &refused) || errors.Is(err, io.EOF))
		for h.arrive(frame, err); over && h.ctx.Err() == nil; {
			h.arrive(frame, err)
		}
	}
}

// arrive gives the reader a frame.
func (h *holdTransport) arrive(frame []byte, err error) {
	select {
	case h.arrived <- arrival{frame, err}:
	case <-h.ctx.Done():
	}
}

// stops reports whether a breakpoint acts on a frame, and has it do so.
func (h *holdTransport) stops(dir byte, frame []byte) bool {
	b, row := h.x.find(dir, frame)
	if b == nil {
		return false
	}
	frame = bytes.Clone(frame)
	h.x.i.tasks.Go(func() {
		up, down := h.x.hold(h.ctx, b, row, frame, true)
		if dir == '<' {
			up, down = down, up
		}
		if up != nil {
			_ = h.send(up) // the reader finds out that the connection has ended
		}
		if down != nil {
			h.arrive(down, nil)
		}
	})
	return true
}

func (h *holdTransport) send(frames ...[]byte) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	return h.Transport.Write(frames...)
}

// Read implements farcall.Transport.
func (h *holdTransport) Read() ([]byte, error) {
	select {
	case a := <-h.arrived:
		return a.frame, a.err
	case <-h.ctx.Done():
		return nil, io.EOF
	}
}

// Write implements farcall.Transport.
func (h *holdTransport) Write(frames ...[]byte) error {
	var pass [][]byte
	for _, frame := range frames {
		if !h.stops('>', frame) {
			pass = append(pass, frame)
		}
	}
	if len(pass) == 0 {
		return h.ctx.Err()
	}
	return h.send(pass...)
}

// Close implements farcall.Transport.
func (h *holdTransport) Close() error {
	h.cancel()
	return h.Transport.Close()
}

// client returns a client of HTTP on which breakpoints act. Requests keep their headers, also when
// a page changes their bodies.
func (x *slot) client(s *Server) *http.Client {
	client := http.Client{}
	if s.HTTP != nil {
		client = *s.HTTP
	}
	if client.Transport == nil {
		x.mu.Lock()
		if x.own == nil {
			x.own = onhttp.Transport()
		}
		client.Transport = x.own
		x.mu.Unlock()
	}
	client.Transport = &holdTripper{client.Transport, x}
	return &client
}

type holdTripper struct {
	next http.RoundTripper
	x    *slot
}

// RoundTrip implements http.RoundTripper.
func (t *holdTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	kind := onhttp.MediaType(r.Header.Get("Content-Type"))
	if r.Body != nil && r.GetBody != nil && kind == onhttp.JSON {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		frame, err := io.ReadAll(body) // it is in memory
		if err != nil {
			return nil, err
		}
		if b, row := t.x.find('>', frame); b != nil {
			_ = r.Body.Close() // the copy is sent
			on, back := t.x.hold(r.Context(), b, row, frame, true)
			if on == nil {
				return instead(r, row, back)
			}
			r = r.Clone(r.Context())
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(on)), int64(len(on))
		}
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	pass := t.events
	switch onhttp.MediaType(resp.Header.Get("Content-Type")) {
	case onhttp.JSON:
		pass, resp.ContentLength = t.frame, -1
		resp.Header.Del("Content-Length")
	case "text/event-stream":
	default:
		return resp, nil
	}
	from := resp.Body
	in, out := io.Pipe()
	t.x.i.tasks.Go(func() { out.CloseWithError(pass(r.Context(), from, out)) })
	resp.Body = &heldBody{in, from}
	return resp, nil
}

// frame passes an answer on that is one frame.
func (t *holdTripper) frame(ctx context.Context, from io.Reader, to io.Writer) error {
	frame, err := io.ReadAll(io.LimitReader(from, maxHeldPart))
	if err == nil && len(frame) < maxHeldPart {
		frame = t.x.through(ctx, frame)
	}
	if frame == nil { // it was dropped: the answer never comes
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err == nil {
		_, err = to.Write(frame)
	}
	if err == nil {
		_, err = io.Copy(to, from)
	}
	return err
}

// maxHeldPart bounds a frame of an answer that breakpoints act on.
const maxHeldPart = 16 << 20

// events passes events on, with what breakpoints make of their frames.
func (t *holdTripper) events(ctx context.Context, from io.Reader, to io.Writer) error {
	in, out := sse.NewReader(from, 0, nil), sse.NewWriter(to, nil)
	for retry := in.Retry(); ; {
		e, err := in.Next()
		if err != nil {
			return err
		}
		if again := in.Retry(); again != retry {
			retry = again
			if err := out.Retry(again); err != nil {
				return err
			}
		}
		if e.Type == "" || e.Type == "message" {
			if e.Data = t.x.through(ctx, e.Data); e.Data == nil {
				continue
			}
		}
		if err := out.Event(e); err != nil {
			return err
		}
	}
}

// through returns what breakpoints make of a frame of an answer; nil: nothing.
func (x *slot) through(ctx context.Context, frame []byte) []byte {
	b, row := x.find('<', frame)
	if b == nil {
		return frame
	}
	on, _ := x.hold(ctx, b, row, frame, false)
	return on
}

// A heldBody is what was made of the body of an answer, which it closes too.
type heldBody struct {
	io.ReadCloser

	from io.Closer
}

// Close implements io.Closer.
func (b *heldBody) Close() error { return errors.Join(b.ReadCloser.Close(), b.from.Close()) }

// instead answers a request that is not sent: with the answer of a page, or, when it was dropped,
// not before its caller gives up.
func instead(r *http.Request, row *traffic.Row, answer []byte) (*http.Response, error) {
	resp := &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header:        http.Header{"Content-Type": {onhttp.JSON}},
		ContentLength: int64(len(answer)), Body: io.NopCloser(bytes.NewReader(answer)),
	}
	if answer == nil && row.Kind == traffic.Request {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	if answer == nil {
		resp.StatusCode, resp.Header = http.StatusAccepted, http.Header{}
	}
	return resp, nil
}
