package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/race"
)

// A client is the other end of a connection that a Server serves in fake time.
type client struct {
	net.Conn
	t    *testing.T
	s    *Server
	r    *bufio.Reader
	log  *bytes.Buffer
	left chan []byte // what is for net/http; nil: the connection has ended
}

func connect(t *testing.T, h http.HandlerFunc) *client {
	t.Helper()
	c := &client{t: t, log: &bytes.Buffer{}, left: make(chan []byte, 1)}
	c.s = New(&http.Server{
		Handler: h, IdleTimeout: time.Minute, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(c.log, "", 0),
	}, func(string) bool { return true })
	c.join()
	t.Cleanup(c.s.Close)
	return c
}

// join opens a connection to the Server.
func (c *client) join() {
	ours, theirs := net.Pipe()
	c.Conn, c.r = ours, bufio.NewReader(ours)
	go func() {
		rest, ctx := c.s.Serve(theirs, nil)
		if ctx != nil {
			_ = theirs.Close()
		}
		c.left <- rest
	}()
	c.t.Cleanup(func() { _ = ours.Close() })
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// An answer is what a client sees of one.
type answer struct {
	status int
	close  bool
	body   string
}

// answer reads an answer.
func (c *client) answer() answer {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Close, string(body)}
}

// ends returns how long the connection lasts from now on.
func (c *client) ends() time.Duration {
	c.t.Helper()
	start := time.Now()
	if n, err := c.r.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		c.t.Fatalf("%d bytes, %v", n, err)
	}
	<-c.left
	return time.Since(start)
}

func echo(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(w, r.Body)
}

func within(t *testing.T, what string, got, from, to time.Duration) {
	t.Helper()
	if got < from || got > to {
		t.Errorf("%s: %v, not %v to %v", what, got, from, to)
	}
}

const hello = "POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"

func TestIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, echo)
		for range 3 {
			c.send(hello)
			c.answer()
			<-time.After(30 * time.Second)
		}
		for conn := range c.s.conns {
			if conn.buf != nil || conn.kept != nil {
				t.Error("an idle connection has buffers")
			}
		}
		c.send(hello)
		if a := c.answer(); a.body != "hello" {
			t.Errorf("the answer is %q", a.body)
		}
		within(t, "idle", c.ends(), time.Minute, time.Minute+2*everyTurn)
	})
}

func TestSlowHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, before := range []string{"", hello} {
			c := connect(t, echo)
			if before != "" {
				c.send(before)
				c.answer()
				<-time.After(20 * time.Second) // idle: it does not count
			}
			start := time.Now()
			for _, b := range []byte(hello) {
				if _, err := c.Write([]byte{b}); err != nil {
					break
				}
				<-time.After(time.Second)
			}
			within(t, "head", time.Since(start), 10*time.Second, 13*time.Second)
			<-c.left
		}
	})
}

// A client that leaves ends the context of a call that takes long, and only of that.
func TestClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		c := connect(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			start := time.Now()
			<-r.Context().Done()
			ended <- time.Since(start)
		})
		c.send(hello)
		<-time.After(time.Second)
		_ = c.Close()
		within(t, "context", <-ended, time.Second, time.Second)
		<-c.left
	})
}

// A call of less than a millisecond has no read beside it that notices a client that leaves.
func TestWatchBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *client
		c = connect(t, func(http.ResponseWriter, *http.Request) {
			<-time.After(watchAfter - 1)
			for _, want := range []bool{false, true} {
				c.s.mu.Lock()
				for one := range c.s.conns {
					one.watch.mu.Lock()
					if (one.watch.done != nil) != want {
						t.Errorf("whether there is a read that notices the client: not %v", want)
					}
					one.watch.mu.Unlock()
				}
				c.s.mu.Unlock()
				<-time.After(2 * watchAfter)
			}
		})
		c.send("POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		c.answer()
	})
}

