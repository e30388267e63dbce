package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	mcpgoserver "github.com/mark3labs/mcp-go/server"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/bench/internal/addfarcall"
)

const mcpWork = "MCP tools/call, the server's work alone"

// mcpWorkGroups are calls without a connection: what is left is the library.
func mcpWorkGroups() []group {
	return []group{{name: mcpWork, workers: 1, base: "farcall", subjects: []subject{
		{"farcall", func() (*running, error) { return serveAlone(farcallMCPHandler()), nil }},
		{"mcp-go", func() (*running, error) { return serveAlone(mcpGoHandler(mcpGo())), nil }},
		{"mcp-go, validating", func() (*running, error) {
			return serveAlone(mcpGoHandler(mcpGoValidating())), nil
		}},
		{"go-sdk", func() (*running, error) { return serveAlone(goSDKHandler(true)), nil }},
		{"farcall, no HTTP", func() (*running, error) { return farcallAlone(), nil }},
		{"mcp-go, no HTTP", func() (*running, error) { return mcpGoAlone(mcpGo()), nil }},
	}}}
}

// alone makes a subject of a function that answers one call with answer.
func alone(answer func() ([]byte, error)) *running {
	worker := func() func(int) error {
		return func(n int) error {
			for range n {
				got, err := answer()
				if err != nil {
					return err
				}
				if !bytes.Contains(got, []byte(callResult)) {
					return fmt.Errorf("the answer is %q", got)
				}
			}
			return nil
		}
	}
	return &running{worker: worker, stop: func() {}}
}

// serveAlone gives one request to an HTTP handler again and again. It is as
// net/http makes them, and made once.
func serveAlone(h http.Handler) *running {
	text := []byte(modernCall)
	body := rewinder{bytes.NewReader(text)}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), http.LocalAddrContextKey,
		net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80})))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:80/mcp", nil)
	if err != nil {
		panic(err) // the address is a constant
	}
	req.ContentLength, req.RemoteAddr = int64(len(modernCall)), "127.0.0.1:1234"
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", acceptBoth)
	for name, value := range modernHeaders {
		req.Header.Set(name, value)
	}
	w := &memoryWriter{header: http.Header{}}
	r := alone(func() ([]byte, error) {
		body.Reset(text)
		req.Body = body // handlers put others in its place
		w.reset()
		h.ServeHTTP(w, req)
		return w.body, nil
	})
	r.stop = cancel
	return r
}

type rewinder struct{ *bytes.Reader }

func (rewinder) Close() error { return nil }

// memoryWriter keeps an answer until the next one, in the same memory.
type memoryWriter struct {
	header http.Header
	body   []byte
}

func (w *memoryWriter) reset() {
	clear(w.header)
	w.body = w.body[:0]
}

func (w *memoryWriter) Header() http.Header { return w.header }
func (w *memoryWriter) WriteHeader(int)     {}
func (w *memoryWriter) Flush()              {}

func (w *memoryWriter) Write(p []byte) (int, error) {
	w.body = append(w.body, p...)
	return len(p), nil
}

func farcallAlone() *running {
	r := farcall.NewResponder(addfarcall.NewServer(), nil)
	ctx, frame := context.Background(), []byte(modernCall)
	var answer []byte
	return alone(func() ([]byte, error) {
		answer = r.Respond(ctx, answer[:0], frame, nil)
		return answer, nil
	})
}

func mcpGoAlone(s *mcpgoserver.MCPServer) *running {
	ctx := context.Background()
	return alone(func() ([]byte, error) {
		return json.Marshal(s.HandleMessage(ctx, json.RawMessage(modernCall)))
	})
}
