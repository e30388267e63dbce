package httprpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/http1/http1test"
)

const (
	jsonCT    = "Content-Type: application/json"
	acceptSSE = "Accept: application/json, text/event-stream"
)

func TestPost(t *testing.T) {
	url := serve(t, httprpc.NewHandler(service(t), nil))
	call := `{"jsonrpc":"2.0","method":"add","params":[2,3],"id":1}`
	five := `{"jsonrpc":"2.0","result":5,"id":1}`
	for _, c := range []struct {
		name, body, header string
		status             int
		want               string
	}{
		{"call", call, jsonCT, 200, five},
		{"charset", call, "Content-Type: application/json; charset=UTF-8", 200, five},
		{"json-rpc", call, "Content-Type: application/json-rpc", 200, five},
		{"jsonrequest", call, "Content-Type: Application/JSONRequest", 200, five},
		{
			"id kept", `{"jsonrpc":"2.0","method":"add","params":[2,3],"id":1.0}`, jsonCT, 200,
			`{"jsonrpc":"2.0","result":5,"id":1.0}`,
		},
		{
			"error", `{"jsonrpc":"2.0","method":"fail","id":"x"}`, jsonCT, 200,
			`{"jsonrpc":"2.0","error":{"code":-32001,"message":"no","data":{"a":1}},"id":"x"}`,
		},
		{
			"parse error", `{"jsonrpc`, jsonCT, 200,
			`{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error","data":{"reason":"unexpected ` +
				`end at offset 9"}},"id":null}`,
		},
		{
			"empty", ``, jsonCT, 200,
			`{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error","data":{"reason":"unexpected ` +
				`end at offset 0"}},"id":null}`,
		},
		{
			"invalid", `{"jsonrpc":"2.0","method":1}`, jsonCT, 200,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request","data":{"reason":"the ` +
				`method must be a string at offset 26"}},"id":null}`,
		},
		{
			"unknown method", `{"jsonrpc":"2.0","method":"x","id":1}`, jsonCT, 200,
			`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}`,
		},
		{"notification", `{"jsonrpc":"2.0","method":"add","params":[2,3]}`, jsonCT, 204, ``},
		{
			"batch", `[` + call + `,{"jsonrpc":"2.0","method":"add"},1]`, jsonCT, 200,
			`[` + five +
				`,{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request","data":{"reason":"a ` +
				`message must be an object at offset 89"}},"id":null}]`,
		},
		{"batch of notifications", `[{"jsonrpc":"2.0","method":"add"}]`, jsonCT, 204, ``},
		{
			"empty batch", `[]`, jsonCT, 200,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request","data":{"reason":"the ` +
				`batch is empty at offset 0"}},"id":null}`,
		},
		{
			"no content type", call, "X: y", 415,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Content-Type must be application/json, ` +
				`charset utf-8"},"id":null}`,
		},
		{
			"text", call, "Content-Type: text/plain", 415,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Content-Type must be application/json, ` +
				`charset utf-8"},"id":null}`,
		},
		{
			"latin-1", call, "Content-Type: application/json; charset=latin1", 415,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Content-Type must be application/json, ` +
				`charset utf-8"},"id":null}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, header, got := request(t, "POST", url, c.body, c.header)
			if status != c.status || got != c.want {
				t.Errorf("%d %s\nwant %d %s", status, got, c.status, c.want)
			}
			if ct := header.Get("Content-Type"); c.want != "" && ct != "application/json" {
				t.Errorf("Content-Type %q", ct)
			}
			if c.want != "" && header.Get("Content-Length") != strconv.Itoa(len(c.want)) {
				t.Errorf("Content-Length %q", header.Get("Content-Length"))
			}
		})
	}
}

func TestLargeAnswerHasLength(t *testing.T) {
	url := serve(t, httprpc.NewHandler(service(t), nil))
	_, header, got := request(t, "POST", url, `{"jsonrpc":"2.0","method":"large","id":1}`, jsonCT)
	if len(got) < 3<<20 || header.Get("Content-Length") != strconv.Itoa(len(got)) {
		t.Errorf("%d bytes, Content-Length %q", len(got), header.Get("Content-Length"))
	}
}

func TestMethods(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/rpc", httprpc.NewHandler(service(t), nil))
	mux.Handle("/stream", httprpc.NewStreamHandler(service(t), nil))
	url := serve(t, mux)
	for _, c := range []struct{ method, path, allow, want string }{
		{"GET", "/rpc", "POST, OPTIONS", "Method not allowed: use POST"},
		{"PUT", "/rpc", "POST, OPTIONS", "Method not allowed: use POST"},
		{"POST", "/stream", "GET, OPTIONS", "Method not allowed: use GET"},
	} {
		status, header, got := request(t, c.method, url+c.path, "", jsonCT)
		want := `{"jsonrpc":"2.0","error":{"code":-32600,"message":"` + c.want + `"},"id":null}`
		if status != 405 || header.Get("Allow") != c.allow || got != want ||
			header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %v %s", c.method, c.path, status, header, got)
		}
	}
	if status, header, _ := request(t, "OPTIONS", url+"/rpc", ""); status != 204 ||
		header.Get("Allow") != "POST, OPTIONS" {
		t.Errorf("OPTIONS: %d %v", status, header)
	}
}

