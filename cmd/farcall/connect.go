package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/conform"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// connect opens a session. The handler answers what the other end asks; nil
// refuses everything.
func (r *remote) connect(ctx context.Context, t *target.Target, h *callbacks) (*session, error) {
	if r.kept != nil {
		return r.kept.rpc, nil
	}
	h = cmp.Or(h, &callbacks{})
	tap := r.tapOn(t)
	// the command reports errors itself
	o := &farcall.Options{V1: r.v1, Logger: slog.New(slog.DiscardHandler)}
	if t.Kind == target.HTTP {
		x, err := r.dialHTTP(t)
		if err != nil {
			return nil, err
		}
		return &session{Peer: farcall.NewClient(tappedExchanger{x, tap}, h, o), tap: tap}, nil
	}
	tr, err := r.dialTapped(ctx, t, tap)
	if err != nil {
		return nil, err
	}
	return &session{Peer: farcall.NewPeer(tr, h, o), tap: tap}, nil //nolint:contextcheck // a peer lives until it is closed
}

// tapOn returns a tap for connections to a target.
func (r *remote) tapOn(t *target.Target) *tap {
	tap := &tap{strict: t.Kind != target.Command, report: func(noise string) {
		fmt.Fprintf(r.stderr, "farcall: not a message, on the command's standard output: %s\n", noise)
	}}
	tap.dec.AcceptV1 = r.v1
	if r.verbose {
		tap.frames = r.stderr
	}
	return tap
}

// dialFailure is the exit for a connection that could not be made.
func dialFailure(ctx context.Context, t *target.Target, err error) error {
	var usage *exitError
	switch {
	case errors.As(err, &usage):
		return err
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // whatever the transport made of it
	case errors.Is(ctx.Err(), context.Canceled):
		return &exitError{code: exitInterrupted, err: errors.New("interrupted")}
	}
	return connectFailure(t, err)
}

// reach are the options for a connection to a target.
func (r *remote) reach(t *target.Target) (o *target.Options, err error) {
	o = &target.Options{Gzip: r.gzip, Prepare: r.dress}
	switch t.Kind {
	case target.HTTP, target.WebSocket:
		if o.Header, err = r.headers(); err == nil {
			o.Client, err = r.httpClient()
		}
	case target.Stream:
		o.TLS, err = r.tls()
	}
	return o, err
}

func (r *remote) dialHTTP(t *target.Target) (farcall.Exchanger, error) {
	o, err := r.reach(t)
	if err != nil {
		return nil, err
	}
	return t.Exchange(o)
}

func (r *remote) dial(ctx context.Context, t *target.Target) (farcall.Transport, error) {
	o, err := r.reach(t)
	if err != nil {
		return nil, err
	}
	return t.Dial(ctx, o)
}

// dialer is how conform reaches a target: below the transports, because it
// sends what they would not.
func (r *remote) dialer(t *target.Target) (conform.Dialer, error) {
	o, err := r.reach(t)
	switch {
	case err != nil:
		return conform.Dialer{}, err
	case t.Kind == target.HTTP:
		return conform.NewHTTP(o.Client, t.URL.String(), o.Header), nil
	case t.Kind == target.WebSocket:
		return conform.NewWebSocket(o.Client, t.URL.String(), o.Header), nil
	case t.Framing == stream.Raw:
		return conform.Dialer{}, usagef("Leave it out: a server that reads raw JSON reads lines as well.",
			"conform has no cases for the framing raw")
	case t.Framing == stream.Header:
		return conform.NewHeaders(func(ctx context.Context) (io.ReadWriteCloser, error) {
			return r.dialBytes(ctx, t)
		}), nil
	}
	return conform.NewLines(func(ctx context.Context) (io.ReadWriteCloser, error) {
		return r.dialBytes(ctx, t)
	}), nil
}

// dialBytes opens a byte stream.
func (r *remote) dialBytes(ctx context.Context, t *target.Target) (io.ReadWriteCloser, error) {
	if t.Kind == target.Command {
		return r.startChild(t.Command)
	}
	o, err := r.reach(t)
	if err != nil {
		return nil, err
	}
	return t.Open(ctx, o)
}

// rawChild is a child process; its standard input and output are a byte
// stream.
type rawChild struct {
	io.WriteCloser
	io.Reader
	cmd *exec.Cmd
}

func (r *remote) startChild(command []string) (io.ReadWriteCloser, error) {
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // the command is the user's; Close ends it
	r.dress(cmd)
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &rawChild{in, out, cmd}, nil
}

