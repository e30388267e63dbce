package httprpc_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/http1/http1test"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestDialRefusesAddress(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:80", "ws://x/", "http://", "http://[::1", "/rpc"} {
		if _, err := httprpc.Dial(address, nil); err == nil {
			t.Errorf("%q was accepted", address)
		}
	}
}

func TestCall(t *testing.T) {
	url := serve(t, httprpc.NewHandler(service(t), nil))
	c := client(t, url, nil, nil)
	sum, err := farcall.Call[float64](t.Context(), c, "add", addParams{2, 3})
	if err != nil || sum != 5 {
		t.Error(sum, err)
	}
	var wire *jsonrpc.Error
	if err := c.Call(t.Context(), "fail", nil, nil); !errors.As(err, &wire) || wire.Code != -32001 ||
		string(wire.Data) != `{"a":1}` {
		t.Error(err)
	}
	if err := c.Notify(t.Context(), "add", addParams{}); err != nil {
		t.Error(err)
	}
	a, b := &farcall.BatchCall{Method: "add", Params: addParams{1, 2}},
		&farcall.BatchCall{Method: "nope"}
	if err := c.Batch(t.Context(), a, b); err != nil || a.Err != nil ||
		!errors.Is(b.Err, jsonrpc.MethodNotFound) {
		t.Error(err, a.Err, b.Err)
	}
	var got []int
	for v, err := range farcall.Stream[int](t.Context(), c, "count", map[string]int{"to": 4}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	if len(got) != 4 {
		t.Error(got)
	}
	var large string
	if err := c.Call(t.Context(), "large", nil, &large); err != nil || len(large) != 3<<20 {
		t.Error(len(large), err)
	}
}

func TestTraceTravelsInTheHeader(t *testing.T) {
	url := serve(t, httprpc.NewHandler(service(t), nil))
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	got, err := farcall.Call[string](farcall.WithTrace(t.Context(), farcall.Trace{Parent: trace}),
		client(t, url, nil, nil), "trace", nil)
	if err != nil || got != trace {
		t.Error(got, err)
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(httprpc.NewHandler(service(t), nil))
	defer s.Close()
	c := client(t, s.URL, nil, &httprpc.Options{Client: s.Client()})
	if sum, err := farcall.Call[float64](t.Context(), c, "add", addParams{2, 3}); err != nil ||
		sum != 5 {
		t.Error(sum, err)
	}
	// Who does not know the certificate does not connect.
	if err := client(t, s.URL, nil, nil).Call(t.Context(), "add", nil, nil); !errors.Is(err,
		httprpc.ErrConnect) {
		t.Error(err)
	}
}

// foreign answers every request with a fixed response.
func foreign(t *testing.T, status int, contentType, body string) string {
	t.Helper()
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if w.Header()["Content-Type"] = nil; contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
}

func TestForeignAnswers(t *testing.T) {
	const five = `{"jsonrpc":"2.0","result":5,"id":1}`
	const refused = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"no"},"id":null}`
	ok := func(err error) bool { return err == nil }
	is := func(target error) func(error) bool {
		return func(err error) bool { return errors.Is(err, target) }
	}
	for _, c := range []struct {
		name              string
		status            int
		contentType, body string
		check             func(error) bool
	}{
		{"plain", 200, "application/json", five, ok},
		{"indented, with a charset", 200, "application/json; charset=utf-8", "\n " + five + "\n", ok},
		{"no content type", 200, "", five, ok},
		{"201", 201, "application/json", five, ok},
		{"error status with an answer", 500, "application/json", five, ok},
		{"error status with an error", 400, "application/json", refused, is(jsonrpc.Code(-32000))},
		{
			"error status with other JSON", 404, "application/json", `{"detail":"Not Found"}`,
			is(farcall.ErrProtocol),
		},
		{"error status with a page", 404, "text/html", "<html>", is(farcall.ErrProtocol)},
		{"proxy without a server", 502, "text/html", "<html>", is(httprpc.ErrConnect)},
		{"page", 200, "text/html", "<html>", is(farcall.ErrProtocol)},
		{"JSON as text", 200, "text/plain; charset=utf-8", five, ok},
		{"JSON of another type", 200, "application/vnd.api+json", five, ok},
		{"JSON of another name", 200, "text/json", five, ok},
		{"text", 200, "text/plain", "Hello", is(farcall.ErrProtocol)},
		{"null error", 200, "application/json", `{"result":5,"error":null,"id":1}`, ok},
		{"broken JSON", 200, "application/json", "{]}", is(farcall.ErrProtocol)},
		{"JSON cut off", 200, "application/json", five[:10], is(httprpc.ErrConnect)},
		{"nothing", 200, "application/json", "", is(farcall.ErrProtocol)},
		{"202", 202, "", "", is(farcall.ErrProtocol)},
		{
			"other id", 200, "application/json", `{"jsonrpc":"2.0","result":5,"id":2}`,
			is(farcall.ErrProtocol),
		},
		{
			"events", 200, "text/event-stream; charset=utf-8",
			": hi\r\n\r\nevent: ping\r\ndata: x\r\n\r\ndata:\r\n\r\nevent: message\r\ndata: " + five +
				"\r\n\r\n", ok,
		},
		{
			"events, indented", 200, "text/event-stream",
			"data: {\"jsonrpc\":\"2.0\",\ndata: \"result\":5,\"id\":1}\n\ndata: [DONE]\n\n", ok,
		},
		{
			"events without the answer", 200, "text/event-stream", "data: [DONE]\n\n",
			is(farcall.ErrProtocol),
		},
		{"event that is no JSON", 200, "text/event-stream", "data: x\n\n", is(farcall.ErrProtocol)},
		{
			"large", 200, "application/json",
			`{"jsonrpc":"2.0","result":"` + strings.Repeat("x", 5000) + `","id":1}`,
			is(farcall.ErrProtocol),
		},
		{
			"large event", 200, "text/event-stream", "data: " + strings.Repeat("x", 3000),
			is(farcall.ErrProtocol),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := client(t, foreign(t, c.status, c.contentType, c.body), nil,
				&httprpc.Options{MaxMessage: 4000, MaxEvent: 2000})
			if err := x.Call(t.Context(), "x", nil, nil); !c.check(err) {
				t.Error(err)
			} else if err != nil {
				t.Log(err)
			}
		})
	}
}

// Who waits for no answer learns of a refusal all the same.
func TestNotificationRefused(t *testing.T) {
	url := foreign(t, 401, "application/json",
		`{"jsonrpc":"2.0","error":{"code":-32000,"message":"no"},"id":null}`)
	var status *httprpc.StatusError
	if err := client(t, url, nil, nil).Notify(t.Context(), "x", nil); !errors.As(err, &status) ||
		status.Code != 401 {
		t.Error(err)
	}
}

// The text of a status says what came and guesses nothing.
func TestStatusText(t *testing.T) {
	const challenge = `Bearer realm="x"`
	for _, c := range []struct {
		status    int
		challenge string
		want      string
	}{
		{401, "", `HTTP status 401 Unauthorized: "no"`},
		{
			401, challenge,
			`HTTP status 401 Unauthorized (the server wants credentials: "Bearer realm=\"x\""): "no"`,
		},
		{403, challenge, `HTTP status 403 Forbidden: "no"`},
		{404, "", `HTTP status 404 Not Found: "no"`},
		{405, "", `HTTP status 405 Method Not Allowed: "no"`},
	} {
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.challenge != "" {
				w.Header().Set("WWW-Authenticate", c.challenge)
			}
			http.Error(w, "no", c.status)
		}))
		var status *httprpc.StatusError
		if err := client(t, url, nil, nil).Call(t.Context(), "x", nil, nil); !errors.As(err, &status) ||
			status.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestGzip(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, `{"jsonrpc":"2.0","result":"`+strings.Repeat("x", 100_000)+`","id":1}`)
		z.Close()
	}))
	got, err := farcall.Call[string](t.Context(), client(t, url, nil, nil), "x", nil)
	if err != nil || len(got) != 100_000 {
		t.Error(len(got), err)
	}
	// The limit is on what comes out.
	if err := client(t, url, nil, &httprpc.Options{MaxMessage: 50_000}).Call(t.Context(), "x", nil,
		nil); !errors.Is(err, farcall.ErrProtocol) {
		t.Error(err)
	}
}

func TestUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	for _, url := range []string{"http://" + address, "http://does-not-exist.invalid/"} {
		if err := client(t, url, nil, nil).Call(t.Context(), "x", nil, nil); !errors.Is(err,
			httprpc.ErrConnect) {
			t.Error(err)
		}
	}
}

// rawServer answers each connection with fixed bytes and closes it.
func rawServer(t *testing.T, answer string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				io.Copy(io.Discard, r.Body) // what is left unread would reset the connection
				io.WriteString(conn, answer)
			}
			conn.Close()
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return "http://" + ln.Addr().String()
}

func TestBrokenServers(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		want         error
	}{
		{"not HTTP", "{\"jsonrpc\":\"2.0\"}\n", farcall.ErrProtocol},
		{"hangs up", "", httprpc.ErrConnect},
		{
			"hangs up in the answer",
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
			httprpc.ErrConnect,
		},
		{
			"hangs up in the events",
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
				"5\r\ndata:\r\n", httprpc.ErrConnect,
		},
	} {
		if err := client(t, rawServer(t, c.answer), nil, nil).Call(t.Context(), "x", nil,
			nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := client(t, url, nil, nil).Call(ctx, "x", nil, nil); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
	own := &httprpc.Options{
		Client: &http.Client{
			Timeout:   20 * time.Millisecond,
			Transport: &http.Transport{DisableKeepAlives: true},
		},
	}
	if err := client(t, url, nil, own).Call(t.Context(), "x", nil, nil); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	arrived := make(chan struct{})
	url := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
	}))
	x := dial(t, url, nil)
	failed := make(chan error)
	go func() {
		failed <- x.Exchange(context.Background(), []byte("{}"), func([]byte) error { return nil })
	}()
	<-arrived
	x.Close()
	if err := <-failed; !errors.Is(err, farcall.ErrClosed) {
		t.Error(err)
	}
	if err := x.Exchange(t.Context(), nil, nil); !errors.Is(err, farcall.ErrClosed) {
		t.Error(err)
	}
}

func TestRedirects(t *testing.T) {
	good := httprpc.NewHandler(service(t), nil)
	other := serve(t, good)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/rpc":
			good.ServeHTTP(w, r)
		case "/same":
			http.Redirect(w, r, "/rpc", http.StatusPermanentRedirect)
		case "/get":
			http.Redirect(w, r, "/rpc", http.StatusFound)
		case "/other":
			http.Redirect(w, r, other, http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		}
	}))
	for path, want := range map[string]error{
		"/rpc": nil, "/same": nil, "/get": farcall.ErrProtocol,
		"/other": farcall.ErrProtocol, "/loop": farcall.ErrProtocol,
	} {
		if err := client(t, url+path, nil, nil).Call(t.Context(), "add", addParams{2, 3},
			nil); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestHeadersAndUserInfo(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","result":"%s %s %s","id":1}`, r.Header.Get("X-Key"),
			user, r.Host)
	}))
	c := client(t, strings.Replace(url, "://", "://me:pw@", 1), nil,
		&httprpc.Options{Header: http.Header{"X-Key": {"k"}, "Host": {"h.example"}}})
	if got, err := farcall.Call[string](t.Context(), c, "x", nil); err != nil ||
		got != "k me h.example" {
		t.Error(got, err)
	}
}

