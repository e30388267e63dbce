package natsrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/natsrpc"
)

var quiet = slog.New(slog.DiscardHandler)

// engine starts a NATS server, and returns its URL.
func engine(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the engine does not start")
	}
	return s.ClientURL()
}

// listen serves h on a subject.
func listen(t *testing.T, address string, h http.Handler, o *natsrpc.Options) *natsrpc.Server {
	t.Helper()
	if o == nil {
		o = &natsrpc.Options{}
	}
	o.Logger = quiet
	s, err := natsrpc.Listen(t.Context(), address, h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// transport returns what sends requests.
func transport(t *testing.T) *http.Client {
	t.Helper()
	tr := &natsrpc.Transport{Logger: quiet}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// client calls a subject.
func client(t *testing.T, address string) *farcall.Peer {
	t.Helper()
	x, err := httprpc.Dial(address, &httprpc.Options{Client: transport(t)})
	if err != nil {
		t.Fatal(err)
	}
	p := farcall.NewClient(x, nil, nil)
	t.Cleanup(func() { p.Close() })
	return p
}

type number struct {
	N int `json:"n"`
}

// methods are what the tests call.
type methods struct {
	*farcall.Mux

	began, ended chan struct{} // of "wait", which waits for the end of its call
}

func newMethods() *methods {
	m := &methods{farcall.NewMux(), make(chan struct{}, 9), make(chan struct{}, 9)}
	m.Handle("echo", farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
		return r.Params, nil
	}))
	farcall.Handle(m.Mux, "repeat", func(_ context.Context, p number) (string, error) {
		return strings.Repeat("x", p.N), nil
	})
	farcall.Handle(m.Mux, "fail", func(context.Context, struct{}) (int, error) {
		return 0, jsonrpc.Errorf(7, "seven")
	})
	m.Handle("wait", farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		m.began <- struct{}{}
		<-ctx.Done()
		m.ended <- struct{}{}
		return nil, ctx.Err()
	}))
	farcall.HandleStream(m.Mux, "count", func(_ context.Context, p number) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range p.N {
				if !yield(i, nil) {
					return
				}
			}
		}
	})
	return m
}

func (m *methods) handler() http.Handler { return httprpc.NewHandler(m, nil) }

func TestCalls(t *testing.T) {
	t.Parallel()
	at, m := engine(t)+"/calls.test", newMethods()
	listen(t, at, m.handler(), nil)
	c, ctx := client(t, at), t.Context()

	var echoed map[string]int
	if err := c.Call(ctx, "echo", map[string]int{"a": 1}, &echoed); err != nil || echoed["a"] != 1 {
		t.Error(echoed, err)
	}
	// An answer of any size: the engine takes messages of 1 MiB.
	for _, n := range []int{0, 1, 64<<10 - 1, 64 << 10, 1 << 20, 10 << 20} {
		got, err := farcall.Call[string](ctx, c, "repeat", number{n})
		if err != nil || got != strings.Repeat("x", n) {
			t.Errorf("%d bytes: %d came, %v", n, len(got), err)
		}
	}
	var e *jsonrpc.Error
	if err := c.Call(ctx, "fail", nil, nil); !errors.As(err, &e) || e.Code != 7 {
		t.Error(err)
	}
	if err := c.Notify(ctx, "echo", []int{1}); err != nil {
		t.Error(err)
	}
	sum := 0
	for v, err := range farcall.Stream[int](ctx, c, "count", number{1000}) {
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	if sum != 499_500 {
		t.Error("the values of the stream have the sum", sum)
	}
	// A request that does not fit is not sent, and the error says why.
	err := c.Call(ctx, "echo", []string{strings.Repeat("x", 1<<20)}, nil)
	if err == nil || !strings.Contains(err.Error(), "max_payload") {
		t.Error(err)
	}
}

// TestCancel ends calls before and after the server has said that it has them.
func TestCancel(t *testing.T) {
	t.Parallel()
	at, m := engine(t)+"/cancel.test", newMethods()
	listen(t, at, m.handler(), nil)
	c := client(t, at)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Call(ctx, "wait", nil, nil) }()
		<-m.began
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-m.ended
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	at := engine(t)
	err := client(t, at+"/empty.test").Call(t.Context(), "echo", nil, nil)
	const want = "no server listens on the subject empty.test"
	if !errors.Is(err, httprpc.ErrConnect) || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	away := "nats://" + l.Addr().String() + "/x"
	err = client(t, away).Call(t.Context(), "echo", nil, nil)
	if !errors.Is(err, httprpc.ErrConnect) {
		t.Error(err)
	}
	if _, err := natsrpc.Listen(t.Context(), away, http.NotFoundHandler(), nil); err == nil {
		t.Error("listens on an engine that is not there")
	}
}