func TestTooLarge(t *testing.T) {
	url := serve(t, httprpc.NewHandler(service(t), &httprpc.Options{MaxMessage: 1000}))
	want := `{"jsonrpc":"2.0","error":{"code":-32012,"message":"Request too large",` +
		`"data":{"maxSize":1000,"unit":"bytes"}},"id":null}`
	fits := `{"jsonrpc":"2.0","method":"echo","id":1,"params":["` +
		strings.Repeat("x", 1000-54) + `"]}`
	for name, c := range map[string]struct {
		body   io.Reader
		status int
	}{
		"fits":                     {strings.NewReader(fits), 200},
		"fits, of unknown length":  {io.MultiReader(strings.NewReader(fits)), 200},
		"one more":                 {strings.NewReader(fits + " "), 413},
		"one more, unknown length": {io.MultiReader(strings.NewReader(fits + " ")), 413},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, c.body)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(name, err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || c.status == 413 && string(got) != want {
			t.Errorf("%s: %d %s", name, resp.StatusCode, got)
		}
	}
}

// What is declared costs nothing before it is sent, and is refused before it is
// sent.
func TestTooLargeIsRefusedUnread(t *testing.T) {
	t.Parallel()
	url := serve(t, httprpc.NewHandler(service(t), nil))
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn,
		"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Content-Length: 52428801\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Error(resp.Status)
	}
}

func TestOrigins(t *testing.T) {
	call := `{"jsonrpc":"2.0","method":"add","params":[2,3],"id":1}`
	closed := serve(t, httprpc.NewHandler(service(t), nil))
	open := serve(t, httprpc.NewHandler(service(t),
		&httprpc.Options{Origins: []string{"https://app.example"}, Hosts: []string{"rpc.example"}}))
	stream := serve(t, httprpc.NewStreamHandler(service(t), nil))
	const app = "Origin: https://app.example"
	for _, c := range []struct {
		name, method, url string
		headers           []string
		status            int
		allow             string
	}{
		{"same host", "POST", closed, []string{"Origin: " + closed}, 200, ""},
		{"foreign", "POST", closed, []string{app}, 403, ""},
		{"rebound", "POST", closed, []string{"Host: rpc.example", "Origin: http://rpc.example"}, 403, ""},
		{
			"listed host", "POST", open,
			[]string{"Host: rpc.example", "Origin: http://rpc.example"},
			200,
			"",
		},
		{"listed", "POST", open, []string{app}, 200, "https://app.example"},
		{"not listed", "POST", open, []string{"Origin: https://b.example"}, 403, ""},
		{
			"preflight", "OPTIONS", open,
			[]string{
				app, "Access-Control-Request-Method: POST",
				"Access-Control-Request-Headers: content-type",
			},
			204, "https://app.example",
		},
		{
			"foreign preflight", "OPTIONS", closed,
			[]string{app, "Access-Control-Request-Method: POST"},
			403, "",
		},
		{
			"image of another page", "GET", stream + "?method=add",
			[]string{"Sec-Fetch-Site: cross-site"},
			403, "",
		},
		{"foreign stream", "GET", stream + "?method=add", []string{app}, 403, ""},
	} {
		status, header, body := request(t, c.method, c.url, call, append(c.headers, jsonCT)...)
		if status != c.status || header.Get("Access-Control-Allow-Origin") != c.allow {
			t.Errorf("%s: %d %v %s", c.name, status, header, body)
		}
		if status == 403 && (header.Get("Content-Type") != "application/json" ||
			!strings.HasPrefix(body, `{"jsonrpc":"2.0","error":{"code":-32600`)) {
			t.Errorf("%s: refused with %s", c.name, body)
		}
		if c.name == "preflight" && (header.Get("Access-Control-Allow-Headers") != "content-type" ||
			header.Get("Access-Control-Allow-Methods") != "POST, OPTIONS") {
			t.Errorf("preflight: %v", header)
		}
	}
}