// A frame is lent for the exchange only: when the answer comes early, nothing
// reads the frame any more.
func TestFrameIsNotReadLater(t *testing.T) {
	t.Parallel()
	s := http1test.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		io.WriteString(w,
			`{"jsonrpc":"2.0","error":{"code":-32012,"message":"Request too large","data":{"maxSize":1000,`+
				`"unit":"bytes"}},"id":null}`)
	}))
	defer s.Close()
	x := dial(t, s.URL, nil)
	for range 20 {
		frame := make([]byte, 4<<20)
		if err := x.Exchange(t.Context(), frame, func([]byte) error { return nil }); err == nil {
			t.Error("no error")
		}
		clear(frame) // a reader would be a race
	}
}

func TestConcurrentCalls(t *testing.T) {
	c := client(t, serve(t, httprpc.NewHandler(service(t), nil)), nil, nil)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for n := range 50 {
				got, err := farcall.Call[float64](t.Context(), c, "add", addParams{float64(i), float64(n)})
				if err != nil || got != float64(i+n) {
					t.Error(got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// What is read although it is not as it should be is refused on request.
func TestStrictAnswers(t *testing.T) {
	const five = `{"jsonrpc":"2.0","result":5,"id":1}`
	for _, test := range []struct{ contentType, body string }{
		{"text/plain", five},
		{"text/json", five},
		{"application/vnd.api+json", five},
		{"application/json", `{"result":5,"id":1}`},
		{"application/json", `{"jsonrpc":"2.0","result":5,"error":null,"id":1}`},
	} {
		url := foreign(t, 200, test.contentType, test.body)
		x := farcall.NewClient(dial(t, url, &httprpc.Options{StrictAnswers: true}), nil,
			&farcall.Options{StrictAnswers: true})
		defer x.Close()
		if err := x.Call(t.Context(), "x", nil, nil); !errors.Is(err, farcall.ErrProtocol) {
			t.Errorf("%s %s: %v", test.contentType, test.body, err)
		}
		if n, err := farcall.Call[int](t.Context(), client(t, url, nil, nil), "x", nil); n != 5 ||
			err != nil {
			t.Errorf("%s %s by default: %d, %v", test.contentType, test.body, n, err)
		}
	}
}

// A notification with a context that ends while its answer comes harms none that follows over the
// same connection.
func TestEndedContextHarmsNoOther(t *testing.T) {
	web := http1test.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer web.Close()
	c, err := httprpc.Dial(web.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	notice := []byte(`{"jsonrpc":"2.0","method":"changed"}`)
	send := func(ctx context.Context) error {
		return c.Exchange(ctx, notice, func([]byte) error { return nil })
	}
	began := time.Now()
	for range 20 {
		if err := send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	usual := time.Since(began) / 20
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(4*usual))))
				_ = send(ctx)
				cancel()
			}
		})
		wg.Go(func() {
			for range 1000 {
				if err := send(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestOneWrite: a call of usual size is one write. The server answers what has come with the head,
// and closes the connection.
func TestOneWrite(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			request := make([]byte, 64<<10)
			n, _ := conn.Read(request)
			if _, body, _ := bytes.Cut(request[:n], []byte("\r\n\r\n")); len(body) == 0 {
				t.Error("the head came alone")
			}
			fmt.Fprint(conn, "\x15\x03\x01\x00\x02\x02\x46")
			_ = conn.Close()
		}
	}()
	for range 50 {
		err := client(t, "http://"+l.Addr().String(), nil, nil).Call(t.Context(), "x", []int{1}, nil)
		if err == nil || !strings.Contains(err.Error(), "malformed HTTP response") {
			t.Fatal(err)
		}
	}
}
