package http1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A script is the server's end of a connection on which a client sends pieces, then
// half-closes it, and reads everything. Reads do not block.
type script struct {
	mu     sync.Mutex
	pieces [][]byte
	out    bytes.Buffer
	closed chan struct{}
	once   sync.Once
}

func (s *script) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pieces) > 0 && len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	s.pieces[0] = s.pieces[0][n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *script) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *script) LocalAddr() net.Addr              { return at(80) }
func (s *script) RemoteAddr() net.Addr             { return at(1024) }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

func at(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }

// conns is a listener of scripts.
type conns struct {
	next chan net.Conn
	done chan struct{}
	once sync.Once
}

func (c *conns) Accept() (net.Conn, error) {
	select {
	case conn := <-c.next:
		return conn, nil
	case <-c.done:
		return nil, net.ErrClosed
	}
}

func (c *conns) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

func (c *conns) Addr() net.Addr { return &net.TCPAddr{} }

// A pair is one handler behind net/http alone, and behind a Server in front of it.
type pair struct {
	std, front *conns
	server     *Server
}

type connKey struct{}

func newPair(tb testing.TB, h http.Handler) *pair {
	tb.Helper()
	var wg sync.WaitGroup
	make1 := func() (*http.Server, *conns) {
		hs := &http.Server{
			Handler: h, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout: time.Minute,
			ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
				return context.WithValue(ctx, connKey{}, "conn")
			},
		}
		return hs, &conns{next: make(chan net.Conn), done: make(chan struct{})}
	}
	hs, std := make1()
	behind, front := make1()
	s := New(behind, func(path string) bool { return path != "/slow" })
	wg.Go(func() { _ = hs.Serve(std) })
	wg.Go(func() { _ = behind.Serve(NewFront(front, s)) })
	tb.Cleanup(func() {
		s.Close()
		_ = errors.Join(hs.Close(), behind.Close())
		wg.Wait()
	})
	return &pair{std, front, s}
}

// talk sends pieces and returns all that is answered. The connection is closed when
// the server has closed it.
func (c *conns) talk(pieces [][]byte) string {
	s := &script{closed: make(chan struct{})}
	for _, p := range pieces {
		s.pieces = append(s.pieces, bytes.Clone(p))
	}
	c.next <- s
	<-s.closed
	s.mu.Lock()
	defer s.mu.Unlock()
	return undated(s.out.String())
}

// undated takes the time from answers.
func undated(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "\r\nDate: ")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		date, rest, _ := strings.Cut(after, "\r\n")
		if _, err := http.ParseTime(date); err != nil {
			b.WriteString("\r\nDate: " + date)
		}
		text = "\r\n" + rest
	}
}

// same reports how the answers to the same bytes differ.
func (p *pair) same(pieces [][]byte) error {
	want, got := p.std.talk(pieces), p.front.talk(pieces)
	if got != want {
		return fmt.Errorf("net/http answers %d bytes\n%.900q\nwe answer %d\n%.900q", len(want), want,
			len(got), got)
	}
	return nil
}

