package port

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// world is a server with clients that trust it.
type world struct {
	*Server
	addr  string
	pool  *x509.CertPool
	log   *syncBuffer
	taken sync.WaitGroup // streams that were handed over
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start starts a server. Its HTTP side says what it was asked; a stream gets
// back its first line after "lines:" or "header:".
func start(t *testing.T, secure bool, o Options) *world {
	t.Helper()
	w := &world{log: new(syncBuffer)}
	if secure {
		var cert tls.Certificate
		w.pool, cert = certificate(t)
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	o.Logger = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.Server = New(Handler{HTTP: &http.Server{Handler: http.HandlerFunc(serveHTTP)}, Stream: w.stream},
		&o)
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	served := make(chan error, 1)
	ctx := t.Context()
	go func() { served <- w.Serve(ctx, l) }()
	t.Cleanup(func() {
		if err := errors.Join(w.Close(), <-served, w.Close()); err != nil {
			t.Error(err)
		}
		w.taken.Wait()
	})
	return w
}

// welcome is Options.Plain for a port that speaks both.
func welcome(net.Conn) string { return "" }

func serveHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buf.ReadString('\n')
		_, _ = io.WriteString(conn, line)
		return
	}
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(rw, "%s %s tls=%v %s", r.Method, r.Proto, r.TLS != nil, body)
}

func (w *world) stream(conn net.Conn, prefix []byte, header bool) {
	w.taken.Go(func() {
		defer conn.Close()
		line, _ := bufio.NewReader(io.MultiReader(bytes.NewReader(prefix), conn)).ReadString('\n')
		fmt.Fprintf(conn, "%s:%s", map[bool]string{true: "header", false: "lines"}[header], line)
	})
}