// What arrives during a long call is the next request.
func TestWatchKeepsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		c := connect(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			<-time.After(time.Duration(calls.Add(1)) * 3 * watchAfter)
			if r.Context().Err() != nil {
				t.Error("the context has ended")
			}
			_, _ = w.Write(body)
		})
		for _, cut := range []int{1, 10, len(hello) - 2, len(hello)} {
			c.send(hello)
			<-time.After(5 * time.Microsecond)
			next := strings.Replace(hello, "hello", "again", 1)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for part := range strings.SplitSeq(next[:cut]+"|"+next[cut:], "|") {
					<-time.After(2 * watchAfter)
					c.send(part)
				}
			}()
			for _, want := range []string{"hello", "again"} {
				if a := c.answer(); a.body != want {
					t.Errorf("the answer is %q, not %q", a.body, want)
				}
			}
			<-sent
		}
	})
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, func(w http.ResponseWriter, r *http.Request) {
			<-time.After(time.Second)
			echo(w, r)
		})
		quiet := *c
		quiet.left = make(chan []byte, 1)
		quiet.join()
		quiet.send(hello)
		quiet.answer()
		c.send(hello)
		<-time.After(time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- c.s.Shutdown(t.Context()) }()
		within(t, "idle", quiet.ends(), 0, 0)
		if a := c.answer(); !a.close || a.body != "hello" {
			t.Errorf("Connection: close is %v, the body %q", a.close, a.body)
		}
		c.ends()
		if err := <-done; err != nil {
			t.Error(err)
		}
		another := *c
		another.left = make(chan []byte, 1)
		another.join()
		another.ends()
	})
}

func TestShutdownGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		c.send("POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		<-time.After(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		c.ends()
	})
}

func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, func(http.ResponseWriter, *http.Request) { panic("on purpose") })
		c.send(hello)
		c.ends()
		text := c.log.String()
		if !strings.Contains(text, "panic serving pipe: on purpose") ||
			!strings.Contains(text, "TestPanic") {
			t.Errorf("the log is %q", text)
		}
	})
}

// Deadlines hold where something waits, and not beyond the request.
func TestDeadlines(t *testing.T) {
	part := hello[:len(hello)-2]
	synctest.Test(t, func(t *testing.T) {
		var before *http.ResponseController
		c := connect(t, func(w http.ResponseWriter, r *http.Request) {
			ctl := http.NewResponseController(w)
			if before != nil {
				past := time.Unix(1, 0)
				err := errors.Join(before.SetReadDeadline(past), before.SetWriteDeadline(past))
				if !errors.Is(err, errOver) {
					t.Errorf("a deadline of a request that is over: %v", err)
				}
			}
			before = ctl
			start := time.Now()
			var err error
			if r.Header.Get("X-Now") != "" { // from another goroutine, while the body is read
				time.AfterFunc(2*time.Second, func() { _ = ctl.SetReadDeadline(time.Now()) })
			} else {
				err = ctl.SetReadDeadline(start.Add(2 * time.Second))
			}
			body, readErr := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			if len(body) == 5 {
				if err := ctl.SetReadDeadline(time.Unix(1, 0)); err != nil {
					t.Error(err)
				}
				_, _ = w.Write(body)
				return
			}
			if !errors.Is(readErr, os.ErrDeadlineExceeded) {
				t.Errorf("the body ends with %v", readErr)
			}
			within(t, "body", time.Since(start), 2*time.Second, 2*time.Second)
			w.WriteHeader(http.StatusRequestTimeout)
		})
		c.send(hello)
		c.answer()
		<-time.After(10 * time.Second)
		c.send(hello[:30]) // in parts: the read of the body waits
		<-time.After(time.Second)
		c.send(hello[30 : len(hello)-1])
		<-time.After(time.Second)
		c.send(hello[len(hello)-1:])
		c.answer()
		<-time.After(10 * time.Second)
		c.send(part)
		if a := c.answer(); a.status != http.StatusRequestTimeout || !a.close {
			t.Errorf("the answer is %d", a.status)
		}
		c.ends()
		c.join()
		c.send(strings.Replace(part, "Host", "X-Now: 1\r\nHost", 1))
		if a := c.answer(); a.status != http.StatusRequestTimeout {
			t.Errorf("the answer is %d", a.status)
		}
		c.ends()
	})
}