// behaviours are what handlers do. A request names one in X-Do.
var behaviours = map[string]func(w http.ResponseWriter, r *http.Request){
	"":        dump,
	"nothing": func(http.ResponseWriter, *http.Request) {},
	"short":   func(w http.ResponseWriter, _ *http.Request) { put(w, "hello") },
	"2048":    func(w http.ResponseWriter, _ *http.Request) { put(w, strings.Repeat("a", 2048)) },
	"2049":    func(w http.ResponseWriter, _ *http.Request) { put(w, strings.Repeat("a", 2049)) },
	"2048+1": func(w http.ResponseWriter, _ *http.Request) {
		put(w, strings.Repeat("a", 2048))
		put(w, "b")
	},
	"100x100": func(w http.ResponseWriter, _ *http.Request) { putEach(w, 100, 100) },
	"70000":   func(w http.ResponseWriter, _ *http.Request) { put(w, strings.Repeat("a", 70000)) },
	"3x40000": func(w http.ResponseWriter, _ *http.Request) { putEach(w, 3, 40000) },
	"html": func(w http.ResponseWriter, _ *http.Request) {
		put(w, "<html>"+strings.Repeat("a", 600))
	},
	"html later": func(w http.ResponseWriter, _ *http.Request) { put(w, "a"); put(w, "<html>") },
	"empty":      func(w http.ResponseWriter, _ *http.Request) { put(w, "") },
	"length": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Content-Length", "5")
		put(w, "hello")
	},
	"too short": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Content-Length", "9")
		put(w, "hello")
	},
	"too long": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Content-Length", "2")
		put(w, "hello")
	},
	"no length": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Content-Length", "x")
		put(w, "hello")
	},
	"length 0": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Content-Length", "0")
		w.WriteHeader(http.StatusOK)
	},
	"204": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		put(w, "x")
	},
	"304": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Content-Type", "a/b")
		set(w, "Content-Length", "5")
		w.WriteHeader(http.StatusNotModified)
	},
	"202": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
	"299": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299); put(w, "x") },
	"418 late": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
		put(w, "x")
	},
	"103": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Link", "x")
		w.WriteHeader(http.StatusEarlyHints)
		put(w, "x")
	},
	"flush": func(w http.ResponseWriter, _ *http.Request) {
		put(w, "a")
		flush(w)
		put(w, "b")
		put(w, "c")
		flush(w)
		flush(w)
	},
	"flush first": func(w http.ResponseWriter, _ *http.Request) { flush(w); put(w, "a") },
	"events": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Content-Type", "text/event-stream")
		for range 3 {
			put(w, "data: a\n\n")
			flush(w)
		}
	},
	"close": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Connection", "close")
		put(w, "x")
	},
	"close, odd": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Connection", "Close, x")
		put(w, "x")
	},
	"keep": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Connection", "keep-alive")
		put(w, "x")
	},
	"date": func(w http.ResponseWriter, _ *http.Request) { set(w, "Date", "then"); put(w, "x") },
	"no date": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil
		put(w, "x")
	},
	"no type": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		put(w, "<html>")
	},
	"encoding": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Content-Encoding", "gzip")
		put(w, "<html>")
	},
	"identity": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Transfer-Encoding", "identity")
		put(w, "x")
	},
	"chunked": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Transfer-Encoding", "chunked")
		put(w, "x")
	},
	"odd coding": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Transfer-Encoding", "odd")
		put(w, "x")
	},
	"two lengths": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "Transfer-Encoding", "chunked")
		set(w, "Content-Length", "1")
		put(w, "x")
	},
	"splitting": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "X-Y", "a\r\nX-Z: b\n\nc ")
		set(w, "Bad Name", "x")
		w.Header()["X-2"] = []string{"a", "b"}
		put(w, "x")
	},
	"header late": func(w http.ResponseWriter, _ *http.Request) {
		set(w, "X-1", "a")
		w.WriteHeader(http.StatusOK)
		set(w, "X-2", "b")
		put(w, "x")
	},
	"header held": func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("X-1", "a")
		w.WriteHeader(http.StatusOK)
		h.Set("X-2", "b")
		put(w, "x")
	},
	"part": func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 2))
		put(w, "x")
	},
	"close body": func(w http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close()
		n, err := r.Body.Read(make([]byte, 9))
		put(w, fmt.Sprint(n, err))
	},
	"duplex": func(w http.ResponseWriter, r *http.Request) {
		err := http.NewResponseController(w).EnableFullDuplex()
		put(w, fmt.Sprint(err))
		flush(w)
		b, err := io.ReadAll(r.Body) // what one Read returns differs
		put(w, fmt.Sprint(string(b), err))
	},
	"deadlines": func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		b, err := io.ReadAll(r.Body)
		put(w, fmt.Sprint(len(b), err, c.SetReadDeadline(time.Now().Add(time.Hour)),
			c.SetWriteDeadline(time.Now().Add(time.Hour))))
	},
	"panic": func(http.ResponseWriter, *http.Request) { panic("on purpose") },
	"panic later": func(w http.ResponseWriter, _ *http.Request) {
		put(w, "x")
		flush(w)
		panic(http.ErrAbortHandler)
	},
}

func put(w io.Writer, text string)                  { _, _ = io.WriteString(w, text) }
func set(w http.ResponseWriter, name, value string) { w.Header().Set(name, value) }
func flush(w http.ResponseWriter)                   { w.(http.Flusher).Flush() }
func putEach(w http.ResponseWriter, times, size int) {
	b := bytes.Repeat([]byte("a"), size)
	for range times {
		_, _ = w.Write(b)
	}
}

