package raw

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// listen accepts connections on a port of this machine until the test ends.
func listen(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func dialTCP(
	address string, framing stream.Framing,
) func(context.Context) (farcall.Transport, error) {
	return func(ctx context.Context) (farcall.Transport, error) {
		return stream.Dial(ctx, "tcp", address, framing, nil)
	}
}

// overTransports returns what serves connections, over each transport that there
// is, and a dialler for it.
func overTransports(
	t *testing.T, serve func(farcall.Transport),
) map[string]func(context.Context) (farcall.Transport, error) {
	t.Helper()
	dials := map[string]func(context.Context) (farcall.Transport, error){
		"pipe": func(context.Context) (farcall.Transport, error) {
			ours, theirs := farcall.Pipe()
			go serve(theirs)
			return ours, nil
		},
	}
	for name, framing := range map[string]stream.Framing{
		"lines":   stream.NDJSON,
		"headers": stream.Header,
	} {
		dials[name] = dialTCP(listen(t, func(c net.Conn) { serve(stream.New(c, framing, nil)) }), framing)
	}
	var wg sync.WaitGroup
	ws := httptest.NewServer(wsrpc.NewHandler(func(tr farcall.Transport, _ *http.Request) {
		wg.Go(func() { serve(tr) })
	}, nil))
	t.Cleanup(func() { ws.Close(); wg.Wait() })
	dials["websocket"] = func(ctx context.Context) (farcall.Transport, error) {
		return wsrpc.Dial(ctx, strings.Replace(ws.URL, "http", "ws", 1), nil)
	}
	return dials
}

// Every transport in front of every other.
func TestTransports(t *testing.T) {
	t.Parallel()
	mux := newServer()
	backs := map[string]*Options{"http": overHTTP(t, mux)}
	for name, dial := range overTransports(t, func(tr farcall.Transport) {
		<-farcall.NewPeer(tr, mux, nil).Done()
	}) {
		backs[name] = &Options{Dial: dial}
	}
	for back, o := range backs {
		t.Run("to "+back, func(t *testing.T) {
			t.Parallel()
			u := open(t, o)
			for front, dial := range overTransports(t, func(tr farcall.Transport) {
				_ = u.Pipe(context.Background(), tr)
			}) {
				t.Run("from "+front, func(t *testing.T) {
					tr, err := dial(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					client := farcall.NewPeer(tr,
						farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
							return r.Params, nil
						}), nil)
					t.Cleanup(func() { client.Close() })
					converse(t, client, back != "http")
				})
			}
			s := httptest.NewServer(httprpc.NewHandler(u, nil))
			t.Cleanup(s.Close)
			t.Run("from http", func(t *testing.T) {
				x, err := httprpc.Dial(s.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				client := farcall.NewClient(x, nil, nil)
				t.Cleanup(func() { client.Close() })
				converse(t, client, false)
			})
		})
	}
}

// converse does what a client may do.
func converse(t *testing.T, client *farcall.Peer, asks bool) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			got, err := farcall.Call[jsonrpc.Raw](t.Context(), client, "echo", []int{i})
			if want := fmt.Sprintf("[%d]", i); string(got) != want || err != nil {
				t.Errorf("%s, %v, want %s", got, err, want)
			}
		})
	}
	wg.Wait()
	var wire *jsonrpc.Error
	if err := client.Call(t.Context(), "fail", nil, nil); !errors.As(err, &wire) || wire.Code != 17 ||
		string(wire.Data) != `{"a": 1.0}` {
		t.Error(err)
	}
	n := 0
	for v, err := range farcall.Stream[int](t.Context(), client, "count", []int{200}) {
		if v != n || err != nil {
			t.Fatalf("%d, %v, want %d", v, err, n)
		}
		n++
	}
	if n != 200 {
		t.Errorf("%d values", n)
	}
	got, err := farcall.Call[string](
		farcall.WithTrace(t.Context(),
			farcall.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}), client,
		"trace", nil)
	if !strings.HasPrefix(got, "00-4bf92f") || err != nil {
		t.Error(got, err)
	}
	if err := client.Notify(t.Context(), "echo", nil); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if err := client.Call(ctx, "hang", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if asks {
		got, err := farcall.Call[jsonrpc.Raw](t.Context(), client, "ask", []int{5})
		if string(got) != "[5]" || err != nil {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// exchanger is an upstream that the test plays itself.
type exchanger func(ctx context.Context, frame []byte, reply func([]byte) error) error

func (x exchanger) Exchange(ctx context.Context, frame []byte, reply func([]byte) error) error {
	return x(ctx, frame, reply)
}
func (exchanger) Close() error { return nil }

// To an exchanger notifications stay in order, and a call comes after those
// before it. Calls overtake each other, up to the limit.
func TestExchangesOrder(t *testing.T) {
	t.Parallel()
	const pairs = 10_000
	var o ordered
	u := open(t,
		&Options{Exchanger: exchanger(func(
			_ context.Context, frame []byte, reply func([]byte) error,
		) error {
			if id, ok := strings.CutPrefix(string(frame), `{"jsonrpc":"2.0","id":`); ok {
				id, _, _ = strings.Cut(id, ",")
				n, _ := strconv.Atoi(id)
				o.mu.Lock()
				if o.next <= n {
					o.bad = append(o.bad, string(frame))
				}
				o.mu.Unlock()
				return reply([]byte(result(id, "[]")))
			}
			o.see(frame)
			return nil
		})})
	p := pipeTo(t, u)
	go func() {
		for i := range pairs {
			_ = p.Write(
				fmt.Appendf(nil,
					`{"jsonrpc":"2.0","method":"textDocument/didChange","params":{"n":%d,"text":""}}`, i))
			_ = p.Write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"textDocument/completion"}`, i))
		}
	}()
	seen := map[string]bool{}
	for range pairs {
		got, err := p.Read()
		if err != nil || seen[string(got)] {
			t.Fatal(string(got), err)
		}
		seen[string(got)] = true
	}
	if len(o.bad) > 0 {
		t.Errorf("%d out of order, the first %s", len(o.bad), o.bad[0])
	}
}

// Whatever an exchange comes to, the call gets one answer.
func TestExchangesFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := New(
			&Options{
				Name: "up", MaxMessage: 1000,
				Exchanger: exchanger(func(ctx context.Context, frame []byte, reply func([]byte) error) error {
					switch {
					case bytes.Contains(frame, []byte("nothing")):
						return nil
					case bytes.Contains(frame, []byte("half")):
						return reply([]byte(`[` + result("1", "1") + `]`))
					case bytes.Contains(frame, []byte("garbage")):
						return reply([]byte("<html>"))
					case bytes.Contains(frame, []byte("refused")):
						return &net.OpError{Op: "dial", Err: errors.New("refused")}
					case bytes.Contains(frame, []byte("broken")):
						return io.ErrUnexpectedEOF
					case bytes.Contains(frame, []byte("large")):
						return reply([]byte(result("1", `"`+strings.Repeat("x", 1000)+`"`)))
					case bytes.Contains(frame, []byte("twice")):
						return errors.Join(reply([]byte(result("1", "1"))), errors.New("and then broken"))
					}
					<-ctx.Done()
					return ctx.Err()
				}),
			})
		ours, theirs := farcall.Pipe()
		p := &piped{ours, make(chan error, 1)}
		go func() { p.done <- u.Pipe(context.Background(), theirs) }()
		for _, c := range []struct {
			method string
			want   []string
		}{
			{"nothing", []string{"-32603", `"sent":"unknown"`}},
			{"garbage", []string{"-32603", `"sent":"unknown"`}},
			{"refused", []string{"-32008", `"sent":"no"`}},
			{"broken", []string{"-32008", `"sent":"unknown"`}},
			{"large", []string{"-32012", `"sent":"unknown"`}},
			{"twice", []string{`"result":1`}},
			{"slow", []string{"-32009", `"sent":"unknown"`}},
		} {
			p.send(t, call("1", c.method, "[]"))
			p.expectLike(t, append(c.want, `"id":1`)...)
		}
		p.send(t, "["+call("1", "half", "[]")+","+call("2", "half", "[]")+"]")
		p.expect(t, "["+result("1", "1")+"]")
		p.expectLike(t, "[", "-32603", `"id":2`)
		p.send(t, call("3", "slow", "[]"),
			`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":3}}`)
		p.expectLike(t, "-32800", `"id":3`)
		p.Close()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		shut(t, u)
	})
}

// Calls beyond the limit wait, and so does anyone who sends them.
func TestExchangesBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, most := 0, 0
		var mu sync.Mutex
		u := New(
			&Options{
				Name: "up", MaxInFlight: 5,
				Exchanger: exchanger(func(_ context.Context, frame []byte, reply func([]byte) error) error {
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					<-time.After(time.Second)
					mu.Lock()
					running--
					mu.Unlock()
					return reply(frame) // no answer, but it goes through
				}),
			})
		ours, theirs := farcall.Pipe()
		done := make(chan error, 1)
		go func() { done <- u.Pipe(context.Background(), theirs) }()
		p := &piped{ours, done}
		for i := range 20 {
			p.send(t, call(strconv.Itoa(i), "m", "[]"))
		}
		for range 40 { // the request itself, and that it was not answered
			if _, err := p.Read(); err != nil {
				t.Fatal(err)
			}
		}
		if most != 5 {
			t.Errorf("%d at once", most)
		}
		p.Close()
		<-done
		synctest.Wait()
		shut(t, u)
	})
}

