package stream

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/npipe"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type connector func(t *testing.T) (a, b io.ReadWriteCloser)

// connections are real connections of each kind.
func connections(t *testing.T) map[string]connector {
	t.Helper()
	all := map[string]connector{
		"tcp": func(t *testing.T) (a, b io.ReadWriteCloser) {
			t.Helper()
			return socketPair(t, "tcp", "127.0.0.1:0")
		},
		"tls": func(t *testing.T) (a, b io.ReadWriteCloser) {
			t.Helper()
			a, b = socketPair(t, "tcp", "127.0.0.1:0")
			pool, cert := certificate(t)
			server := tls.Server(b.(net.Conn), &tls.Config{Certificates: []tls.Certificate{cert}})
			client := tls.Client(a.(net.Conn), &tls.Config{RootCAs: pool, ServerName: "localhost"})
			done := make(chan error)
			go func() { done <- server.HandshakeContext(t.Context()) }()
			if err := errors.Join(client.HandshakeContext(t.Context()), <-done); err != nil {
				t.Fatal(err)
			}
			return client, server
		},
		"net.Pipe": func(*testing.T) (a, b io.ReadWriteCloser) { return net.Pipe() },
		"io.Pipe": func(*testing.T) (a, b io.ReadWriteCloser) {
			r1, w1 := io.Pipe()
			r2, w2 := io.Pipe()
			return ioPipe{r1, w2}, ioPipe{r2, w1}
		},
	}
	if runtime.GOOS == "windows" {
		all["npipe"] = namedPipe
	} else {
		all["unix"] = func(t *testing.T) (a, b io.ReadWriteCloser) {
			t.Helper()
			return socketPair(t, "unix", filepath.Join(t.TempDir(), "s"))
		}
		all["os.Pipe"] = func(t *testing.T) (a, b io.ReadWriteCloser) {
			t.Helper()
			r1, w1, err1 := os.Pipe()
			r2, w2, err2 := os.Pipe()
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			return &osPipe{stdio{r1, w2}}, &osPipe{stdio{r2, w1}}
		}
	}
	return all
}

// namedPipe is a named pipe of Windows.
func namedPipe(t *testing.T) (a, b io.ReadWriteCloser) {
	t.Helper()
	name := fmt.Sprintf("farcall-test-%d-%s", os.Getpid(), rand.Text())
	l, err := npipe.Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if os.Getenv("FARCALL_WINE") != "" {
		// Wine 8 gives the first client no server: see TestPipe of npipe
		lost, err := npipe.Dial(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lost.Close() })
	}
	accepted := make(chan net.Conn, 1)
	failed := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		accepted <- conn
		failed <- err
	}()
	c, dialErr := npipe.Dial(t.Context(), name)
	if dialErr != nil {
		l.Close()
	}
	s := <-accepted
	if err := errors.Join(dialErr, <-failed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c, s
}

type ioPipe struct {
	*io.PipeReader
	*io.PipeWriter
}

func (p ioPipe) Close() error { return errors.Join(p.PipeReader.Close(), p.PipeWriter.Close()) }

// osPipe is stdio that leaves the standard files open.
type osPipe struct{ stdio }

func (p *osPipe) Close() error { return errors.Join(p.in.Close(), p.out.Close()) }

func socketPair(t *testing.T, network, addr string) (a, b io.ReadWriteCloser) {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c, s
}

