package mcphttp_test

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

func TestStatusErrors(t *testing.T) {
	rpcError := `{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no such revision",` +
		`"data":{"supported":[]}}}`
	for _, c := range []struct {
		name        string
		status      int
		contentType string
		body        string
		code        jsonrpc.Code
	}{
		{"rpc", 400, "application/json", rpcError, -32022},
		{"rpc, wrong type", 400, "text/plain", rpcError, -32022},
		{
			"id null", 404, "application/json",
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no"}}`, -32601,
		},
		{
			"no id", 403, "application/json", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"no"}}`,
			-32000,
		},
		{"no rpc", 400, "application/json", `{"error":{"code":5,"message":"no"}}`, 0},
		{"oauth", 401, "application/json", `{"error":"invalid_token"}`, 0},
		{"text", 404, "text/plain", "404 page not found", 0},
		{"empty", 405, "", "", 0},
		{"half", 400, "application/json", rpcError[:40], 0},
		{"long", 400, "text/html", strings.Repeat("x", 100_000), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{c.contentType}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}), nil)
			_, err := exchange(t.Context(), x, call(1, "x"))
			var status *mcphttp.StatusError
			if !errors.As(err, &status) {
				t.Fatal(err)
			}
			if status.Status != c.status || status.ContentType != c.contentType ||
				!strings.HasPrefix(c.body, string(status.Body)) || len(status.Body) > 4096 {
				t.Errorf("%+v", status)
			}
			var rpc *jsonrpc.Error
			if errors.As(err, &rpc) != (c.code != 0) || rpc != nil && rpc.Code != c.code ||
				errors.Is(err, farcall.ErrProtocol) != (rpc == nil) {
				t.Errorf("%v", err)
			}
		})
	}
}

// The text of a status says what came and guesses nothing.
func TestStatusText(t *testing.T) {
	for _, c := range []struct {
		status    int
		challenge string
		want      string
	}{
		{401, "", `HTTP status 401 Unauthorized, text/plain: "no"`},
		{
			401, "Bearer",
			`HTTP status 401 Unauthorized (the server wants credentials: "Bearer"), text/plain: "no"`,
		},
		{404, "", `HTTP status 404 Not Found, text/plain: "no"`},
	} {
		x := open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			if c.challenge != "" {
				w.Header().Set("WWW-Authenticate", c.challenge)
			}
			w.WriteHeader(c.status)
			io.WriteString(w, "no")
		}), nil)
		_, err := exchange(t.Context(), x, call(1, "x"))
		if status, ok := errors.AsType[*mcphttp.StatusError](err); !ok || status.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestUnreachable(t *testing.T) {
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	secure := httptest.NewUnstartedServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1000))
			io.WriteString(c, "SSH-2.0-x\r\n")
			c.Close()
		}
	}()
	defer l.Close()
	for _, c := range []struct {
		url, hint string
		err       error
	}{
		{"http://127.0.0.1:1/", "no server listens there: ", mcphttp.ErrConnect},
		{"http://nosuch.invalid/", "its name is not known: ", mcphttp.ErrConnect},
		{strings.Replace(plain, "http:", "https:", 1), "it does not speak TLS: ", mcphttp.ErrConnect},
		{secure.URL, "RootCAs", mcphttp.ErrConnect},
		{"http://" + l.Addr().String(), "not an HTTP server", farcall.ErrProtocol},
	} {
		x := open(t, c.url, nil)
		_, err := exchange(t.Context(), x, call(1, "x"))
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%s: %v", c.url, err)
		}
	}
	transport, _ := secure.Client().Transport.(*http.Transport)
	x := open(t, secure.URL, &mcphttp.DialOptions{TLS: transport.TLSClientConfig})
	if _, err := exchange(t.Context(), x, call(1, "x")); err == nil ||
		errors.Is(err, mcphttp.ErrConnect) {
		t.Error(err) // an empty 200 is no answer, but TLS worked
	}
}