// TestGone ends a server without a word while it has a call.
func TestGone(t *testing.T) {
	t.Parallel()
	url := engine(t)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	// It takes the request, answers the beginning, and is gone: its inbox has no subscriber.
	taken := make(chan struct{})
	_, err = nc.Subscribe("gone.test", func(r *nats.Msg) {
		answer := nats.NewMsg(r.Reply)
		answer.Reply = nats.NewInbox()
		answer.Header.Set("Rpc-Piece", "0")
		if err := r.RespondMsg(answer); err != nil {
			t.Error(err)
		}
		close(taken)
	})
	if err := errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	tr := &natsrpc.Transport{AskEvery: 50 * time.Millisecond}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	r, err := c.Post(url+"/gone.test", "application/json", strings.NewReader("{}"))
	if err == nil {
		r.Body.Close()
	}
	if <-taken; err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Error(err)
	}
}

// TestLostPiece is an answer with a gap, and one that does not keep to the window.
func TestLostPiece(t *testing.T) {
	t.Parallel()
	url := engine(t)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for subject, pieces := range map[string][]int{
		"gap.test": {0, 1, 3}, "again.test": {0, 1, 1}, "first.test": {1},
	} {
		_, err := nc.Subscribe(subject, func(r *nats.Msg) {
			for _, n := range pieces {
				piece := nats.NewMsg(r.Reply)
				piece.Header.Set("Rpc-Piece", fmt.Sprint(n))
				piece.Header.Set("Rpc-Status", "200")
				piece.Header.Set("Content-Type", "application/json")
				piece.Data = []byte(" ")
				if err := nc.PublishMsg(piece); err != nil {
					t.Error(err)
				}
			}
		})
		if err := errors.Join(err, nc.Flush()); err != nil {
			t.Fatal(err)
		}
		err = client(t, url+"/"+subject).Call(t.Context(), "echo", nil, nil)
		if err == nil || !strings.Contains(err.Error(), "was lost") {
			t.Error(subject, err)
		}
	}
}

// TestOtherClients is what clients see that know NATS and JSON-RPC only.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	url, m := engine(t), newMethods()
	listen(t, url+"/plain.test", m.handler(), &natsrpc.Options{Name: "math"})
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for request, want := range map[string]string{
		`"id":1,"method":"echo","params":[1]}`: `{"jsonrpc":"2.0","result":[1],"id":1}`,
		`"id":"a","method":"fail"}`:            `"error":{"code":7,"message":"seven"},"id":"a"}`,
		`"method":"echo","params":[1]}`:        ``,
		`{`:                                    `"code":-32700`,
		`"id":5,"method":"repeat","params":{"n":2000000}}`: `"error":{"code":-32012`,
	} {
		text := []byte(`{"jsonrpc":"2.0",` + request)
		answer, err := nc.RequestWithContext(t.Context(), "plain.test", text)
		if err != nil {
			t.Fatal(request, err)
		}
		if got := string(answer.Data); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %s", request, got)
		}
	}
	// A message that nothing shall answer.
	err = nc.Publish("plain.test", []byte(`{"jsonrpc":"2.0","id":1,"method":"echo"}`))
	if err != nil {
		t.Fatal(err)
	}
	// It is found by the protocol of services.
	for verb, want := range map[string]string{
		"PING": `"name":"math"`, "INFO": `"subject":"plain.test"`, "STATS": `"num_requests":`,
	} {
		answer, err := nc.RequestWithContext(t.Context(), "$SRV."+verb+".math", nil)
		if err != nil || !strings.Contains(string(answer.Data), want) {
			t.Errorf("%s: %s, %v", verb, answer.Data, err)
		}
	}
	// A path and a method that HTTP does not have.
	for name, value := range map[string]string{"Rpc-Path": "no slash", "Rpc-Method": "NO METHOD"} {
		r := nats.NewMsg("plain.test")
		r.Header.Set(name, value)
		answer, err := nc.RequestMsgWithContext(t.Context(), r)
		if err != nil || answer.Header.Get("Nats-Service-Error-Code") != "400" {
			t.Errorf("%s: %v, %v", name, answer, err)
		}
	}
}

