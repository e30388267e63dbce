package wsrpc_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A server selects the first offer that it accepts, or none.
func TestSubprotocolOfServer(t *testing.T) {
	for _, c := range []struct {
		accepted []string
		offers   []string
		want     string
	}{
		{nil, nil, ""},
		{nil, []string{"jsonrpc"}, "jsonrpc"},
		{nil, []string{"json-rpc-2.0", "jsonrpc"}, "json-rpc-2.0"},
		{nil, []string{"soap", "jsonrpc"}, "jsonrpc"},
		{nil, []string{"soap", "mcp"}, ""},
		{[]string{"mcp"}, []string{"jsonrpc", "mcp"}, "mcp"},
		{[]string{}, []string{"jsonrpc"}, ""},
	} {
		s := serve(t, &wsrpc.Options{Subprotocols: c.accepted})
		//nolint:bodyclose // the library reads the body and closes it
		conn, resp, err := websocket.Dial(t.Context(), s.url(),
			&websocket.DialOptions{Subprotocols: c.offers})
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.Header.Get("Sec-WebSocket-Protocol"); got != c.want {
			t.Errorf("accepting %q, offered %q: selected %q, want %q", c.accepted, c.offers, got, c.want)
		}
		tr := <-s.conns
		conn.CloseNow()
		tr.Close()
	}
}

// A client fails when the server selects what it did not offer.
func TestSubprotocolOfClient(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		offers   []string
		selected string
		ok       bool
	}{
		{nil, "", true},
		{[]string{"jsonrpc"}, "jsonrpc", true},
		{[]string{"jsonrpc", "mcp"}, "mcp", true},
		{[]string{"jsonrpc"}, "", true},
		{[]string{"jsonrpc"}, "soap", false},
		{nil, "jsonrpc", false},
	} {
		h := wsrpc.NewHandler(func(tr farcall.Transport, _ *http.Request) {
			go tr.Close()
		}, &wsrpc.Options{Subprotocols: []string{}})
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.selected != "" {
				w.Header().Set("Sec-WebSocket-Protocol", c.selected)
			}
			h.ServeHTTP(w, r)
		}))
		tr, err := wsrpc.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http"),
			&wsrpc.Options{Subprotocols: c.offers})
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, farcall.ErrProtocol) {
			t.Errorf("offered %q, selected %q: %v", c.offers, c.selected, err)
		}
		if err == nil {
			tr.Close()
		}
		s.Close()
	}
}