// A result of 50 MB goes through while the reader waits. What is held is one
// frame, and it is given back. Not parallel: it measures.
func TestBigResult(t *testing.T) {
	const size = 50 << 20
	for name, framing := range map[string]stream.Framing{
		"lines":   stream.NDJSON,
		"headers": stream.Header,
	} {
		t.Run(name, func(t *testing.T) {
			head, tail := `{"jsonrpc":"2.0","id":1,"result":"`, `"}`
			server := listen(t, func(c net.Conn) {
				defer c.Close()
				r := bufio.NewReaderSize(c, 1<<10)
				if _, err := r.ReadString('}'); err != nil {
					return
				}
				if framing == stream.Header {
					fmt.Fprintf(c, "Content-Length: %d\r\n\r\n", len(head)+size+len(tail))
				}
				chunk := bytes.Repeat([]byte("x"), 1<<20)
				_, _ = io.WriteString(c, head)
				for range size / len(chunk) {
					_, _ = c.Write(chunk)
				}
				_, _ = io.WriteString(c, tail+"\n")
				_, _ = io.Copy(io.Discard, c)
			})
			u := open(t, &Options{Dial: dialTCP(server, framing)})
			front := listen(t, func(c net.Conn) {
				_ = u.Pipe(context.Background(), stream.New(c, framing, nil))
			})
			client, err := net.Dial("tcp", front)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			request := call("1", "big", "[]")
			if framing == stream.Header {
				request = fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(request), request)
			}
			before := heap()
			if _, err := io.WriteString(client, request+"\n"); err != nil {
				t.Fatal(err)
			}
			// The answer has begun to come: all of it has been read.
			if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			held := heap() - before
			n, err := io.CopyN(io.Discard, client, int64(len(head)+size+len(tail)-1))
			if err != nil {
				t.Fatal(n, err)
			}
			// The call has ended for the client before its goroutine has returned.
			after := heap() - before
			for deadline := time.Now().Add(5 * time.Second); after > 2<<20 && time.Now().Before(deadline); {
				after = heap() - before
			}
			t.Logf("a result of %d MiB: %d KiB held without a reader, %d KiB after", size>>20, held>>10,
				after>>10)
			if held > size*3/2 || after > 2<<20 {
				t.Errorf("%d held, %d after", held, after)
			}
		})
	}
}

// heap returns the bytes that are in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools hold goes with the second one
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