// TestGroup has two servers share what comes, and one of them stop.
func TestGroup(t *testing.T) {
	t.Parallel()
	at := engine(t) + "/group.test"
	var by [2]atomic.Int32
	var servers [2]*natsrpc.Server
	for i := range servers {
		mux := farcall.NewMux()
		farcall.Handle(mux, "who", func(context.Context, struct{}) (int, error) {
			by[i].Add(1)
			return i, nil
		})
		servers[i] = listen(t, at, httprpc.NewHandler(mux, nil), nil)
	}
	c := client(t, at)
	for range 100 {
		if err := c.Call(t.Context(), "who", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := by[0].Load(), by[1].Load(); a+b != 100 || a == 0 || b == 0 {
		t.Error("calls of the two servers:", a, b)
	}
	if err := servers[0].Close(t.Context()); err != nil {
		t.Error(err)
	}
	for range 20 {
		if who, err := farcall.Call[int](t.Context(), c, "who", nil); err != nil || who != 1 {
			t.Fatal(who, err)
		}
	}
}

// TestSlowReader has a server send no more than a window ahead.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	at := engine(t) + "/slow.test"
	const size = 20 << 20
	var sent atomic.Int64
	stalled := make(chan struct{}, 1)
	listen(t, at, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for b := make([]byte, 32<<10); sent.Load() < size; {
			timer := time.AfterFunc(500*time.Millisecond, func() { stalled <- struct{}{} })
			n, err := w.Write(b)
			timer.Stop()
			if sent.Add(int64(n)); err != nil {
				t.Error(err)
				return
			}
		}
	}), nil)
	r, err := transport(t).Get(at)
	if err != nil {
		t.Fatal(err)
	}
	<-stalled
	if n := sent.Load(); n > 2<<20 {
		t.Errorf("%d bytes were sent, and none was read", n)
	}
	if n, err := io.Copy(io.Discard, r.Body); n != size || err != nil {
		t.Error(n, err)
	}
	r.Body.Close()
	// One that reads no further ends the handler.
	sent.Store(0)
	ended := make(chan error, 1)
	listen(t, at+".more", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		for b := make([]byte, 32<<10); err == nil; {
			_, err = w.Write(b)
		}
		ended <- err
	}), nil)
	if r, err = transport(t).Get(at + ".more"); err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestClose lets calls finish, or cuts them off, and refuses others.
