package wsrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/wsrpc"
)

func TestFrames(t *testing.T) {
	a, b := pair(t, nil)
	for name, ends := range map[string][2]farcall.Transport{
		"to the server": {a, b},
		"to the client": {b, a},
	} {
		from, to := ends[0], ends[1]
		for _, size := range []int{2, 125, 126, 500, 4096, 65535, 65536, 65537, 1 << 20} {
			frame := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, size-2)...), '"')
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := from.Write(frame, []byte(`[]`), frame); err != nil {
					t.Error(err)
				}
			})
			for i, want := range [][]byte{frame, []byte(`[]`), frame} {
				got, err := to.Read()
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s, %d bytes, frame %d: %d bytes, %v", name, size, i, len(got), err)
				}
			}
			wg.Wait()
		}
	}
}

// What TryWrite cannot write it keeps, in order.
func TestTryWrite(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("nothing is written there without blocking")
	}
	a, b := pair(t, nil)
	for name, ends := range map[string][2]farcall.Transport{
		"to the server": {a, b},
		"to the client": {b, a},
	} {
		from, to := ends[0], ends[1]
		try, ok := from.(farcall.TryWriter)
		if !ok {
			t.Fatalf("%s: %T is no TryWriter", name, from)
		}
		n, done := 0, true
		for done { // until the socket is full
			frame := fmt.Appendf(nil, `{"n":%d,"x":"%s"}`, n, strings.Repeat("x", n%5000))
			var err error
			if done, err = try.TryWrite(frame); err != nil {
				t.Fatal(err)
			}
			clear(frame) // it must have been copied
			n++
		}
		written := make(chan error)
		go func() { written <- from.Write([]byte(`"last"`)) }()
		for i := range n {
			got, err := to.Read()
			if want := fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, strings.Repeat("x", i%5000)); err != nil ||
				string(got) != want {
				t.Fatalf("%s: frame %d is %.40s, %v", name, i, got, err)
			}
		}
		if got, err := to.Read(); err != nil || string(got) != `"last"` {
			t.Fatalf("%s: %s %v", name, got, err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		large := bytes.Repeat([]byte("x"), 1<<20)
		if done, err := try.TryWrite(large, []byte("y")); done || err != nil {
			t.Error(done, err)
		}
		go func() { written <- from.Write() }()
		for _, want := range []int{1 << 20, 1} {
			if got, err := to.Read(); err != nil || len(got) != want {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
}

func TestKeep(t *testing.T) {
	a, b := pair(t, nil)
	if err := a.Write([]byte("one"), []byte("two"), []byte("three")); err != nil {
		t.Fatal(err)
	}
	one, _ := b.Read()
	b.(farcall.Keeper).Keep()
	two, _ := b.Read()
	if string(one) != "one" || string(two) != "two" {
		t.Errorf("%s %s", one, two)
	}
	if three, _ := b.Read(); string(one) != "one" || string(three) != "three" {
		t.Errorf("%s %s", one, three)
	}
	if b.(farcall.Buffered).Buffered() {
		t.Error("more is buffered")
	}
}

func TestBothWays(t *testing.T) {
	handler := farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
		if r.Method == "callback" {
			return farcall.Call[jsonrpc.Raw](ctx, farcall.CallerFrom(ctx), "echo", r.Params)
		}
		return r.Params, nil
	})
	c, s := peers(t, handler, handler)
	for _, p := range []*farcall.Peer{c, s} {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for n := range 50 {
					want := fmt.Sprintf("[%d,%d]", i, n)
					got, err := farcall.Call[jsonrpc.Raw](t.Context(), p, "callback", jsonrpc.Raw(want))
					if err != nil || string(got) != want {
						t.Errorf("%s %v, want %s", got, err, want)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestLargeBothWaysAtOnce(t *testing.T) {
	c, s := peers(t, farcall.HandlerFunc(echo), farcall.HandlerFunc(echo))
	large := []string{strings.Repeat("x", 4<<20)}
	var wg sync.WaitGroup
	for _, p := range []*farcall.Peer{c, s} {
		wg.Go(func() {
			got, err := farcall.Call[[]string](t.Context(), p, "echo", large)
			if err != nil || len(got) != 1 || got[0] != large[0] {
				t.Error(len(got), err)
			}
		})
	}
	wg.Wait()
}

func TestOrderlyClose(t *testing.T) {
	for _, end := range []string{"calling", "serving"} {
		a, b := pair(t, nil)
		if end == "serving" {
			a, b = b, a
		}
		read := make(chan error)
		go func() {
			_, err := b.Read()
			read <- err
		}()
		if err := errors.Join(a.Close(), a.Close()); err != nil {
			t.Error(err)
		}
		if err := <-read; !isEOF(err) {
			t.Errorf("%s end closed: %v", end, err)
		}
		if _, err := a.Read(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := a.Write([]byte("1")); err == nil {
			t.Error("written after Close")
		}
	}
}

// An end that does not read delays Close by a second at most, and a blocked
// Write ends.
func TestCloseWhileStuck(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"calling", "serving"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, nil)
			if end == "serving" {
				a = b
			}
			started, failed := make(chan struct{}), make(chan error)
			go func() {
				close(started)
				for {
					if err := a.Write(make([]byte, 1<<20)); err != nil {
						failed <- err
						return
					}
				}
			}()
			<-started
			begin := time.Now()
			a.Close()
			if d := time.Since(begin); d > 3*time.Second {
				t.Errorf("Close took %v", d)
			}
			<-failed
		})
	}
}

// The context of the request does not matter once the connection is made.
func TestConnectionOutlivesTheRequest(t *testing.T) {
	returned := make(chan struct{})
	conns := make(chan farcall.Transport, 1)
	requests := make(chan *http.Request, 1)
	h := wsrpc.NewHandler(func(c farcall.Transport, r *http.Request) {
		requests <- r
		conns <- c
	}, nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		close(returned)
	}))
	defer s.Close()
	c := dial(t, "ws"+strings.TrimPrefix(s.URL, "http"), nil)
	b := <-conns
	defer func() { _ = hangUp(b, c) }()
	<-returned
	<-(<-requests).Context().Done()
	if err := c.Write([]byte("1")); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Read(); string(got) != "1" || err != nil {
		t.Error(got, err)
	}
}

