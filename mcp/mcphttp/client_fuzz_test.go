package mcphttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// FuzzAnswer lets a peer read any answer: nothing may crash or hang, and an
// error has a class.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		result(1), `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`,
		"[" + result(1) + "]", `{"jsonrpc":`, "", "null", "[]", `{"id":1}`,
		event("1", notice) + event("2", result(1)), event("1", ""), "id: 1\nretry: 9\ndata\n\n",
		"data: " + result(1), "event: endpoint\ndata: /m\n\n" + event("", result(1)),
		event("", `{"jsonrpc":"2.0","id":9,"method":"ping"}`) + event("", result(1)),
		event("", `{"jsonrpc":"2.0","id":null,"error":{}}`),
	} {
		for _, kind := range []string{"application/json", "text/event-stream", "", "text/html"} {
			f.Add(200, kind, body, false)
			f.Add(404, kind, body, true)
		}
	}
	f.Fuzz(func(t *testing.T, status int, contentType, body string, old bool) {
		if status < 200 || status > 599 || len(body) > 100_000 || strings.Count(body, "retry") > 5 {
			t.Skip()
		}
		synctest.Test(t, func(t *testing.T) {
			x := offline(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = []string{contentType}
				if old && r.Method == http.MethodGet {
					w.Header()["Content-Type"] = []string{"text/event-stream"}
				}
				w.WriteHeader(status)
				io.WriteString(w, body)
			}, &mcphttp.DialOptions{MaxMessage: 1000, MaxEvent: 1000})
			peer := farcall.NewClient(x, nil, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if old {
				_ = x.SSE(ctx, ignore)
			}
			var raw any
			err := peer.Call(ctx, "x", nil, &raw)
			classes := []error{
				farcall.ErrProtocol, mcphttp.ErrConnect, mcphttp.ErrSessionLost,
				context.DeadlineExceeded,
			}
			known := slices.ContainsFunc(classes, func(class error) bool { return errors.Is(err, class) })
			if err != nil && !known && !errors.As(err, new(*jsonrpc.Error)) {
				t.Errorf("%T %v", err, err)
			}
			if err := peer.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

// FuzzFrame sends any frame: what cannot be sent fails, and nothing crashes.
func FuzzFrame(f *testing.F) {
	for _, frame := range []string{
		initialize, notice, call(1, "x"), result(1), "[" + call(1, "x") + "," + notice + "]", "", "[",
		"{", "null",
		stateless(1, "tools/call", `"name":"\u0000\ud800",`), stateless(1, "a\nb", ""),
		`{"method":1,"id":null,"params":[]}`,
		`{"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"",` +
			`"progressToken":1}}}`,
	} {
		f.Add(frame)
	}
	x, err := mcphttp.Dial("http://server.test/",
		&mcphttp.DialOptions{HTTP: &http.Client{Transport: canned{"application/json", result(1)}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { x.Close() })
	f.Fuzz(func(t *testing.T, frame string) {
		err := x.Exchange(t.Context(), []byte(frame), func([]byte) error { return nil })
		if err != nil && !errors.Is(err, farcall.ErrProtocol) {
			t.Error(err)
		}
	})
}
