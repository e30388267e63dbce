package http1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// scarce is a listener of a system that is short of something twice.
type scarce struct {
	net.Listener

	times atomic.Int32
}

type temporary struct{ error }

func (temporary) Timeout() bool   { return false }
func (temporary) Temporary() bool { return true }

func (l *scarce) Accept() (net.Conn, error) {
	if l.times.Add(1) <= 2 {
		return nil, temporary{errors.New("too many open files")}
	}
	return l.Listener.Accept()
}

// front starts a server with a Front before it, and counts what net/http accepts.
func front(t *testing.T, secure bool) (url string, client *http.Client, behind *atomic.Int32) {
	t.Helper()
	behind = new(atomic.Int32)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, fast := w.(*response); !fast {
			behind.Add(1)
		}
		_, _ = io.Copy(w, r.Body)
	}))
	l := net.Listener(&scarce{Listener: s.Listener})
	var other *httptest.Server
	if secure {
		other = httptest.NewTLSServer(nil) // for its certificate
		t.Cleanup(other.Close)
		l = tls.NewListener(l, other.TLS)
	}
	s.Listener = NewFront(l, New(s.Config, func(string) bool { return true }))
	s.Start()
	t.Cleanup(s.Close)
	if !secure {
		return s.URL, s.Client(), behind
	}
	t.Cleanup(other.Client().CloseIdleConnections)
	return strings.Replace(s.URL, "http:", "https:", 1), other.Client(), behind
}

// TestFront serves a POST itself and leaves the rest to net/http, also after errors of the listener
// that are temporary.
func TestFront(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		url, client, behind := front(t, secure)
		for range 3 {
			resp, err := client.Post(url, "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(got) != "hello" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		want := int32(1) // the GET
		if secure {
			want = 4
		}
		if n := behind.Load(); n != want {
			t.Errorf("TLS %v: net/http has served %d requests, want %d", secure, n, want)
		}
	}
}

// TestFrontIsClosed ends Accept, and every later one.
func TestFrontIsClosed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := NewFront(l, New(&http.Server{}, func(string) bool { return true }))
	failed := make(chan error)
	go func() {
		_, err := f.Accept()
		failed <- err
	}()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := f.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}
