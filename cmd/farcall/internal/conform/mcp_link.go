package conform

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json" //nolint:depguard // shares nothing with what it checks
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
)

// mcpLink carries messages to an MCP server, one at a time.
type mcpLink interface {
	open(ctx context.Context) error
	// exchange sends a message and returns what comes until it is answered. A message
	// without an id has no answer.
	exchange(ctx context.Context, m mcpMessage, timeout time.Duration) mcpReply
	close()
}

// mcpMessage is what is sent.
type mcpMessage struct {
	body   string
	id     string      // raw; "": no answer is expected
	until  string      // a notification that ends the exchange in place of the answer
	verb   string      // HTTP; "": POST
	header http.Header // HTTP
}

// mcpReply is what came back.
type mcpReply struct {
	frames []string
	answer *answer // nil: none
	status int     // HTTP
	header http.Header
	err    error
}

// take adds a frame and reports whether it ends the exchange.
func (r *mcpReply) take(m *mcpMessage, frame string) bool {
	r.frames = append(r.frames, frame)
	var head struct {
		Method string `json:"method"`
	}
	if json.Unmarshal([]byte(frame), &head) == nil && head.Method != "" {
		return head.Method == m.until
	}
	answers, _, err := parseAnswers(frame)
	if err != nil {
		r.err = err
		return true
	}
	for _, a := range answers {
		if m.id != "" && (sameValue(a.id, m.id) || a.code != 0 && (a.id == "" || a.id == "null")) {
			r.answer = &a
			return true
		}
	}
	return false
}

// mcpStream is one connection, over which MCP is spoken message by message.
type mcpStream struct {
	dial func(context.Context) (link, error)
	link link
}

func (s *mcpStream) open(ctx context.Context) (err error) {
	s.link, err = s.dial(ctx)
	return err
}

func (s *mcpStream) close() {
	if s.link != nil {
		s.link.close()
	}
}

func (s *mcpStream) exchange(ctx context.Context, m mcpMessage,
	timeout time.Duration,
) (r mcpReply) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, s.link.close) // a server that does not read must not hang the run
	err := s.link.send(ctx, apart, m.body)
	stop()
	if err != nil {
		r.err = fmt.Errorf("the server does not read: %w", err)
		return r
	}
	for m.id != "" {
		select {
		case f, ok := <-s.link.frames():
			if !ok {
				r.err = errors.New("the server closed the connection")
				return r
			}
			if r.take(&m, f) {
				return r
			}
		case <-ctx.Done():
			r.err = errors.New("no answer in time")
			return r
		}
	}
	return r
}

// mcpHTTP sends each message in a request.
type mcpHTTP struct {
	client *http.Client
	url    string
	header http.Header
}

func (h *mcpHTTP) open(context.Context) error { return nil }
func (h *mcpHTTP) close()                     { h.client.CloseIdleConnections() }

func (h *mcpHTTP) exchange(ctx context.Context, m mcpMessage, timeout time.Duration) (r mcpReply) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	verb := cmp.Or(m.verb, http.MethodPost)
	req, err := http.NewRequestWithContext(ctx, verb, h.url, strings.NewReader(m.body))
	if err != nil {
		r.err = err
		return r
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if verb == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, h.header)
	maps.Copy(req.Header, m.header)
	res, err := h.client.Do(req)
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		r.err = fmt.Errorf("%w: %w", ErrConnect, err)
		return r
	}
	if err != nil {
		r.err = errors.New(reason(err))
		return r
	}
	defer res.Body.Close()
	r.status, r.header = res.StatusCode, res.Header
	if verb != http.MethodPost {
		return r // the stream of a GET does not end
	}
	r.err = r.read(&m, res)
	return r
}

// read takes the messages of a body until the answer has come.
func (r *mcpReply) read(m *mcpMessage, res *http.Response) error {
	body := bufio.NewReader(io.LimitReader(res.Body, maxFrame))
	if t, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); t != "text/event-stream" {
		b, err := io.ReadAll(body)
		if err != nil {
			return errors.New(reason(err))
		}
		text := strings.TrimSpace(string(b))
		switch {
		case text == "":
		case jsonType(res.Header.Get("Content-Type")):
			r.take(m, text)
		default:
			r.frames = append(r.frames, text) // a page for people
		}
		return nil
	}
	var data []string
	for {
		line, err := body.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		if d, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(data, strings.TrimPrefix(d, " "))
		}
		if line == "" && len(data) > 0 {
			if text := strings.Join(data, "\n"); text != "" && r.take(m, text) {
				return r.err
			}
			data = nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errors.New(reason(err))
		}
	}
}
