package mcphttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/http1/http1test"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// canned answers without a network, to show what the client itself costs.
type canned struct{ contentType, body string }

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {c.contentType}}, Request: r,
		Body: io.NopCloser(strings.NewReader(c.body)), ContentLength: int64(len(c.body)),
	}, nil
}

func BenchmarkExchange(b *testing.B) {
	for _, answer := range []canned{
		{"application/json", result(1)},
		{"text/event-stream", event("", result(1))},
	} {
		b.Run(answer.contentType, func(b *testing.B) {
			c, err := mcphttp.Dial("http://server.test/mcp",
				&mcphttp.DialOptions{HTTP: &http.Client{Transport: answer}})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			c.Use(era.Latest())
			frame, ctx := []byte(stateless(1, "tools/call", `"name":"add","arguments":{"a":1,"b":2},`)),
				b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Exchange(ctx, frame, func([]byte) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNetwork(b *testing.B) {
	s := http1test.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bodyOf(r)
		sendJSON(w, 200, result(1))
	}))
	defer s.Close()
	c, err := mcphttp.Dial(s.URL, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	frame, ctx := []byte(stateless(1, "tools/call", `"name":"add","arguments":{"a":1,"b":2},`)),
		b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Exchange(ctx, frame, func([]byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