func certificate(t *testing.T) (*x509.CertPool, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter:    time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
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

func TestTransports(t *testing.T) {
	for name, connect := range connections(t) {
		for _, framing := range []Framing{NDJSON, Header, Raw, Detect} {
			t.Run(fmt.Sprint(name, "/", framing), func(t *testing.T) {
				ra, rb := connect(t)
				a, b := New(ra, framing, nil), New(rb, framing, nil)
				if _, ok := a.(farcall.TryWriter); ok !=
					(slices.Contains([]string{"tcp", "unix", "os.Pipe"}, name) && runtime.GOOS != "windows") {
					t.Errorf("TryWriter: %v", ok)
				}
				frames := [][]byte{
					[]byte(`{}`), []byte(`"` + strings.Repeat("x", 3<<20) + `"`), []byte(`[1]`),
					[]byte(`"` + strings.Repeat("y", 70_000) + `"`),
				}
				done := make(chan error)
				go func() { done <- a.Write(frames...) }()
				for i, want := range frames {
					if got, err := b.Read(); err != nil || !bytes.Equal(got, want) {
						t.Fatalf("frame %d: got %.20q, %v", i, got, err)
					}
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				if _, err := b.Read(); !errors.Is(err, io.EOF) && name != "io.Pipe" {
					t.Errorf("the other end has closed: %v", err)
				}
				if err := errors.Join(a.Close(), b.Close(), b.Close()); err != nil {
					t.Error(err)
				}
				if err := b.Write(frames[0]); !errors.Is(err, farcall.ErrClosed) {
					t.Errorf("a write after Close: %v", err)
				}
			})
		}
	}
}

func TestCloseUnblocks(t *testing.T) {
	for name, connect := range connections(t) {
		t.Run(name, func(t *testing.T) {
			ra, rb := connect(t)
			defer rb.Close()
			a := New(ra, NDJSON, nil)
			read, write := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := a.Read()
				read <- err
			}()
			wrote := make(chan struct{})
			go func() {
				frame := bytes.Repeat([]byte("x"), 1<<20)
				close(wrote)
				for {
					if err := a.Write(frame); err != nil {
						write <- err
						return
					}
				}
			}()
			<-wrote
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			if err := <-read; !errors.Is(err, farcall.ErrClosed) {
				t.Errorf("read: %v", err)
			}
			if err := <-write; !errors.Is(err, farcall.ErrClosed) {
				t.Errorf("write: %v", err)
			}
		})
	}
}

// writes counts the writes that reach it.
type writes struct {
	bytes.Buffer
	n, largest int
}

func (w *writes) Write(p []byte) (int, error) {
	w.n++
	w.largest = max(w.largest, len(p))
	return w.Buffer.Write(p)
}

func TestWriteCombines(t *testing.T) {
	tests := []struct {
		framing   Framing
		sizes     []int
		maxWrites int
	}{
		{NDJSON, []int{2, 2, 100}, 1},
		{Header, []int{2, 2, 100}, 1},
		{NDJSON, slices.Repeat([]int{600}, 100), 1},
		{NDJSON, []int{10 << 20}, 2},
		{Header, []int{10 << 20}, 3},
		{NDJSON, []int{5, 1 << 20, 5, 1 << 20, 5}, 7},
		{NDJSON, nil, 0},
		{NDJSON, []int{largeSize - 1, largeSize, largeSize + 1, largeSize - 2}, 8},
		{Header, []int{largeSize - 1, largeSize, largeSize + 1, largeSize - 21}, 8},
	}
	for _, tt := range tests {
		var frames [][]byte
		for i, n := range tt.sizes {
			frames = append(frames, bytes.Repeat([]byte{'a' + byte(i%26)}, n))
		}
		w := new(writes)
		tr := New(half{w, w}, tt.framing, nil)
		if err := tr.Write(frames...); err != nil {
			t.Fatal(err)
		}
		if w.n > tt.maxWrites {
			t.Errorf("%v: %d writes, want %d at most", tt.sizes, w.n, tt.maxWrites)
		}
		for i := range frames {
			if got, err := tr.Read(); err != nil || !bytes.Equal(got, frames[i]) {
				t.Errorf("%v: frame %d is %.20q, %v", tt.sizes, i, got, err)
			}
		}
	}
}

func TestWriteReplacesLineBreaks(t *testing.T) {
	for _, n := range []int{1, 50_000} {
		in := bytes.Repeat([]byte("{\n\t\"a\":\r\n1}"), n)
		before := bytes.Clone(in)
		w := new(writes)
		if err := New(half{nil, w}, NDJSON, nil).Write(in, in); err != nil {
			t.Fatal(err)
		}
		want := strings.Repeat("{ \t\"a\":  1}", n) + "\n"
		if got := w.String(); got != want+want {
			t.Errorf("wrote %.100q", got)
		}
		if !bytes.Equal(in, before) {
			t.Error("the caller's frame has changed")
		}
		w = new(writes)
		if err := New(half{nil, w}, Header, nil).Write(in); err != nil ||
			!bytes.HasSuffix(w.Bytes(), in) {
			t.Errorf("a header needs no change: %.50q, %v", w.String(), err)
		}
	}
}

func TestWriteErrorIsFinal(t *testing.T) {
	a, b := io.Pipe()
	a.Close()
	tr := New(half{nil, b}, NDJSON, nil)
	first := tr.Write([]byte("{}"))
	if !errors.Is(first, io.ErrClosedPipe) {
		t.Fatal(first)
	}
	if again := tr.Write(); !errors.Is(again, first) {
		t.Errorf("then %v", again)
	}
}

func TestTryWrite(t *testing.T) {
	for name, connect := range connections(t) {
		for _, framing := range []Framing{NDJSON, Header, Raw, Detect} {
			t.Run(fmt.Sprint(name, "/", framing), func(t *testing.T) {
				ra, rb := connect(t)
				a, b := New(ra, framing, nil), New(rb, framing, nil)
				try, ok := a.(farcall.TryWriter)
				if !ok {
					t.Skip("cannot")
				}
				const small, large = 300, 700_000
				frame := func(i int) []byte {
					size := small
					if i%7 == 6 {
						size = large
					}
					return bytes.Repeat([]byte{'a' + byte(i%26)}, size)
				}
				sent := 0
				send := func(n int) [][]byte {
					var frames [][]byte
					for range n {
						frames = append(frames, frame(sent))
						sent++
					}
					return frames
				}
				for rests := 0; rests < 2; rests++ { // the second time there is a rest already
					done, err := try.TryWrite(send(5)...)
					if err != nil {
						t.Fatal(err)
					}
					if done { // the system takes more later than it said
						rests = -1
					}
				}
				written, last := make(chan error), send(4)
				go func() { written <- errors.Join(a.Write(last...), a.Write()) }()
				for i := range sent {
					if got, err := b.Read(); err != nil || !bytes.Equal(got, frame(i)) {
						t.Fatalf("frame %d: got %.10q of %d bytes, %v", i, got, len(got), err)
					}
				}
				if err := <-written; err != nil {
					t.Fatal(err)
				}
				if done, err := try.TryWrite([]byte("{}")); !done || err != nil {
					t.Errorf("with room again: %v, %v", done, err)
				}
				a.Close()
				if _, err := try.TryWrite([]byte("{}")); !errors.Is(err, farcall.ErrClosed) {
					t.Errorf("after Close: %v", err)
				}
				b.Close()
			})
		}
	}
}

// TestBoundedMemory sends what is far over the limit and watches the heap.
func TestBoundedMemory(t *testing.T) {
	const size, limit = 256 << 20, 1 << 20
	for _, framing := range []Framing{NDJSON, Header, Raw, Detect} {
		ra, rb := socketPair(t, "tcp", "127.0.0.1:0")
		go func() {
			switch framing {
			case Header:
				fmt.Fprintf(ra, "Content-Length: %d\r\n\r\n", size)
			case Raw, Detect:
				_, _ = io.WriteString(ra, `["`)
			}
			chunk := bytes.Repeat([]byte("x"), 1<<20)
			for range size / len(chunk) {
				if _, err := ra.Write(chunk); err != nil {
					return
				}
			}
			_, _ = io.WriteString(ra,
				map[Framing]string{
					NDJSON: "\n{}\n", Header: "Content-Length: 2\r\n\r\n{}", Raw: "\"]{}",
					Detect: "\"]{}",
				}[framing])
		}()
		tr := New(rb, framing, &Options{MaxMessage: limit})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := tr.Read(); !errors.Is(err, jsonrpc.TooLarge) {
			t.Fatal(err)
		}
		if got, err := tr.Read(); err != nil || string(got) != "{}" {
			t.Fatalf("then %q, %v", got, err)
		}
		if race.Enabled {
			// The detector's sync.Pool drops buffers at random, so what was allocated
			// says nothing there; what is held does.
			runtime.GC()
		}
		runtime.ReadMemStats(&after)
		grown := int64(after.TotalAlloc) - int64(before.TotalAlloc)
		if race.Enabled {
			grown = int64(after.HeapAlloc) - int64(before.HeapAlloc)
		}
		if grown > 8*limit {
			t.Errorf("framing %d: %d bytes were allocated for a limit of %d", framing, grown, limit)
		}
	}
}

// TestAnnouncedLength: a length alone costs nothing.
func TestAnnouncedLength(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		tr := New(half{strings.NewReader("Content-Length: 100000000\r\n\r\n{}"), nil}, Header,
			&Options{MaxMessage: 1 << 30})
		if _, err := tr.Read(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := (after.TotalAlloc - before.TotalAlloc) / 100; grown > 200_000 {
		t.Errorf("%d bytes each", grown)
	}
}

func TestDial(t *testing.T) {
	pool, cert := certificate(t)
	for _, secure := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o := new(Options)
		if secure {
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
			o.TLS = &tls.Config{RootCAs: pool}
		}
		done := make(chan error)
		go func() {
			c, err := l.Accept()
			if err == nil {
				tr := New(c, Header, nil)
				var frame []byte
				if frame, err = tr.Read(); err == nil {
					err = tr.Write(frame)
				}
				tr.Close()
			}
			done <- err
		}()
		tr, err := Dial(t.Context(), "tcp", l.Addr().String(), Header, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Write([]byte("[]")); err != nil {
			t.Error(err)
		}
		if got, err := tr.Read(); err != nil || string(got) != "[]" {
			t.Errorf("got %q, %v", got, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		tr.Close()
		l.Close()
		if _, err := Dial(t.Context(), "tcp", l.Addr().String(), Header, o); err == nil ||
			!strings.HasPrefix(err.Error(), "stream: dial tcp") {
			t.Errorf("no listener: %v", err)
		}
	}
	if _, err := Dial(t.Context(), "udp", "127.0.0.1:1", NDJSON, nil); err == nil {
		t.Error("udp has no stream")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, "tcp", "127.0.0.1:1", NDJSON, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
