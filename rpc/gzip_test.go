package rpc_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/rpc"
)

// encodings notes how the bodies of requests and answers are encoded.
type encodings struct{ seen []string }

// RoundTrip implements http.RoundTripper.
func (e *encodings) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		e.seen = append(e.seen,
			r.Header.Get("Content-Encoding")+">"+answer.Header.Get("Content-Encoding"))
	}
	return answer, err
}

// Options.Gzip and ServeOptions.Gzip compress both ways where both are set, and otherwise nothing
// is compressed.
func TestGzip(t *testing.T) {
	mux := farcall.NewMux()
	farcall.Handle(mux, "echo", func(_ context.Context, p struct{ Text string }) (string, error) {
		return p.Text, nil
	})
	for _, c := range []struct {
		server, client bool
		want           []string
	}{
		{true, true, []string{">gzip", "gzip>gzip"}}, // the first answer says what the server reads
		{true, false, []string{">", ">"}},
		{false, true, []string{">", ">"}},
	} {
		s, err := rpc.NewServer(mux, &rpc.ServeOptions{Gzip: c.server})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, l) }()
		var e encodings
		client, err := rpc.Dial(ctx, l.Addr().String(),
			&rpc.Options{Gzip: c.client, HTTP: &http.Client{Transport: &e}})
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("a", 2000)
		for range 2 {
			if got, err := farcall.Call[string](ctx, client, "echo",
				map[string]string{"Text": text}); err != nil || got != text {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
		if !slices.Equal(e.seen, c.want) {
			t.Errorf("server %v, client %v: %q, want %q", c.server, c.client, e.seen, c.want)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