func TestTooLarge(t *testing.T) {
	s := serve(t, &wsrpc.Options{MaxMessage: 1000})
	a := farcallClient(t, s)
	p := farcall.NewPeer(<-s.conns, farcall.HandlerFunc(echo), nil)
	defer p.Close()
	ctx := t.Context()
	fits := `{"jsonrpc":"2.0","method":"echo","id":1,"params":["` +
		strings.Repeat("x", 1000-54) + `"]}`
	if err := a.Write(ctx, websocket.MessageText, []byte(fits)); err != nil {
		t.Fatal(err)
	}
	if _, got, err := a.Read(ctx); err != nil || !strings.Contains(string(got), "xxx") {
		t.Fatal(string(got), err)
	}
	if err := a.Write(ctx, websocket.MessageText,
		[]byte(fits+strings.Repeat(" ", 1<<20))); err != nil {
		t.Fatal(err)
	}
	want := `{"jsonrpc":"2.0","error":{"code":-32012,"message":"Request too large",` +
		`"data":{"maxSize":1000,"unit":"bytes"}},"id":null}`
	if _, got, err := a.Read(ctx); err != nil || string(got) != want {
		t.Error(string(got), err)
	}
	if _, _, err := a.Read(ctx); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Error(err)
	}
}

// farcallClient connects with the library itself.
func farcallClient(t *testing.T, s *server) *websocket.Conn {
	t.Helper()
	//nolint:bodyclose // the library reads the body and closes it
	c, _, err := websocket.Dial(t.Context(), s.url(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	c.SetReadLimit(-1)
	return c
}

func TestForeignClient(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		name string
		send func(*websocket.Conn) error
		want func(frame string, err error) bool
	}{
		{
			"text", func(c *websocket.Conn) error {
				return c.Write(ctx, websocket.MessageText, []byte("1"))
			},
			func(f string, err error) bool { return f == "1" && err == nil },
		},
		{
			"binary", func(c *websocket.Conn) error {
				return c.Write(ctx, websocket.MessageBinary, []byte("1"))
			},
			func(f string, err error) bool { return f == "1" && err == nil },
		},
		{
			"empty", func(c *websocket.Conn) error { return c.Write(ctx, websocket.MessageText, nil) },
			func(f string, err error) bool { return f == "" && err == nil },
		},
		{
			"going away", func(c *websocket.Conn) error {
				go c.Close(websocket.StatusGoingAway, "bye")
				return nil
			},
			func(_ string, err error) bool { return isEOF(err) },
		},
		{
			"no status", func(c *websocket.Conn) error {
				go c.Close(websocket.StatusNoStatusRcvd, "")
				return nil
			},
			func(_ string, err error) bool { return isEOF(err) },
		},
		{
			"error status", func(c *websocket.Conn) error {
				go c.Close(websocket.StatusInternalError, "oops")
				return nil
			},
			func(_ string, err error) bool { return !isEOF(err) && strings.Contains(err.Error(), "1011") },
		},
		{
			"no goodbye", func(c *websocket.Conn) error { return c.CloseNow() },
			func(_ string, err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) },
		},
	} {
		s := serve(t, nil)
		a := farcallClient(t, s)
		b := <-s.conns
		if err := c.send(a); err != nil {
			t.Fatal(c.name, err)
		}
		if got, err := b.Read(); !c.want(string(got), err) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
		a.CloseNow()
		b.Close()
	}
}