// Close closes the child's standard input, which tells it to end, and kills it
// when it does not.
func (c *rawChild) Close() error {
	_ = c.WriteCloser.Close()
	kill := time.AfterFunc(2*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	return c.cmd.Wait()
}

// session is a connection to a target, and what came over it.
type session struct {
	*farcall.Peer
	tap  *tap
	kept bool // it ends with the shell
}

// end says goodbye: a cancellation that is still to be written gets the time
// for it.
func (s *session) end(ctx context.Context) {
	if s.kept {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.Shutdown(ctx)
}

// noise is the first frame that was not JSON-RPC, as it is shown, and the beginning of its bytes.
func (s *session) noise() (text string, raw []byte) {
	if s == nil {
		return "", nil
	}
	s.tap.mu.Lock()
	defer s.tap.mu.Unlock()
	return s.tap.noise, s.tap.raw
}

// received is the beginning of what came, as long as no message was among it.
func (s *session) received() []byte {
	if s == nil {
		return nil
	}
	return s.tap.received()
}

// answer is the last response as it came, nil when there was none.
func (s *session) answer() jsonrpc.Raw {
	s.tap.mu.Lock()
	defer s.tap.mu.Unlock()
	return s.tap.last
}

// tap sees the frames that arrive before the peer does: it keeps the bytes of
// the answer, and what is not JSON-RPC.
type tap struct {
	// strict ends the connection at the first frame that is not JSON-RPC.
	// Otherwise such frames are left out and reported: a child that prints a
	// line break can still be talked to.
	strict bool
	report func(noise string)
	frames io.Writer // gets the frames of both directions; nil: they are not shown

	mu    sync.Mutex
	last  jsonrpc.Raw
	noise string
	raw   []byte       // the beginning of what noise shows
	heard bool         // a message came
	conn  *watchedConn // nil: the frames are all that is seen
	dec   jsonrpc.Decoder
	batch jsonrpc.Batch
}

// show writes frames behind an arrow: > for those that are sent, < for those that arrive.
func (t *tap) show(arrow string, frames ...[]byte) {
	if t.frames == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, frame := range frames {
		if text := bytes.TrimSpace(frame); len(text) > 0 {
			fmt.Fprintf(t.frames, "%s %s\n", arrow, tame(string(text)))
		}
	}
}

// see looks at a frame. It returns false when the frame is to be left out.
func (t *tap) see(frame []byte) (keep bool) {
	noise := t.look(frame)
	if noise != "" && !t.strict {
		t.report(noise)
	}
	return noise == ""
}

func (t *tap) look(frame []byte) (noise string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.dec.Decode(frame, &t.batch)
	switch {
	case err != nil && err.Code == jsonrpc.ParseError:
		noise = excerpt(frame)
	case err == nil && slices.ContainsFunc(t.batch.Messages, broken):
		noise = excerpt(frame)
	case err == nil && slices.ContainsFunc(t.batch.Messages, isResponse):
		t.last = bytes.TrimSpace(bytes.Clone(frame))
	}
	switch {
	case noise == "":
		t.heard = true
	case t.noise == "":
		t.noise, t.raw = noise, bytes.Clone(frame[:min(len(frame), beginning)])
	}
	return noise
}

// watch notes what connection the frames come over.
func (t *tap) watch(c *watchedConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conn = c
}

// received is the beginning of what came, as long as no message was among it. A nil tap has none.
func (t *tap) received() []byte {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.heard:
		return nil
	case t.conn != nil:
		return t.conn.received()
	}
	return t.raw
}

func isResponse(m jsonrpc.Message) bool { return m.Kind == jsonrpc.Response }

// broken finds what was meant to be an answer: the call would wait for it in
// vain.
func broken(m jsonrpc.Message) bool {
	return m.Kind == jsonrpc.Invalid && len(m.Method) == 0 && !m.ID.IsAbsent() && !m.ID.IsNull()
}

// tapped is a Transport with a tap.
type tapped struct {
	farcall.Transport
	tap *tap
}

func (t tapped) Read() ([]byte, error) {
	for {
		frame, err := t.Transport.Read()
		if err != nil {
			return nil, err
		}
		t.tap.show("<", frame)
		if t.tap.see(frame) {
			return bytes.Clone(frame), nil // the transport may reuse its memory
		}
		if t.tap.strict {
			return nil, fmt.Errorf("%w: %s", farcall.ErrProtocol, t.tap.noise)
		}
	}
}

func (t tapped) Write(frames ...[]byte) error {
	t.tap.show(">", frames...)
	return t.Transport.Write(frames...)
}

// tappedExchanger is an Exchanger with a tap.
type tappedExchanger struct {
	farcall.Exchanger
	tap *tap
}

func (t tappedExchanger) Exchange(
	ctx context.Context, frame []byte, reply func([]byte) error,
) error {
	t.tap.show(">", frame)
	return t.Exchanger.Exchange(ctx, frame, func(f []byte) error {
		t.tap.show("<", f)
		t.tap.see(f)
		return reply(f)
	})
}

// callbacks is the handler of a command: what the other end asks of it.
type callbacks struct {
	// fixed results by method
	answers map[string]jsonrpc.Raw
	// nil: notifications are dropped
	notify func(method string, params jsonrpc.Raw) error
	// nil: other calls are refused
	ask func(ctx context.Context, method string, params jsonrpc.Raw) (any, error)
	mu  sync.Mutex
}

// ServeRPC answers the other end.
func (v *callbacks) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	if !req.IsNotification() {
		if result, ok := v.answers[req.Method]; ok {
			return result, nil
		}
		if v.ask != nil {
			return v.ask(ctx, req.Method, req.Params)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "Method not found"}
	}
	if v.notify == nil {
		return nil, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return nil, v.notify(req.Method, req.Params)
}

// parseAnswers reads METHOD=RESULT, as --answer has it.
func parseAnswers(flags []string) (map[string]jsonrpc.Raw, error) {
	answers := map[string]jsonrpc.Raw{}
	for _, f := range flags {
		method, result, ok := strings.Cut(f, "=")
		if !ok || method == "" {
			return nil, usagef("Write it as --answer METHOD=RESULT.", "%q is not an answer", f)
		}
		answers[method] = appendWord(nil, result)
	}
	return answers, nil
}

// printNotification shows a notification on standard error.
func printNotification(w io.Writer) func(string, jsonrpc.Raw) error {
	return func(method string, params jsonrpc.Raw) error {
		_, err := fmt.Fprintf(w, "notification %s %s\n", tame(method), appendTame(nil, compact(params)))
		return err
	}
}
