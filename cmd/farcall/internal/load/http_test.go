package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/race"
)

const callMessage = `{"jsonrpc":"2.0","id":1,"method":"m"}`

// poster returns one for a server.
func poster(t *testing.T, server *httptest.Server) *Poster {
	t.Helper()
	u, err := url.Parse(server.URL + "/rpc?a=1")
	if err != nil {
		t.Fatal(err)
	}
	config := server.Client().Transport.(*http.Transport).TLSClientConfig
	p := NewPoster(u, http.Header{"X-Key": {"k"}}, config, []byte(callMessage), 0)
	t.Cleanup(p.Close)
	return p
}

// Each answer is read as HTTP says, and the connection is used again where it may be.
func TestPoster(t *testing.T) {
	t.Parallel()
	const result = `{"jsonrpc":"2.0","id":1,"result":5}`
	long := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 200_000) + `"}`
	flushed := func(w http.ResponseWriter, parts ...string) {
		for _, p := range parts {
			io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}
	for name, test := range map[string]struct {
		answer  func(w http.ResponseWriter, r *http.Request)
		want    string
		renewed bool // each call opens a connection
	}{
		"length": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, result)
		}, "", false},
		"chunks": {func(w http.ResponseWriter, _ *http.Request) {
			flushed(w, result[:9], result[9:])
		}, "", false},
		"long chunks": {func(w http.ResponseWriter, _ *http.Request) { flushed(w, long) }, "", false},
		"close": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			io.WriteString(w, result)
		}, "", true},
		"continue": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, result)
		}, "", false},
		"error": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}`)
		}, "error -32601", false},
		"status": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}, "HTTP status 503", false},
		"no content": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}, "HTTP status 204", false},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "<html>")
		}, "the answer is not JSON-RPC", false},
		"notification": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"jsonrpc":"2.0","method":"n"}`)
		}, "no response", false},
		"hangs up": {func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, "closed the connection", true},
		"events": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			flushed(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n",
				": ping\n\nid: 1\ndata: "+result+"\n\n")
		}, "", false},
		"no event": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			flushed(w, ": ping\n\n")
		}, "ended without a response", false},
	} {
		for _, secure := range []bool{false, true} {
			connections := map[string]bool{}
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				connections[r.RemoteAddr] = true
				body, _ := io.ReadAll(r.Body)
				if string(body) != callMessage || r.URL.RequestURI() != "/rpc?a=1" ||
					r.Header.Get("X-Key") != "k" || r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%s: %s %v", r.URL, body, r.Header)
				}
				test.answer(w, r)
			}))
			if secure {
				s.StartTLS()
			} else {
				s.Start()
			}
			p := poster(t, s)
			for range 3 {
				err := p.Call(t.Context())
				if got := fmt.Sprint(err); err == nil && test.want != "" ||
					err != nil && (test.want == "" || !strings.Contains(got, test.want)) {
					t.Errorf("%s: %v, want %q", name, err, test.want)
				}
			}
			p.Close()
			s.Close()
			if (len(connections) == 3) != test.renewed {
				t.Errorf("%s: %d connections", name, len(connections))
			}
		}
	}
}

// A server that is silent, and one that is not there.
func TestPosterFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := NewPoster(&url.URL{Scheme: "http", Host: l.Addr().String()}, nil, nil, []byte(callMessage), 0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Call(ctx); !errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
	p = NewPoster(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, nil, nil, []byte(callMessage), 0)
	if err := p.Call(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "connection refused") ||
		strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%v", err)
	}
}

// piped is a Poster over a pipe to a server that gets the number of each request, and answers it
// when answer returns.
func piped(tb testing.TB, timeout time.Duration, answer func(n int)) *Poster {
	tb.Helper()
	ours, theirs := net.Pipe()
	p := NewPoster(&url.URL{Scheme: "http", Host: "h"}, nil, nil, []byte(callMessage), timeout)
	p.adopt(tb.Context(), ours)
	go func() {
		defer theirs.Close()
		const result = `{"jsonrpc":"2.0","id":1,"result":5}`
		request := make([]byte, len(p.request))
		response := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s",
			len(result), result)
		for n := 0; ; n++ {
			if _, err := io.ReadFull(theirs, request); err != nil {
				return
			}
			answer(n)
			theirs.Write(response)
		}
	}()
	return p
}

// The timeout is that of each call, though the deadline of the connection is set for several.
func TestPosterTimeout(t *testing.T) {
	t.Parallel()
	takes := []int{600, 100, 600, 900, 999, 2000} // ms
	synctest.Test(t, func(t *testing.T) {
		p := piped(t, time.Second, func(n int) {
			timed(t.Context(), time.Now().Add(time.Duration(takes[n])*time.Millisecond))
		})
		defer p.Close()
		for n, ms := range takes {
			began, d := time.Now(), time.Duration(ms)*time.Millisecond
			want := min(d, time.Second)
			err := p.Call(t.Context())
			if took := time.Since(began); took != want || (err != nil) != (d > time.Second) {
				t.Errorf("call %d: %v after %v, want %v", n, err, took, want)
			}
			if err != nil && !errors.Is(err, ErrTimeout) {
				t.Errorf("call %d: %v", n, err)
			}
		}
	})
}

// A load that ends, ends the calls in flight and those that come.
func TestPosterInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := piped(t, time.Hour, func(int) {
			timed(t.Context(), time.Now().Add(time.Minute))
		})
		defer p.Close()
		conn := p.conn
		p.leave()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p.adopt(ctx, conn)
		began := time.Now()
		for range 2 {
			if err := p.Call(ctx); err == nil || time.Since(began) != time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
	})
}

// A call needs no memory.
func TestPosterAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	p := piped(t, time.Minute, func(int) {})
	defer p.Close()
	if n := testing.AllocsPerRun(100, func() {
		if err := p.Call(t.Context()); err != nil {
			t.Fatal(err)
		}
	}); n > 1 { // the pipe has timers, TCP has none
		t.Errorf("%v allocations in a call", n)
	}
}

// Workers that call in turn share the connection that was used last.
func TestPool(t *testing.T) {
	t.Parallel()
	connections := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":5}`)
	}))
	defer s.Close()
	for _, call := range Pool([]*Poster{poster(t, s), poster(t, s), poster(t, s)}) {
		if err := call(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(connections) != 1 {
		t.Errorf("%d connections, want one", len(connections))
	}
}

// FuzzPoster: no answer of a server makes the client panic, or hang.
func FuzzPoster(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n"))
	f.Add([]byte("HTTP/1.0 200\r\nContent-Length: 99999999999999999999\r\n\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			io.ReadFull(theirs, make([]byte, len(callMessage)))
			theirs.Write(answer)
		}()
		p := NewPoster(&url.URL{Scheme: "http", Host: "h"}, nil, nil, []byte(callMessage), 0)
		p.request = []byte(callMessage)
		p.adopt(t.Context(), ours)
		_ = p.Call(t.Context())
		p.Close()
		ours.Close()
	})
}