func TestRefusals(t *testing.T) {
	closed, open := serve(t, nil), serve(t, &wsrpc.Options{Origins: []string{"https://app.example"}})
	for _, c := range []struct {
		name   string
		url    string
		header http.Header
		ok     bool
	}{
		{"no origin", closed.url(), nil, true},
		{"same host", closed.url(), http.Header{"Origin": {closed.URL}}, true},
		{"foreign", closed.url(), http.Header{"Origin": {"https://app.example"}}, false},
		{"listed", open.url(), http.Header{"Origin": {"https://app.example"}}, true},
	} {
		conn, err := wsrpc.Dial(t.Context(), c.url, &wsrpc.Options{Header: c.header})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			var other farcall.Transport
			select {
			case other = <-closed.conns:
			case other = <-open.conns:
			}
			_ = hangUp(conn, other)
			continue
		}
		if !errors.Is(err, wsrpc.ErrConnect) || !strings.Contains(err.Error(), "403") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	resp, err := http.Get(closed.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusUpgradeRequired ||
		resp.Header.Get("Content-Type") != "application/json" ||
		!strings.HasPrefix(string(body), `{"jsonrpc":"2.0","error":{"code":-32600`) {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
}

func TestDialFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := ln.Addr().String()
	ln.Close()
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		conn.Close()
	}))
	defer liar.Close()
	for _, c := range []struct {
		url  string
		want error
	}{
		{"ws://" + gone, wsrpc.ErrConnect},
		{"ws" + strings.TrimPrefix(page.URL, "http"), wsrpc.ErrConnect},
		{"ws" + strings.TrimPrefix(liar.URL, "http"), farcall.ErrProtocol},
	} {
		if _, err := wsrpc.Dial(t.Context(), c.url, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.url, err)
		}
	}
	if _, err := wsrpc.Dial(t.Context(), "ws://"+gone, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "wsrpc: cannot connect: Get ") {
		t.Errorf("the reason is behind others: %v", err)
	}
	for _, url := range []string{"", "http://x", "ws://", "x"} {
		if _, err := wsrpc.Dial(t.Context(), url, nil); err == nil {
			t.Errorf("%q was accepted", url)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := wsrpc.Dial(ctx, "ws://"+gone, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTLSAndSubprotocol(t *testing.T) {
	conns := make(chan farcall.Transport, 1)
	o := &wsrpc.Options{Subprotocols: []string{"jsonrpc"}}
	s := httptest.NewTLSServer(wsrpc.NewHandler(func(c farcall.Transport, _ *http.Request) {
		conns <- c
	}, o))
	defer s.Close()
	a := dial(t, "wss"+strings.TrimPrefix(s.URL, "https"),
		&wsrpc.Options{Client: s.Client(), Subprotocols: []string{"x", "jsonrpc"}})
	b := <-conns
	defer b.Close()
	if _, ok := b.(farcall.TryWriter); ok {
		t.Error("bytes could be written past the encryption")
	}
	c, p := farcall.NewPeer(a, nil, nil), farcall.NewPeer(b, farcall.HandlerFunc(echo), nil)
	defer func() { _ = hangUp(c, p) }()
	want := []string{strings.Repeat("x", 3<<20)}
	if got, err := farcall.Call[[]string](t.Context(), c, "echo", want); err != nil ||
		got[0] != want[0] {
		t.Error(err)
	}
}

func TestPings(t *testing.T) {
	// The other end answers: the connection lives.
	s := serve(t, &wsrpc.Options{PingInterval: 100 * time.Millisecond})
	pings := make(chan struct{}, 16)
	//nolint:bodyclose // the library reads the body and closes it
	foreign, _, err := websocket.Dial(t.Context(), s.url(), &websocket.DialOptions{
		OnPingReceived: func(context.Context, []byte) bool { pings <- struct{}{}; return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	a := <-s.conns
	var wg sync.WaitGroup
	wg.Go(func() { foreign.Read(t.Context()) }) // answers the pings
	wg.Go(func() {
		if _, err := a.Read(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	for range 3 {
		<-pings
	}
	_ = hangUp(a)
	wg.Wait()

	// The other end does not read, so no pong comes.
	s = serve(t, &wsrpc.Options{PingInterval: -1})
	a = dial(t, s.url(), &wsrpc.Options{PingInterval: 5 * time.Millisecond})
	b := <-s.conns
	defer b.Close()
	if _, err := a.Read(); err == nil || !strings.Contains(err.Error(), "has not answered a ping") {
		t.Error(err)
	}
}

// An end that takes nothing of a Write is as dead as one that does not answer.
func TestStuckWriteIsNoLife(t *testing.T) {
	s := serve(t, &wsrpc.Options{PingInterval: -1})
	a := dial(t, s.url(), &wsrpc.Options{PingInterval: 20 * time.Millisecond})
	b := <-s.conns
	defer b.Close()
	var err error
	for err == nil {
		err = a.Write(make([]byte, 1<<20))
	}
	if !strings.Contains(err.Error(), "wsrpc: the other end has ") {
		t.Error(err)
	}
}

// A ping is answered while a large message is being written.
func TestPongBetweenFragments(t *testing.T) {
	s := serve(t, nil)
	a := farcallClient(t, s)
	b := <-s.conns
	defer b.Close()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = b.Read() }) // handles the ping
	wg.Go(func() {
		if err := b.Write(make([]byte, 32<<20)); err != nil {
			t.Error(err)
		}
	})
	_, r, err := a.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pong := make(chan error, 1)
	go func() { pong <- a.Ping(t.Context()) }()
	n, err := io.Copy(io.Discard, r)
	if err != nil || n != 32<<20 {
		t.Error(n, err)
	}
	go a.Read(t.Context()) // in case that the pong comes after the message
	if err := <-pong; err != nil {
		t.Error(err)
	}
	a.CloseNow()
	wg.Wait()
}

func TestManyConnections(t *testing.T) {
	s := serve(t, nil)
	for range 200 {
		a := dial(t, s.url(), nil)
		c, p := farcall.NewPeer(a, nil, nil), farcall.NewPeer(<-s.conns, farcall.HandlerFunc(echo), nil)
		if err := c.Call(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := hangUp(c, p); err != nil {
			t.Fatal(err)
		}
	}
}