// dump answers with all that a handler can know of a request.
func dump(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	_, again := r.Body.Read(make([]byte, 1))
	ctx := r.Context()
	_, bounded := ctx.Deadline()
	set(w, "Content-Type", "text/plain")
	fmt.Fprintln(w, r.Method, r.URL, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Host, r.RemoteAddr,
		r.RequestURI, r.ContentLength, r.Close, r.TransferEncoding, r.Trailer, r.TLS, r.Form, r.Pattern,
		r.GetBody == nil, r.Body == http.NoBody)
	fmt.Fprintln(w, ctx.Value(connKey{}), ctx.Value(http.LocalAddrContextKey),
		ctx.Value(http.ServerContextKey) != nil, bounded)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(w, "%q: %q\n", name, r.Header[name])
	}
	fmt.Fprintf(w, "%q %v %v\n", body, err, again)
}

func behave(w http.ResponseWriter, r *http.Request) {
	if f := behaviours[r.Header.Get("X-Do")]; f != nil {
		f(w, r)
		return
	}
	dump(w, r)
}

// inBubble calls f in fake time: net/http waits half a second behind a body that was
// cut.
func inBubble(t *testing.T, f func(p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newPair(t, http.HandlerFunc(behave))) })
}

// TestAnswers compares the answers of each behaviour, and of requests behind it.
func TestAnswers(t *testing.T) {
	for name := range behaviours {
		one := post(cl5, "X-Do: "+name+"\r\n") + "hello"
		empty := post("Content-Length: 0\r\n", "X-Do: "+name+"\r\n")
		large := post("Content-Length: 40000\r\n", "X-Do: "+name+"\r\n") + strings.Repeat("a", 40000)
		get := "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
		texts := []string{
			one, empty, large, one + one, one + empty + one, large + one, one + get, one + get + one,
			"\r\n" + one, one + "\r\n" + one, one + "\r\n\r\n" + one, one + "\r\n\r\n\r\n" + one,
			one + "\r\n\r\n\n" + get, one + "\r\n", one + "\r\n\r\n",
			one[:len(one)-2], one + one[:20], one + one[:26], large[:2000],
			one + "o", one + "GET", one + "\r\nG", one + "GETx", one + "\x00",
		}
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(p *pair) {
				for _, text := range texts {
					for _, pieces := range [][][]byte{{[]byte(text)}, halves(text, "\r\n\r\n"), each(text)} {
						if err := p.same(pieces); err != nil {
							t.Fatalf("%.300q in %d pieces: %v", text, len(pieces), err)
						}
					}
				}
			})
		})
	}
}

// halves cuts a text behind the first of a mark.
func halves(text, mark string) [][]byte {
	at := strings.Index(text, mark) + len(mark)
	return [][]byte{[]byte(text[:at]), []byte(text[at:])}
}

// each cuts a text into bytes, where that is not too much.
func each(text string) (pieces [][]byte) {
	if len(text) > 2000 {
		return halves(text, "X-Do")
	}
	for i := range len(text) {
		pieces = append(pieces, []byte(text[i:i+1]))
	}
	return pieces
}

// TestVectorsAnswers compares the answers to the vectors.
func TestVectorsAnswers(t *testing.T) {
	inBubble(t, func(p *pair) {
		for _, v := range vectors {
			for _, text := range []string{
				v.text, post(cl5) + "hello" + v.text, v.text + post(cl5) + "hello",
			} {
				if err := p.same([][]byte{[]byte(text)}); err != nil {
					t.Errorf("%s: %.300q: %v", v.name, text, err)
				}
			}
		}
	})
}

// FuzzExchange compares the answers to any bytes in any split.
func FuzzExchange(f *testing.F) {
	for _, v := range vectors {
		if len(v.text) < 4<<10 {
			f.Add([]byte(v.text), []byte{})
			f.Add([]byte(post(cl5)+"hello"+v.text), []byte{30, 0, 60})
		}
	}
	f.Add([]byte(post("Content-Length: 4\r\n")+"hello"), []byte{})
	for name := range behaviours {
		one := post(cl5, "X-Do: "+name+"\r\n") + "hello"
		f.Add([]byte(one+one), []byte{30, 0, 60})
	}
	f.Fuzz(func(t *testing.T, text, cuts []byte) {
		if len(text) > 64<<10 {
			return
		}
		inBubble(t, func(p *pair) {
			if err := p.same(parts(text, cuts)); err != nil {
				t.Fatal(err)
			}
		})
	})
}