func certificate(t *testing.T) (*x509.CertPool, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return pool, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (w *world) dial(t *testing.T, secure bool, protos ...string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	if err == nil && secure {
		c := tls.Client(conn, &tls.Config{RootCAs: w.pool, ServerName: "127.0.0.1", NextProtos: protos})
		err = c.HandshakeContext(t.Context())
		conn = c
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// talk sends in pieces of some size and returns all that comes back.
func talk(t *testing.T, conn net.Conn, in string, size int) string {
	t.Helper()
	for len(in) > 0 {
		n := min(size, len(in))
		if _, err := io.WriteString(conn, in[:n]); err != nil {
			break // refused already: the answer says why
		}
		in = in[n:]
	}
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Errorf("after %q: %v", got, err)
	}
	return string(got)
}

func TestServe(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	w := start(t, true, Options{Plain: welcome})
	tests := []struct{ in, want string }{
		{"{\"a\":1}\n", "lines:{\"a\":1}\n"},
		{"  [1]\n", "lines:  [1]\n"},
		{"\xef\xbb\xbf{}\n", "lines:\xef\xbb\xbf{}\n"},
		{"hello\n", "lines:hello\n"},
		{"GETX\n", "lines:GETX\n"},
		{"Content-Length: 2\r\n", "header:Content-Length: 2\r\n"},
		{"CONTENT-TYPE: x\r\n", "header:CONTENT-TYPE: x\r\n"},
		{
			"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nhello\n",
			"\r\n\r\nhello\n",
		},
		{get, "GET HTTP/1.1 tls=%v "},
		{"DELETE / HTTP/1.0\r\n\r\n", "DELETE HTTP/1.0 tls=%v "},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 3, 1000} {
			for _, secure := range []bool{false, true} {
				conn := w.dial(t, secure)
				if tcp, ok := conn.(*net.TCPConn); ok {
					_ = tcp.SetNoDelay(true)
				}
				want := strings.ReplaceAll(tt.want, "%v", strconv.FormatBool(secure))
				if got := talk(t, conn, tt.in, size); !strings.HasSuffix(got, want) {
					t.Errorf("%q in pieces of %d, TLS %v: got %q", tt.in, size, secure, got)
				}
			}
		}
	}
	if got := talk(t, w.dial(t, true, "http/1.1"), get, 1000); !strings.HasSuffix(got,
		"GET HTTP/1.1 tls=true ") {
		t.Errorf("with ALPN: %q", got)
	}
}

func TestHTTPClients(t *testing.T) {
	w := start(t, true, Options{Plain: welcome})
	for _, tt := range []struct {
		scheme, proto  string
		h1, h2, plain2 bool
	}{
		{"http", "HTTP/1.1", true, false, false},
		{"http", "HTTP/2.0", false, false, true}, // prior knowledge
		{"https", "HTTP/1.1", true, false, false},
		{"https", "HTTP/2.0", false, true, false},
	} {
		tr := &http.Transport{
			Protocols:       new(http.Protocols),
			TLSClientConfig: &tls.Config{RootCAs: w.pool},
		}
		tr.Protocols.SetHTTP1(tt.h1)
		tr.Protocols.SetHTTP2(tt.h2)
		tr.Protocols.SetUnencryptedHTTP2(tt.plain2)
		body := strings.Repeat("x", 300_000)
		for range 3 {
			resp, err := (&http.Client{Transport: tr}).Post(tt.scheme+"://"+w.addr, "text/plain",
				strings.NewReader(body))
			if err != nil {
				t.Fatal(tt, err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := fmt.Sprintf("POST %s tls=%v %s", tt.proto, tt.scheme == "https", body); err != nil ||
				string(got) != want {
				t.Errorf("%v: got %.60q, %v", tt, got, err)
			}
		}
		tr.CloseIdleConnections()
	}
}

func TestRefusals(t *testing.T) {
	t.Run("unknown", func(t *testing.T) {
		w := start(t, false, Options{})
		for _, in := range []string{
			"\x00\x00", "\x80\x2e\x01\x03\x01" + strings.Repeat("x", 100_000),
			"\x7fELF",
		} {
			got := talk(t, w.dial(t, false), in, 1000)
			var answer struct {
				ID    *int
				Error struct {
					Code int
					Data struct{ Reason string }
				}
			}
			if err := json.Unmarshal([]byte(got), &answer); err != nil || answer.ID != nil ||
				answer.Error.Code != -32700 ||
				!strings.Contains(answer.Error.Data.Reason, "HTTP, JSON texts") ||
				!strings.HasSuffix(got, "}\n") {
				t.Errorf("%.20q: got %q, %v", in, got, err)
			}
		}
	})
	t.Run("TLS without certificate", func(t *testing.T) {
		w := start(t, false, Options{})
		conn, err := tls.Dial("tcp", w.addr, &tls.Config{ServerName: "x"})
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "handshake failure") ||
			!strings.Contains(w.log.String(), "no certificate") {
			t.Errorf("%v; log %s", err, w.log)
		}
	})
	t.Run("TLS only", func(t *testing.T) {
		w := start(t, true, Options{})
		if got := talk(t, w.dial(t, false), "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
			1000); !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "TLS only") {
			t.Errorf("HTTP: %q", got)
		}
		if got := talk(t, w.dial(t, false), "{}\n", 1000); !strings.HasPrefix(got, `{"jsonrpc"`) ||
			!strings.Contains(got, "TLS only") {
			t.Errorf("JSON: %q", got)
		}
		if got := talk(t, w.dial(t, true), "{}\n", 1000); got != "lines:{}\n" {
			t.Errorf("TLS: %q", got)
		}
	})
	t.Run("TLS in TLS", func(t *testing.T) {
		w := start(t, true, Options{})
		if got := talk(t, w.dial(t, true), "\x16\x03\x01", 1000); !strings.Contains(got,
			"this port understands") {
			t.Errorf("%q", got)
		}
	})
	t.Run("no server for it", func(t *testing.T) {
		s := New(Handler{}, nil)
		l, err := Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- s.Serve(t.Context(), l) }()
		for _, in := range []string{"GET / HTTP/1.1\r\n\r\n", "{}\n"} {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if got := talk(t, conn, in, 1000); !strings.Contains(got, "this port understands") {
				t.Errorf("%q", got)
			}
			conn.Close()
		}
		if err := errors.Join(s.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
}

// TestSniffTimeout: a client that has begun must go on; one that has not, or
// with a known protocol, may wait.
func TestSniffTimeout(t *testing.T) {
	_, cert := certificate(t)
	const hour = time.Hour
	tests := []struct {
		name string
		in   []string
		wait []time.Duration // after each
		want string
	}{
		{"begins late", []string{"", "{}\n"}, []time.Duration{hour, 0}, "lines:{}\n"},
		{"goes on late", []string{"[", "]\n"}, []time.Duration{hour, 0}, "lines:[]\n"},
		{
			"slow, but in time",
			[]string{"C", "ont", "ent-", "Length: 2\r\n"},
			[]time.Duration{4 * time.Second, 5 * time.Second, hour, 0},
			"header:Content-Length: 2\r\n",
		},
		{"too slow", []string{"C", "on"}, []time.Duration{6 * time.Second, 4 * time.Second}, ""},
		{"stops in a method", []string{"PO"}, []time.Duration{10 * time.Second}, ""},
		{"stops in a handshake", []string{"\x16\x03\x01\x00"}, []time.Duration{10 * time.Second}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := new(world)
				s := New(Handler{Stream: w.stream},
					&Options{TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, Plain: welcome})
				client, conn := net.Pipe()
				s.greet(t.Context(), conn)
				begun := time.Now()
				var total time.Duration
				for i, in := range tt.in {
					_, _ = io.WriteString(client, in)
					<-time.After(tt.wait[i])
					total += tt.wait[i]
				}
				if got, err := io.ReadAll(client); err != nil || string(got) != tt.want {
					t.Errorf("got %q, %v", got, err)
				}
				if time.Since(begun) != total {
					t.Errorf("ended after %v", time.Since(begun))
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				w.taken.Wait()
			})
		})
	}
}

// TestClose ends what waits: idle clients, clients that have begun, handshakes.
func TestClose(t *testing.T) {
	w := start(t, true, Options{Plain: welcome})
	var conns []net.Conn
	for _, in := range []string{"", "PO", "\x16\x03\x01", "hello\n"} {
		conn := w.dial(t, false)
		_, _ = io.WriteString(conn, in)
		conns = append(conns, conn)
	}
	conns = append(conns, w.dial(t, true))
	// The server has met them all once it has met the last one.
	if got := talk(t, w.dial(t, false), "{}\n", 1000); got != "lines:{}\n" {
		t.Fatal(got)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for i, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d is still open", i)
		}
	}
	if _, err := net.Dial("tcp", w.addr); err == nil {
		t.Error("still listening")
	}
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Serve(t.Context(), l); err != nil {
		t.Errorf("Serve after Close: %v", err)
	}
}