// A client that does not read is bounded by the deadline for writes, and the context ends.
func TestWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := make(chan time.Duration, 1)
		c := connect(t, func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			_ = http.NewResponseController(w).SetWriteDeadline(start.Add(20 * time.Second))
			_, err := w.Write(make([]byte, maxOut+1))
			if !errors.Is(err, os.ErrDeadlineExceeded) || r.Context().Err() == nil {
				t.Errorf("%v, and the context's error is %v", err, r.Context().Err())
			}
			took <- time.Since(start)
		})
		c.send("POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		within(t, "write", <-took, 20*time.Second, 20*time.Second+writeSlack)
		<-c.left
	})
}

// The context of a request ends with it, for all that was derived from it.
func TestRequestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctx, child context.Context
		var called, stopped atomic.Int32
		c := connect(t, func(_ http.ResponseWriter, r *http.Request) {
			ctx = r.Context() //nolint:fatcontext // it is looked at when the request has ended
			var cancel context.CancelFunc
			child, cancel = context.WithCancel(ctx)
			context.AfterFunc(child, cancel)
			context.AfterFunc(ctx, func() { called.Add(1) })
			if !context.AfterFunc(ctx, func() { stopped.Add(1) })() || ctx.Err() != nil {
				t.Error("the context has ended")
			}
		})
		c.send(hello)
		c.answer()
		<-child.Done()
		<-ctx.Done()
		synctest.Wait()
		cause := errors.Join(ctx.Err(), context.Cause(child))
		if called.Load() != 1 || stopped.Load() != 0 || !errors.Is(cause, context.Canceled) {
			t.Errorf("%d and %d calls, %v, %v", called.Load(), stopped.Load(), ctx.Err(), child.Err())
		}
		context.AfterFunc(ctx, func() { called.Add(1) })
		synctest.Wait()
		if called.Load() != 2 {
			t.Error("a function of a context that has ended was not called")
		}
	})
}

// A head that is not ours leaves with all its bytes, at any request.
func TestHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const get = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
		c := connect(t, echo)
		c.send(hello)
		c.answer()
		c.send(get + hello)
		if rest := <-c.left; string(rest) != get+hello {
			t.Errorf("the rest is %q", rest)
		}
	})
}

// TestAllocations counts what a request of a kept connection costs.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget")
	}
	const requests = 500
	one := post(cl5, "Content-Type: application/json\r\n", "Mcp-Session-Id: 0123456789abcdef\r\n",
		"Accept: application/json, text/event-stream\r\n", "User-Agent: test\r\n", "X-Own: 1\r\n") +
		"hello"
	text := []byte(strings.Repeat(one, requests))
	typed, body := []string{"application/json"}, make([]byte, 5)
	s := New(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctl := w.(interface{ SetWriteDeadline(t time.Time) error })
		_, _ = io.ReadFull(r.Body, body)
		w.Header()["Content-Type"] = typed
		_ = ctl.SetWriteDeadline(time.Now().Add(time.Minute))
		_, _ = w.Write(body)
	})}, func(string) bool { return true })
	t.Cleanup(s.Close)
	var buf bytes.Buffer
	n := testing.AllocsPerRun(20, func() {
		conn := &script{pieces: [][]byte{text}, closed: make(chan struct{})}
		buf.Reset()
		conn.out = buf
		s.Serve(conn, nil)
		buf = conn.out
	})
	// The exchange; the header of the request, two; that of the answer, two.
	if n /= requests; n > 5.5 {
		t.Errorf("%v allocations per request", n)
	}
	t.Logf("%v allocations per request", n)
}

// TestCut ends a connection behind each byte, after any number of requests.
func TestCut(t *testing.T) {
	inBubble(t, func(p *pair) {
		text := hello + post("X-Do: part\r\n", "Content-Length: 300000\r\n") + "hello"
		for i := range len(text) + 1 {
			if err := p.same([][]byte{[]byte(text[:i])}); err != nil {
				t.Errorf("cut at %d: %v", i, err)
			}
		}
	})
}
