package httprpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
)

// free waits until nothing of a budget is held any more.
func free(t *testing.T, b *farcall.Budget) {
	t.Helper()
	until := time.Now().Add(10 * time.Second)
	for {
		n, few := b.Used()
		if n+few == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d and %d bytes are held at the end", n, few)
		}
		<-time.After(time.Millisecond)
	}
}

// One caller fills the budget with a body that does not end and a call that does
// not return; it is refused at once, and another one works.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	b := farcall.NewBudget(4<<20, 0)
	mux := service(t)
	started, release := make(chan int64, 1), make(chan struct{})
	mux.Handle("wait", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		n, _ := b.Used()
		started <- n
		<-release
		return nil, nil
	}))
	mux.Handle("panic", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		panic("test")
	}))
	url := serve(t, httprpc.NewHandler(mux, &httprpc.Options{Budget: b}))
	large := func(method string, size int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":["` +
			strings.Repeat("x", size) + `"]}`
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		resp, err := http.Post(url, "application/json", strings.NewReader(large("wait", 900<<10)))
		if err == nil {
			resp.Body.Close()
		}
	}()
	if n := <-started; n < 900<<10 {
		t.Errorf("while it is handled it holds %d bytes", n)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = fmt.Fprintf(conn,
			"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
				"Content-Length: 40000000\r\n\r\n%s", large("echo", 8<<20)[:3<<20])
	}()
	answer := make([]byte, 2000)
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(answer)
	if text := string(answer[:n]); err != nil || !strings.HasPrefix(text, "HTTP/1.1 503") ||
		!strings.Contains(text, "Retry-After: 1") || !strings.Contains(text, "-32010") {
		t.Errorf("%v: %s", err, text)
	}
	for _, method := range []string{"echo", "panic", "none"} {
		if status, _, text := request(t, "POST", url, large(method, 100<<10),
			"Content-Type: application/json"); status != 200 {
			t.Errorf("%s: %d %.200s", method, status, text)
		}
	}
	close(release)
	<-waited
	free(t, b)
}

// held waits until unauthenticated callers hold as much.
func held(t *testing.T, b *farcall.Budget, want int64) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
		_, few := b.Used()
		if few >= want {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d bytes are held, want %d", few, want)
		}
	}
}

// A body of an unauthenticated caller makes room for a newer one.
func TestOldestUnauthenticatedBodyGoes(t *testing.T) {
	t.Parallel()
	b := farcall.NewBudget(0, 1<<20)
	url := serve(t, httprpc.NewHandler(service(t), &httprpc.Options{Budget: b.Unauthenticated()}))
	var conns []net.Conn
	for i := range 4 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		if _, err := fmt.Fprintf(conn,
			"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
				"Content-Length: 400000\r\n\r\n[%s", strings.Repeat("1,", 150_000)); err != nil {
			t.Fatal(err)
		}
		if i < 2 { // two fit: the first is to be the oldest
			held(t, b, int64(i+1)*290_000)
		}
	}
	if err := conns[0].SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(conns[0])
	if !strings.HasPrefix(string(said), "HTTP/1.1 503") {
		t.Errorf("%s", said)
	}
	for _, conn := range conns {
		conn.Close()
	}
	free(t, b)
}

// What a client reads is bounded by its budget, too.
func TestBudgetOfAClient(t *testing.T) {
	const size = 3 << 20
	for name, h := range map[string]http.HandlerFunc{
		"answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":"`+strings.Repeat("x", size)+`"}`)
		},
		"event": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w,
				"data: "+`{"jsonrpc":"2.0","id":1,"result":"`+strings.Repeat("x", size)+`"}`+"\n\n")
		},
		"status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, strings.Repeat("x", size))
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, h)
			small, large := farcall.NewBudget(1<<20, 0), farcall.NewBudget(64<<20, 0)
			var text string
			err := client(t, url, nil, &httprpc.Options{Budget: small}).Call(t.Context(), "m", nil, &text)
			if err == nil || name != "status" && !strings.Contains(err.Error(), "no memory") {
				t.Errorf("%.200v", err)
			}
			err = client(t, url, nil, &httprpc.Options{Budget: large}).Call(t.Context(), "m", nil, &text)
			if status := (*httprpc.StatusError)(nil); err != nil && !errors.As(err, &status) {
				t.Errorf("%.200v", err)
			}
			free(t, small)
			free(t, large)
		})
	}
}
