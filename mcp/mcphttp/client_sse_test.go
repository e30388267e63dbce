package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// oldServer is a server of 2024-11-05: what is sent to out goes to the one
// event stream, as it is.
type oldServer struct {
	first string // the first event
	out   chan string
	posts recorder
	post  http.HandlerFunc // nil: 202
}

func (s *oldServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		if r.URL.Hostname() != "server.test" || r.URL.RequestURI() != "/messages?id=7" {
			http.Error(w, r.URL.String(), http.StatusMethodNotAllowed)
			return
		}
		s.posts.note(r)
		if s.post != nil {
			s.post(w, r)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "Accepted")
		return
	}
	events(w, s.first)
	for {
		select {
		case part, ok := <-s.out:
			if !ok {
				return
			}
			events(w, part)
		case <-r.Context().Done():
			return
		}
	}
}

// answer takes a POST and sends a frame.
func (s *oldServer) answer(frame string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		s.out <- event("", frame)
	}
}

func newOldServer() *oldServer {
	return &oldServer{first: "event: endpoint\ndata: /messages?id=7\n\n", out: make(chan string)}
}

func ignore(context.Context, []byte) error { return nil }

func TestSSE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOldServer()
		x := offline(t, s.ServeHTTP, nil)
		var unasked []string
		if err := x.SSE(t.Context(), func(_ context.Context, f []byte) error {
			unasked = append(unasked, string(f))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		progress := `{"jsonrpc":"2.0","method":"notifications/progress",` +
			`"params":{"progressToken":"two","progress":1}}`
		question := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		ctx, cancel := context.WithCancel(t.Context())
		listened := make(chan error)
		go func() { listened <- x.Listen(ctx, nil, nil) }()
		type answer struct {
			frames []string
			err    error
		}
		answers := [2]chan answer{make(chan answer, 1), make(chan answer, 1)}
		for i, frame := range []string{
			call(1, "x"), `{"jsonrpc":"2.0","id":2,"method":"y","params":{"_meta":{"progressToken":"two"}}}`,
		} {
			go func() {
				frames, err := exchange(t.Context(), x, frame)
				answers[i] <- answer{frames, err}
			}()
		}
		synctest.Wait()
		s.out <- event("", notice) + event("", progress) + event("", question) +
			"event: other\ndata: x\n\n" + event("", result(2)) + "event: message\n" + event("", result(1))
		for i, want := range [][]string{{result(1)}, {progress, result(2)}} {
			if a := <-answers[i]; a.err != nil || !slices.Equal(a.frames, want) {
				t.Errorf("%d: %q, %v", i, a.frames, a.err)
			}
		}
		if got, err := exchange(t.Context(), x, notice); err != nil || got != nil {
			t.Error(got, err)
		}
		synctest.Wait()
		cancel()
		if err := <-listened; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if want := []string{notice, question}; !slices.Equal(unasked, want) {
			t.Errorf("%q", unasked)
		}
		// A call that is cancelled.
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := exchange(ctx, x, call(3, "slow")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait()
		posts := s.posts.seen()
		if want := `POST {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,` +
			`"reason":"deadline exceeded"}}`; posts[len(posts)-1] != want {
			t.Errorf("%q", posts)
		}
		// The end of the stream is the end of all.
		go func() {
			frames, err := exchange(t.Context(), x, call(4, "x"))
			answers[0] <- answer{frames, err}
		}()
		synctest.Wait()
		close(s.out)
		if a := <-answers[0]; !errors.Is(a.err, mcphttp.ErrConnect) ||
			!strings.Contains(a.err.Error(), "ended") {
			t.Error(a.err)
		}
		for _, frame := range []string{call(5, "x"), notice} {
			if _, err := exchange(t.Context(), x, frame); !errors.Is(err, mcphttp.ErrConnect) {
				t.Error(err)
			}
		}
		if err := x.Listen(t.Context(), nil, nil); !errors.Is(err, mcphttp.ErrConnect) {
			t.Error(err)
		}
		s.out = make(chan string)
		if err := x.SSE(t.Context(), ignore); err != nil {
			t.Fatal(err)
		}
		s.post = s.answer(result(6))
		if got, err := exchange(t.Context(), x, call(6, "x")); err != nil || len(got) != 1 {
			t.Error(got, err)
		}
	})
}

