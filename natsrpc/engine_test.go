package natsrpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/farcall-dev/farcall/natsrpc"
)

// Records are the lines of a log with a text.
type records struct {
	slog.Handler
	text string
	seen chan struct{}
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }

func (r *records) Handle(_ context.Context, line slog.Record) error {
	line.Attrs(func(a slog.Attr) bool {
		if strings.Contains(strings.ToLower(a.Value.String()), r.text) {
			select {
			case r.seen <- struct{}{}:
			default:
			}
		}
		return true
	})
	return nil
}

// TestPasswordExpires changes the password of the engine, and back: a server says that it is
// refused, and takes requests again.
func TestPasswordExpires(t *testing.T) {
	t.Parallel()
	o := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		Username: "u", Password: "one",
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the engine does not start")
	}
	change := func(password string) {
		t.Helper()
		again := o.Clone()
		again.Password, again.Port = password, s.Addr().(*net.TCPAddr).Port
		if err := s.ReloadOptions(again); err != nil {
			t.Fatal(err)
		}
	}
	log := &records{Handler: slog.DiscardHandler, text: "authorization", seen: make(chan struct{}, 10)}
	at := "nats://u:one@" + s.Addr().String() + "/expires.test"
	service, err := natsrpc.Listen(t.Context(), at, newMethods().handler(), &natsrpc.Options{
		Logger: slog.New(log),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Close(context.WithoutCancel(t.Context())) })
	change("two")
	for range 3 { // a connection ends for good after two, by default
		<-log.seen
	}
	change("one")
	c := client(t, at)
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		var got []int
		err := c.Call(t.Context(), "echo", []int{1}, &got)
		if err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestDialingOneEngine connects to an engine that does not answer, and calls at another one
// meanwhile.
func TestDialingOneEngine(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	dialed := make(chan net.Conn, 1)
	go func() {
		if conn, err := silent.Accept(); err == nil {
			dialed <- conn
		}
	}()
	at := engine(t) + "/other.test"
	listen(t, at, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
	web := transport(t)
	get := func(ctx context.Context, url string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := web.Do(r)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- get(ctx, "nats://"+silent.Addr().String()+"/s.test") }()
	conn := <-dialed
	if err := get(t.Context(), at); err != nil {
		t.Error(err)
	}
	waits, stop := context.WithCancel(t.Context())
	go func() { ended <- get(waits, "nats://"+silent.Addr().String()+"/s.test") }()
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("one that waits for the other's connection: %v", err)
	}
	_ = conn.Close()
	if err := <-ended; err == nil {
		t.Error("an engine that says nothing")
	}
}

// TestNoBody: answers to HEAD, and those with the status 204, have none.
func TestNoBody(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/none" {
			w.WriteHeader(http.StatusNoContent)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
	})
	at := engine(t) + "/body.test"
	listen(t, at, h, nil)
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	for _, ask := range [][2]string{
		{http.MethodHead, "/some"}, {http.MethodGet, "/none"}, {http.MethodGet, "/some"},
	} {
		var sizes [2]int
		for i, base := range []string{at, front.URL} {
			r, err := http.NewRequestWithContext(t.Context(), ask[0], base+ask[1], http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := []*http.Client{transport(t), front.Client()}[i].Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Error(err)
			}
			_ = answer.Body.Close()
			sizes[i] = len(body)
		}
		if sizes[0] != sizes[1] {
			t.Errorf("%v: %d bytes over NATS, %d over HTTP", ask, sizes[0], sizes[1])
		}
	}
}
