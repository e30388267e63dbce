package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// session is a connection to a target, and what came over it.
type session struct {
	*farcall.Peer
	tap *tap
}

// end says goodbye: a cancellation that is still to be written gets the time
// for it.
func (s *session) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.Shutdown(ctx)
}

func (s *session) noise() string {
	if s == nil {
		return ""
	}
	s.tap.mu.Lock()
	defer s.tap.mu.Unlock()
	return s.tap.noise
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
	// line of its own can still be talked to.
	strict bool
	report func(noise string)
	frames io.Writer // gets the frames of both directions; nil: they are not shown

	mu    sync.Mutex
	last  jsonrpc.Raw
	noise string
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
	if t.noise == "" {
		t.noise = noise
	}
	return noise
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

func (t tappedExchanger) Exchange(ctx context.Context, frame []byte, reply func([]byte) error) error {
	t.tap.show(">", frame)
	return t.Exchanger.Exchange(ctx, frame, func(f []byte) error {
		t.tap.show("<", f)
		t.tap.see(f)
		return reply(f)
	})
}

// visitor is the handler of a command: what the other end asks of it.
type visitor struct {
	answers map[string]jsonrpc.Raw                        // fixed results by method
	notify  func(method string, params jsonrpc.Raw) error // nil: notifications are dropped
	mu      sync.Mutex
}

// ServeRPC answers the other end.
func (v *visitor) ServeRPC(_ context.Context, req *farcall.Request) (any, error) {
	if !req.IsNotification() {
		if result, ok := v.answers[req.Method]; ok {
			return result, nil
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
