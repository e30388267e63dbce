package mcphttp_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// TestConnectionsAreUsedAgain counts the connections of calls in a row. Time stands still, so that
// the end of an event stream is never late for another reason.
func TestConnectionsAreUsedAgain(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"json":   func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, 200, result(1)) },
		"events": func(w http.ResponseWriter, _ *http.Request) { events(w, event("", result(1))) },
		"error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusBadRequest)
		},
		"accepted": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			w.(http.Flusher).Flush() // a length is not declared
		},
	}
	for kind, answer := range answers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				accepted := make(chan net.Conn)
				s := http.Server{Handler: answer}
				go s.Serve(pipes{accepted})
				connections := 0
				transport := &http.Transport{DialContext: func(
					context.Context, string, string,
				) (net.Conn, error) {
					connections++
					ours, theirs := net.Pipe()
					accepted <- theirs
					return ours, nil
				}}
				x := open(t, "http://test/mcp", &mcphttp.DialOptions{HTTP: &http.Client{Transport: transport}})
				for range 20 {
					if _, err := exchange(t.Context(), x, call(1, "x")); (err != nil) != (kind == "error") {
						t.Error(err)
					}
				}
				x.Close()
				transport.CloseIdleConnections()
				s.Close()
				if connections != 1 {
					t.Errorf("%d connections", connections)
				}
			})
		})
	}
}

// pipes is a listener of connections in memory. Closing it ends the channel.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p.conns); return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
