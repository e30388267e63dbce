package main

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp"
)

// frames returns what shows messages in both directions, nil without -v.
func (m *mcpRemote) frames() *tap {
	if !m.verbose {
		return nil
	}
	return &tap{frames: consoleLines{m.screen}}
}

// consoleLines writes lines to a console, above what moves there.
type consoleLines struct{ *console }

func (c consoleLines) Write(p []byte) (int, error) {
	c.printf("%s", bytes.TrimSuffix(p, []byte("\n")))
	return len(p), nil
}

// showHTTP makes requests show their messages.
func (m *mcpRemote) showHTTP(client *http.Client) {
	if tap := m.frames(); tap != nil {
		client.Transport = shownHTTP{client.Transport, tap}
	}
}

// connectShown connects over a WebSocket whose messages are shown, and does so again when it breaks.
func (m *mcpRemote) connectShown(ctx context.Context, t *target.Target, o *mcp.ClientOptions) (*mcp.Client, error) {
	reach, err := m.reach(t)
	if err != nil {
		return nil, err
	}
	reach.Subprotocols = []string{"mcp"}
	o.Redial = func(ctx context.Context) (farcall.Transport, error) {
		tr, err := t.Dial(ctx, reach)
		if err != nil {
			return nil, err
		}
		return shown{tr, m.frames()}, nil
	}
	tr, err := o.Redial(ctx)
	if err != nil {
		return nil, err
	}
	return mcp.Connect(ctx, tr, o)
}

// shown is a Transport that shows its frames.
type shown struct {
	farcall.Transport
	tap *tap
}

func (t shown) Read() ([]byte, error) {
	frame, err := t.Transport.Read()
	t.tap.show("<", frame)
	return bytes.Clone(frame), err // the wrapper hides how to keep the transport's memory
}

func (t shown) Write(frames ...[]byte) error {
	t.tap.show(">", frames...)
	return t.Transport.Write(frames...)
}

// shownHTTP shows the messages in the bodies of HTTP.
type shownHTTP struct {
	http.RoundTripper
	tap *tap
}

func (t shownHTTP) RoundTrip(r *http.Request) (*http.Response, error) {
	sends := mediaType(r.Header) == "application/json"
	if sends && r.GetBody != nil {
		if body, err := r.GetBody(); err == nil {
			frame, _ := io.ReadAll(body) // it is in memory
			t.tap.show(">", frame)
		}
	}
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || !sends && !strings.Contains(r.Header.Get("Accept"), "text/event-stream") { // such as for a token
		return resp, err
	}
	switch kind := mediaType(resp.Header); kind {
	case "application/json", "text/event-stream":
		resp.Body = &shownBody{ReadCloser: resp.Body, tap: t.tap, events: kind == "text/event-stream"}
	}
	return resp, nil
}

func mediaType(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type")) // "" if it is not valid
	return kind
}

// shownBody shows the message in a body, or those in its events.
type shownBody struct {
	io.ReadCloser
	tap    *tap
	events bool
	rest   []byte // that is no whole message yet
}

func (b *shownBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.rest = append(b.rest, p[:n]...)
	for b.events {
		line, rest, whole := bytes.Cut(b.rest, []byte("\n"))
		if !whole {
			break
		}
		b.rest = rest
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			b.tap.show("<", data)
		}
	}
	if err != nil && !b.events {
		b.tap.show("<", b.rest)
		b.rest = nil
	}
	return n, err
}

// Close shows what was read of a body, which the reader may know to be all of it.
func (b *shownBody) Close() error {
	if !b.events {
		b.tap.show("<", b.rest)
		b.rest = nil
	}
	return b.ReadCloser.Close()
}