func TestEventsOnlyWhenNeededAndAccepted(t *testing.T) {
	url := serve(t, httprpc.NewHandler(service(t), nil))
	push := `{"jsonrpc":"2.0","method":"push","id":1}`
	for _, c := range []struct {
		name, body, accept, contentType, want string
	}{
		{
			"nothing pushed", `{"jsonrpc":"2.0","method":"add","params":[2,3],"id":1}`, acceptSSE,
			"application/json", `{"jsonrpc":"2.0","result":5,"id":1}`,
		},
		{
			"pushed", push, acceptSSE, "text/event-stream",
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"tick\",\"params\":{\"n\":1}}\n\n" +
				"data: {\"jsonrpc\":\"2.0\",\"result\":\"done\",\"id\":1}\n\n",
		},
		{
			"pushed without an answer", `{"jsonrpc":"2.0","method":"push"}`, acceptSSE, "text/event-stream",
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"tick\",\"params\":{\"n\":1}}\n\n",
		},
		{
			"progress", `{"jsonrpc":"2.0","method":"count","params":{"to":2},"progressToken":"t","id":1}`,
			acceptSSE, "text/event-stream",
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"$/progress\",\"params\":{\"token\":\"t\"," +
				"\"value\":0}}\n\n" +
				"data: {\"jsonrpc\":\"2.0\",\"method\":\"$/progress\",\"params\":{\"token\":\"t\"," +
				"\"value\":1}}\n\n" +
				"data: {\"jsonrpc\":\"2.0\",\"result\":null,\"id\":1}\n\n",
		},
		{
			"stream collected", `{"jsonrpc":"2.0","method":"count","params":{"to":2},"id":1}`, acceptSSE,
			"application/json", `{"jsonrpc":"2.0","result":[0,1],"id":1}`,
		},
	} {
		_, header, got := request(t, "POST", url, c.body, jsonCT, c.accept)
		if header.Get("Content-Type") != c.contentType || got != c.want {
			t.Errorf("%s: %s\n%s", c.name, header.Get("Content-Type"), got)
		}
	}
	for _, accept := range []string{
		"Accept: application/json",
		"Accept: application/json, text/event-stream;q=0", "Accept: text/event-stream;q=0.000",
		"Accept: */*",
	} {
		_, header, got := request(t, "POST", url, push, jsonCT, accept)
		if header.Get("Content-Type") != "application/json" ||
			!strings.Contains(got, "cannot call the caller back") {
			t.Errorf("%s: %s", accept, got)
		}
	}
	if _, header, _ := request(t, "POST", url, push, jsonCT,
		"Accept: text/event-stream;q=0.5"); header.Get("Content-Type") != "text/event-stream" {
		t.Error("text/event-stream;q=0.5 was not accepted")
	}
}

// Each event arrives before the next one is made.
func TestEventsAreFlushed(t *testing.T) {
	next := make(chan struct{})
	h := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		for range 3 {
			if err := farcall.CallerFrom(ctx).Notify(ctx, "tick", nil); err != nil {
				return nil, err
			}
			<-next
		}
		return nil, nil
	})
	url := serve(t, httprpc.NewHandler(h, nil))
	got := 0
	c := client(t, url, farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		got++
		next <- struct{}{}
		return nil, nil
	}), nil)
	if err := c.Call(t.Context(), "x", nil, nil); err != nil || got != 3 {
		t.Error(got, err)
	}
}

func TestClosedConnectionCancels(t *testing.T) {
	started, ended := make(chan struct{}), make(chan error, 1)
	h := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		close(started)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	c := client(t, serve(t, httprpc.NewHandler(h, nil)), nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	if err := c.Call(ctx, "x", nil, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestKeepAlive(t *testing.T) {
	release := make(chan struct{})
	h := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		err := farcall.CallerFrom(ctx).Notify(ctx, "tick", nil)
		<-release
		return nil, err
	})
	url := serve(t, httprpc.NewHandler(h, &httprpc.Options{KeepAlive: time.Millisecond}))
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
		strings.NewReader(`{"jsonrpc":"2.0","method":"x","id":1}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	comments, answered := 0, false
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, ":"):
			if comments++; comments == 3 {
				close(release)
			}
		case strings.Contains(line, "result"):
			answered = true
		}
	}
	if comments < 3 || !answered {
		t.Errorf("%d comments, answered: %v", comments, answered)
	}
}

// A caller that stops reading an event stream does not hold the handler for
// ever: writing fails. Here the other end goes away.
func TestEventsToNobody(t *testing.T) {
	ended := make(chan error, 1)
	h := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		var err error
		for err == nil {
			err = farcall.CallerFrom(ctx).Notify(ctx, "tick", []string{strings.Repeat("x", 1<<16)})
		}
		ended <- err
		return nil, err
	})
	s := http1test.NewServer(httprpc.NewHandler(h, nil))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body := `{"jsonrpc":"2.0","method":"x","id":1}`
	fmt.Fprintf(conn,
		"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Accept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if _, err := conn.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := <-ended; err == nil {
		t.Error("no error")
	}
}

// The write deadline of an event stream must not outlive it on its connection.
func TestConnectionIsReusedAfterEvents(t *testing.T) {
	conns := 0
	s := httptest.NewUnstartedServer(httprpc.NewHandler(service(t), nil))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns++
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c := client(t, s.URL, farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, nil
	}), nil)
	for _, method := range []string{"push", "echo", "push", "large", "fail", "echo"} {
		if err := c.Call(t.Context(), method, nil, nil); err != nil && method != "fail" {
			t.Error(method, err)
		}
	}
	if err := c.Notify(t.Context(), "echo", nil); err != nil {
		t.Error(err)
	}
	if conns != 1 {
		t.Errorf("%d connections were made", conns)
	}
}