func TestShutdown(t *testing.T) {
	for _, inTime := range []bool{true, false} {
		begun, goOn := make(chan struct{}), make(chan struct{})
		s := New(
			Handler{HTTP: &http.Server{Handler: http.HandlerFunc(func(
				w http.ResponseWriter, r *http.Request,
			) {
				close(begun)
				select {
				case <-goOn:
				case <-r.Context().Done():
				}
				_, _ = io.WriteString(w, "finished")
			})}}, nil)
		l, err := Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		stopped, got := make(chan struct{}), make(chan string)
		go func() {
			defer close(stopped)
			if err := s.Serve(t.Context(), l); err != nil {
				t.Error(err)
			}
		}()
		go func() {
			resp, err := http.Get("http://" + l.Addr().String())
			if err != nil {
				got <- err.Error()
				return
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			got <- string(body)
		}()
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if inTime {
			ctx = t.Context()
			go func() {
				<-stopped // Shutdown has begun
				close(goOn)
			}()
		}
		err = s.Shutdown(ctx)
		cancel()
		if inTime && err != nil || !inTime && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in time %v: %v", inTime, err)
		}
		if body := <-got; (body == "finished") != inTime {
			t.Errorf("in time %v: the client got %q", inTime, body)
		}
		<-stopped
		http.DefaultClient.CloseIdleConnections()
	}
}

// failing is a listener with an Accept that fails in a given way.
type failing struct {
	errs  []error
	times []time.Time
	done  chan struct{}
	once  sync.Once
}

func (f *failing) Accept() (net.Conn, error) {
	f.times = append(f.times, time.Now())
	if len(f.errs) == 0 {
		<-f.done
		return nil, net.ErrClosed
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, err
}

func (f *failing) Close() error   { f.once.Do(func() { close(f.done) }); return nil }
func (f *failing) Addr() net.Addr { return &net.UnixAddr{Name: "x", Net: "unix"} }

func TestAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		l := &failing{done: make(chan struct{})}
		for range 10 {
			l.errs = append(l.errs, full)
		}
		s := New(Handler{}, nil)
		done := make(chan error)
		go func() { done <- s.Serve(t.Context(), l) }()
		<-time.After(time.Minute)
		synctest.Wait()
		if err := errors.Join(s.stop(), <-done); err != nil {
			t.Error(err)
		}
		if len(l.times) != 11 {
			t.Fatalf("%d attempts", len(l.times))
		}
		for i, want := range []int64{5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000} {
			if got := l.times[i+1].Sub(l.times[i]); got.Milliseconds() != want {
				t.Errorf("pause %d is %v", i, got)
			}
		}
	})
	boom := errors.New("boom")
	l := &failing{errs: []error{boom}, done: make(chan struct{})}
	if err := New(Handler{}, nil).Serve(t.Context(), l); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

func TestListenUnix(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/s"
	l, err := Listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := Listen(t.Context(), "unix:"+path); err == nil ||
		!strings.Contains(err.Error(), "another process answers") {
		t.Errorf("while a handler answers: %v", err)
	}
	l.Close()
	if runtime.GOOS == "linux" {
		config := net.ListenConfig{Control: ownerOnly}
		if l, err = config.Listen(t.Context(), "unix", path); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("before Chmod: %v, %v", info.Mode(), err)
		}
		l.Close()
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}

	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	if l, err = Listen(t.Context(), "unix:"+path); err != nil {
		t.Errorf("a stale socket: %v", err)
	} else {
		l.Close()
	}

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), "unix:"+path); err == nil ||
		!strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file: %v", err)
	}
	if got, err := os.ReadFile(path); string(got) != "precious" {
		t.Errorf("the file has become %q, %v", got, err)
	}
	if _, err := Listen(t.Context(), "127.0.0.1:99999"); err == nil {
		t.Error("no such port")
	}
}
