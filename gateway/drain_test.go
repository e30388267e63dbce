package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/faulty"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/stream"
)

// retryable fails unless an error says that the call can be made again.
func retryable(t *testing.T, what string, err error) {
	t.Helper()
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		t.Errorf("%s: %T: %v", what, err, err)
		return
	}
	if a := aboutOf(t, wire); a.Sent != "no" || !a.Retryable {
		t.Errorf("%s: %v %s", what, wire, wire.Data)
	}
}

// On a rollout calls were lost, and agents could not tell that from errors of
// tools: here new calls are refused with an error that says to try again, those in
// flight are finished, and streams end in order.
func TestDrain(t *testing.T) {
	m := newMock("legacy")
	l := newLab(t, nil, m.tcp(t, "m"))
	legacyClient, modernClient := l.client(t, mcp.ClientOptions{Era: "legacy"}),
		l.client(t, mcp.ClientOptions{Era: "modern"})
	url := listen(t, func(conn net.Conn) {
		l.ServeStream(stream.New(conn, stream.NDJSON, nil), &guard.Conn{Transport: "tcp"})
	})
	onStream, err := mcp.Dial(t.Context(), url, &mcp.ClientOptions{Era: "legacy"})
	if err != nil {
		t.Fatal(err)
	}
	defer onStream.Close()
	onSocket, err := mcp.Dial(t.Context(), strings.Replace(l.url, "http", "ws", 1)+"/mcp",
		&mcp.ClientOptions{Era: "legacy"})
	if err != nil {
		t.Fatal(err)
	}
	defer onSocket.Close()
	results := make(chan error, 4)
	clients := []*mcp.Client{legacyClient, modernClient, onStream, onSocket}
	for _, c := range clients {
		go func() {
			got, err := say(t.Context(), c, "wait", "all of it")
			if err == nil && got != "all of it" {
				err = errors.New("got " + got)
			}
			results <- err
		}()
		received(t, "the call", m.started)
	}
	events := l.events(t)
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { ended <- l.Shutdown(ctx) }()
	until(t, "the gateway drains", func() bool { return l.status(t).Draining })

	if got, err := l.web.Get(l.url + "/readyz"); err != nil ||
		got.StatusCode != http.StatusServiceUnavailable {
		t.Error(got, err)
	} else {
		got.Body.Close()
	}
	for n, c := range clients[:2] {
		_, err := say(t.Context(), c, "echo", "")
		t.Logf("client %d got %v", n, err)
		retryable(t, "a call over HTTP", err)
	}
	for n := range clients {
		m.release <- struct{}{}
		if err := received(t, "the result of a call in flight", results); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
	}
	if err := received(t, "the end of Shutdown", ended); err != nil {
		t.Error(err)
	}
	if err := received(t, "the end of the event stream", events); err != nil {
		t.Errorf("the event stream did not end in order: %v", err)
	}
}

// events opens a session with a stream for what belongs to no call, and says how
// it ended.
func (l *lab) events(t *testing.T) <-chan error {
	t.Helper()
	r, err := l.post(t.Context(), "/mcp", initialize)
	if err != nil || r.err != nil {
		t.Fatal(r, err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+"/mcp", nil)
	req.Header = http.Header{
		"Accept":         {"text/event-stream"},
		"Mcp-Session-Id": {r.header.Get("Mcp-Session-Id")}, "Mcp-Protocol-Version": {legacy},
	}
	ended := make(chan error, 1)
	opened := make(chan struct{})
	go func() {
		got, err := l.web.Do(req)
		close(opened)
		if err == nil {
			_, err = io.Copy(io.Discard, got.Body)
			got.Body.Close()
		}
		ended <- err
	}()
	received(t, "the event stream", opened)
	return ended
}

// New calls on connections that stay, byte streams for example, are refused, too.
func TestDrainOnStream(t *testing.T) {
	m := newMock("legacy")
	l := newLab(t, nil, m.tcp(t, "m"))
	tr := l.stream(t)
	in := make(chan string, 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(in)
		for {
			frame, err := tr.Read()
			if err != nil {
				return
			}
			in <- string(frame)
		}
	})
	send := func(frames ...string) {
		t.Helper()
		for _, f := range frames {
			if err := tr.Write([]byte(f)); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(initialize)
	received(t, "the handshake", in)
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait",`+
			`"arguments":{"text":"a"}}}`)
	received(t, "the call", m.started)
	ended := make(chan error, 1)
	go func() { ended <- l.Shutdown(t.Context()) }()
	until(t, "the gateway drains", func() bool { return l.status(t).Draining })
	send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo",` +
		`"arguments":{"text":"a"}}}`)
	if got := received(t, "the refusal", in); !strings.Contains(got, `"retryable":true`) ||
		!strings.Contains(got, `"id":3`) {
		t.Error(got)
	}
	m.release <- struct{}{}
	if got := received(t, "the result", in); !strings.Contains(got, `"id":2`) ||
		!strings.Contains(got, `"result"`) {
		t.Error(got)
	}
	if err := received(t, "the end of Shutdown", ended); err != nil {
		t.Error(err)
	}
	if got, ok := <-in; ok {
		t.Errorf("the stream did not end: %s", got)
	}
	wg.Wait()
}

// What does not end in time is given up at the deadline. Its callers are notified: no
// call is lost silently. No process is left.
func TestDrainDeadline(t *testing.T) {
	m := newMock("legacy")
	l := newLab(t, nil, m.tcp(t, "m"), child("c", "ignore-sigterm"))
	var clients []*mcp.Client
	for _, era := range []string{"legacy", "modern"} {
		clients = append(clients, l.client(t, mcp.ClientOptions{Era: era}))
	}
	wants(t, clients[0], "c__echo", "a", "a")
	results := make(chan error, 2)
	for _, c := range clients {
		go func() {
			_, err := say(t.Context(), c, "wait", "")
			results <- err
		}()
		received(t, "the call", m.started)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := l.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	t.Logf("Shutdown took %v", time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > time.Second {
		t.Errorf("Shutdown took %v", took)
	}
	for range clients {
		err := received(t, "an answer", results)
		t.Logf("a caller got %v", err)
		if err == nil {
			t.Error("it was answered")
		}
		m.release <- struct{}{} // the server goes on for a while: the connection might be half closed
	}
	if left := faulty.NoneLeft(); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// Whatever the moment, a call has a result or an error that says that it may be
// made again.
func TestDrainUnderLoad(t *testing.T) {
	l := newLab(t, nil, child("c", "ok"))
	var wg sync.WaitGroup
	begun := make(chan struct{}, 1000)
	stop := make(chan struct{})
	for n := range 6 {
		c := l.client(t, mcp.ClientOptions{Era: []string{"legacy", "modern"}[n%2]})
		wg.Go(func() {
			for {
				got, err := say(t.Context(), c, "echo", "hello")
				switch {
				case err != nil:
					if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok ||
						!strings.Contains(string(wire.Data), `"retryable":true`) {
						t.Errorf("%T: %v", err, err)
					}
					return
				case got != "hello":
					t.Errorf("got %q", got)
				}
				select {
				case begun <- struct{}{}:
				case <-stop:
					return
				}
			}
		})
	}
	for range 200 {
		received(t, "a result", begun)
	}
	if err := l.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	close(stop)
	wg.Wait()
}
