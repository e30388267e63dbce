package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strings"
	"time"
)

// NewHTTP probes with a POST for each frame.
func NewHTTP(client *http.Client, url string, header http.Header) Dialer {
	return Dialer{
		kind: HTTP,
		wire: func() wire { return &httpWire{client: client, url: url, header: header} },
		mcp:  func() mcpLink { return &mcpHTTP{client: client, url: url, header: header} },
	}
}

type httpWire struct {
	client *http.Client
	url    string
	header http.Header
	sentinels
}

// open sends a request with an answer that does not matter: it shows that there is an
// HTTP server.
func (w *httpWire) open(ctx context.Context, timeout time.Duration) error {
	_, err := w.post(ctx, sentinel(noMethod, "0"), timeout)
	return err
}

func (w *httpWire) close() { w.client.CloseIdleConnections() }

func (w *httpWire) useSentinel(ctx context.Context, method string, quoted bool, timeout time.Duration) error {
	w.method, w.quoted = method, quoted
	return w.alive(ctx, timeout)
}

// alive makes an ordinary request.
func (w *httpWire) alive(ctx context.Context, timeout time.Duration) error {
	request, id := w.next()
	ev, err := w.post(ctx, request, timeout)
	if err != nil {
		return err
	}
	for _, f := range ev.frames {
		if answersID(f, id) {
			return nil
		}
	}
	return fmt.Errorf("received: %v", ev.lines())
}

func (w *httpWire) probe(ctx context.Context, c *Case, timeout time.Duration) (ev evidence) {
	for _, s := range c.sends {
		one, err := w.post(ctx, s, timeout)
		if err != nil {
			ev.err = reason(err)
			return ev
		}
		ev.frames = append(ev.frames, one.frames...)
		ev.status, ev.contentType = one.status, one.contentType
	}
	if err := w.alive(ctx, timeout); err != nil {
		ev.err = "an ordinary request sent afterwards is not answered: " + reason(err)
	}
	return ev
}

// reason shortens an error of the HTTP client to what happened.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return err.Error()
}

func (w *httpWire) post(ctx context.Context, body string, timeout time.Duration) (ev evidence, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
	if err != nil {
		return ev, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	maps.Copy(req.Header, w.header)
	res, err := w.client.Do(req)
	if err != nil {
		return ev, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxFrame))
	if err != nil {
		return ev, fmt.Errorf("reading the answer: %w", err)
	}
	ev.status = res.StatusCode
	if text := strings.TrimSpace(string(b)); text != "" {
		ev.contentType = res.Header.Get("Content-Type")
		ev.frames = bodyFrames(ev.contentType, text)
	}
	return ev, nil
}

// bodyFrames takes the messages out of a body: of an event stream those of its
// events.
func bodyFrames(contentType, body string) []string {
	if t, _, _ := mime.ParseMediaType(contentType); t != "text/event-stream" {
		return []string{body}
	}
	var frames []string
	for event := range strings.SplitSeq(strings.ReplaceAll(body, "\r\n", "\n"), "\n\n") {
		var data []string
		for line := range strings.SplitSeq(event, "\n") {
			if d, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(d, " "))
			}
		}
		if text := strings.Join(data, "\n"); text != "" {
			frames = append(frames, text)
		}
	}
	return frames
}

func jsonType(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || t == "text/event-stream" || strings.HasPrefix(t, "application/json-rpc") || t == "application/jsonrequest" || strings.HasSuffix(t, "+json"))
}