func TestClose(t *testing.T) {
	t.Parallel()
	at, m := engine(t)+"/close.test", newMethods()
	s, err := natsrpc.Listen(t.Context(), at, m.handler(),
		&natsrpc.Options{Logger: quiet, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, at)
	done := make(chan error, 1)
	go func() { done <- c.Call(t.Context(), "wait", nil, nil) }()
	<-m.began
	err = c.Call(t.Context(), "echo", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "503") {
		t.Error("one call too many:", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-m.ended
	if err := <-done; err == nil {
		t.Error("a call that was cut off succeeds")
	}
}

// TestBudget has large requests and answers draw from a budget, and give back what they drew.
func TestBudget(t *testing.T) {
	t.Parallel()
	at, m, b := engine(t), newMethods(), farcall.NewBudget(64<<20, 1<<20)
	s := listen(t, at+"/budget.test", m.handler(), &natsrpc.Options{Budget: b})
	nc, err := nats.Connect(at)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ask := func(method string, n int) string {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"n":%d,"x":%q}}`,
			method, n, strings.Repeat("x", n))
		if method == "repeat" {
			text = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"repeat","params":{"n":%d}}`, n)
		}
		answer, err := nc.RequestWithContext(t.Context(), "budget.test", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return answer.Header.Get("Rpc-Status")
	}
	for range 20 { // what was drawn comes back
		if a, b := ask("echo", 100_000), ask("repeat", 100_000); a != "200" || b != "200" {
			t.Error(a, b)
		}
	}
	if a, b := ask("echo", 800_000), ask("repeat", 800_000); a != "503" || b != "503" {
		t.Error(a, b)
	}
	if err := client(t, at+"/budget.test").Call(t.Context(), "echo", nil, nil); err != nil {
		t.Error(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if used, _ := b.Used(); used != 0 {
		t.Error(used, "bytes are held")
	}
}

// TestCallersHaveShares has one caller fill the places of a server: another one still calls.
func TestCallersHaveShares(t *testing.T) {
	t.Parallel()
	at, m := engine(t)+"/shares.test", newMethods()
	m.began, m.ended = make(chan struct{}, 99), make(chan struct{}, 99)
	listen(t, at, m.handler(), &natsrpc.Options{MaxInFlight: 32})
	ctx, cancel := context.WithCancel(t.Context())
	flood, refused := client(t, at), make(chan error, 64)
	for range 64 {
		go func() { refused <- flood.Call(ctx, "wait", nil, nil) }()
	}
	began := 0
	for range 64 {
		select {
		case <-m.began:
			began++
		case err := <-refused:
			if err == nil || !strings.Contains(err.Error(), "503") {
				t.Error(err)
			}
		}
	}
	if began < 16 || began > 28 {
		t.Error(began, "of 32 places are one caller's")
	}
	for range 4 {
		if err := client(t, at).Call(t.Context(), "echo", nil, nil); err != nil {
			t.Error("another caller:", err)
		}
	}
	cancel()
	for range began {
		<-refused
		<-m.ended
	}
}

// TestEngineCredentials keeps the user of the URL from the subject: it is for the engine.
func TestEngineCredentials(t *testing.T) {
	t.Parallel()
	at := engine(t)
	seen := make(chan http.Header, 2)
	listen(t, at+"/user.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
	}), nil)
	with := strings.Replace(at, "nats://", "nats://user:secret@", 1) + "/user.test"
	for _, header := range []string{"", "Bearer own"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, with, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		answer, err := transport(t).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if got := (<-seen).Get("Authorization"); got != header {
			t.Errorf("the service gets %q, want %q", got, header)
		}
	}
}

// TestEndedFromOutside ends the calls of callers that are not there any more, and answers that a
// guard ends by a deadline in the past.
func TestEndedFromOutside(t *testing.T) {
	t.Parallel()
	at, ended := engine(t), make(chan error, 1)
	listen(t, at+"/gone.test", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		ended <- r.Context().Err()
	}), nil)
	nc, err := nats.Connect(at)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	m := nats.NewMsg("gone.test")
	m.Reply = nc.NewInbox() // to which it has not subscribed
	m.Header.Set("Rpc-Stream", "1")
	if err := nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	listen(t, at+"/deadline.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}), nil)
	for _, stream := range []string{"", "1"} {
		m := nats.NewMsg("deadline.test")
		m.Header.Set("Rpc-Stream", stream)
		answer, err := nc.RequestMsgWithContext(t.Context(), m)
		if err != nil || answer.Header.Get("Rpc-Status") != "500" {
			t.Error(answer, err)
		}
	}
}