func TestSSERefuses(t *testing.T) {
	for _, c := range []struct {
		name, first string
		ok          bool
	}{
		{"relative", "event: endpoint\ndata: messages?id=7\n\n", true},
		{"absolute", "event: endpoint\ndata: http://server.test:80/messages?id=7\n\n", true},
		{"another host", "event: endpoint\ndata: http://evil.test/messages\n\n", false},
		{"another host without scheme", "event: endpoint\ndata: //evil.test/messages\n\n", false},
		{"another port", "event: endpoint\ndata: http://server.test:81/messages\n\n", false},
		{"another scheme", "event: endpoint\ndata: https://server.test/messages\n\n", false},
		{"no URL", "event: endpoint\ndata: http://[\n\n", false},
		{"a message first", event("", notice), false},
		{"nothing", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newOldServer()
				s.first = c.first
				x := offline(t, s.ServeHTTP, nil)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := x.SSE(ctx, ignore); c.ok != (err == nil) {
					t.Error(err)
				} else if c.first == "" && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if c.ok {
					cancel() // which does not end the stream
					synctest.Wait()
					s.post = s.answer(result(1))
					if _, err := exchange(t.Context(), x, call(1, "x")); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
	for _, answer := range []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, 200, "{}") },
		func(w http.ResponseWriter, _ *http.Request) { events(w, "event: end") },
	} {
		x := offline(t, answer, nil)
		if err := x.SSE(t.Context(), ignore); err == nil || errors.Is(err, mcphttp.ErrSessionLost) {
			t.Error(err)
		}
	}
}

func TestSSEPostFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOldServer()
		status := 404
		s.post = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }
		x := offline(t, s.ServeHTTP, nil)
		if err := x.SSE(t.Context(), ignore); err != nil {
			t.Fatal(err)
		}
		if _, err := exchange(t.Context(), x, call(1, "x")); !errors.Is(err, mcphttp.ErrSessionLost) {
			t.Error(err)
		}
		status = 400
		var e *mcphttp.StatusError
		if _, err := exchange(t.Context(), x, call(1, "x")); !errors.As(err, &e) {
			t.Error(err)
		}
		// A POST that hangs ends with the stream.
		s.post = func(_ http.ResponseWriter, r *http.Request) {
			close(s.out)
			<-r.Context().Done()
		}
		if _, err := exchange(t.Context(), x, call(1, "x")); !errors.Is(err, mcphttp.ErrConnect) {
			t.Error(err)
		}
	})
}

// TestSSEOrder has a frame taken before the answer that follows it is given to its call, also when
// it is the first one on the stream; a failure ends the stream.
func TestSSEOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOldServer()
		s.first += event("", notice)
		x := offline(t, s.ServeHTTP, nil)
		open, no := make(chan struct{}), errors.New("no more")
		n := 0
		if err := x.SSE(t.Context(), func(ctx context.Context, _ []byte) error {
			if n++; n == 2 {
				<-open
			}
			if n == 3 {
				return no
			}
			return ctx.Err()
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n != 1 {
			t.Errorf("%d frames were taken before anything else", n)
		}
		done := make(chan error, 1)
		go func() { _, err := exchange(t.Context(), x, call(1, "x")); done <- err }()
		s.out <- event("", notice) + event("", result(1))
		synctest.Wait()
		if len(done) > 0 {
			t.Error("answered before the notification was handled")
		}
		close(open)
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.out <- event("", notice)
		if err := x.Listen(t.Context(), nil, nil); !errors.Is(err, no) {
			t.Error(err)
		}
	})
}

func TestSSEClosesWhileInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOldServer()
		x := offline(t, s.ServeHTTP, nil)
		if err := x.SSE(t.Context(), ignore); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		go func() { _, err := exchange(t.Context(), x, call(1, "x")); ended <- err }()
		go func() { ended <- x.Listen(t.Context(), nil, nil) }()
		synctest.Wait()
		x.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, farcall.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

func ExampleClient_SSE() {
	c, err := mcphttp.Dial("http://127.0.0.1:1/sse", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	err = c.SSE(context.Background(), func(context.Context, []byte) error { return nil })
	fmt.Println(errors.Is(err, mcphttp.ErrConnect))
	// Output: true
}
