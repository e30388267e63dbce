package wirelog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
)

// lines is a log with lines that are compared from their marks on.
type lines struct {
	made *Log
	out  bytes.Buffer
}

func (l *lines) log() *Log {
	if l.made == nil {
		l.made = New(&l.out, nil)
	}
	return l.made
}

// take returns the lines so far, which are compared once.
func (l *lines) take() (all []string) {
	l.log().Flush(time.Minute)
	for line := range strings.Lines(l.out.String()) {
		// the time and the connection are first
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		all = append(all, parts[len(parts)-1])
	}
	l.out.Reset()
	return all
}

func (l *lines) want(t *testing.T, want ...string) {
	t.Helper()
	all := l.take()
	want = slices.Clone(want)
	for i := range want {
		want[i] = strings.NewReplacer("\r", " ", "\n", " ").Replace(want[i]) // a frame is one line
	}
	if !slices.Equal(all, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(all, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestLine(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, nil)
	for i, text := range []string{
		`{"a":1}`, "{\r\n\t\"a\":1}\n", "\x1b]0;title\a", " \n",
		strings.Repeat("x", maxLine) + "y", strings.Repeat("x", maxLine),
	} {
		l.Frame(uint64(i), Sent, []byte(text))
	}
	l.Flush(time.Minute)
	got := strings.Split(out.String(), "\n")
	if len(got) != 6 {
		t.Fatalf("%d lines, want 5", len(got)-1)
	}
	for i, want := range []string{
		`^2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z #0 > \{"a":1\}$`,
		`#1 > \{   "a":1\}$`, `^[^\x1b\a]*title[^\x1b\a]*$`, `#4 > x+ … \(cut\)$`, `#5 > x+$`,
	} {
		if !regexp.MustCompile(want).MatchString(got[i]) {
			t.Errorf("line %d is %.100q, want %s", i, got[i], want)
		}
	}
}

// gate is a writer that waits.
type gate struct {
	open chan struct{}
	out  bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.out.Write(p)
}

// A writer that does not return delays no frame; what there is no room for is
// counted, and every other line is whole.
func TestSlowWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		l := New(g, nil)
		frame := []byte(strings.Repeat("x", 64<<10))
		for range 200 { // 12.5 MiB
			l.Frame(1, Received, frame)
		}
		begin := time.Now()
		l.Flush(time.Second)
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("Flush waited %v, want a second", waited)
		}
		if len(l.queue) > maxQueue {
			t.Errorf("%d bytes are queued, %d allowed", len(l.queue), maxQueue)
		}
		close(g.open)
		l.Flush(time.Minute)
		synctest.Wait()
		whole := strings.Count(g.out.String(), string(frame)+"\n")
		left := regexp.MustCompile(`! (\d+) lines are left out`).FindStringSubmatch(g.out.String())
		if left == nil || whole < 60 || left[1] != strconv.Itoa(200-whole) {
			t.Errorf("%d lines and %q, of 200", whole, left)
		}
		l.Frame(1, Sent, []byte("again"))
		synctest.Wait()
		if !strings.HasSuffix(g.out.String(), "> again\n") {
			t.Error("nothing is written afterwards")
		}
	})
}

type failing struct {
	writes int
	panics bool
}

func (f *failing) Write([]byte) (int, error) {
	f.writes++
	if f.panics {
		panic("broken")
	}
	return 0, io.ErrClosedPipe
}

// After its first failure a writer gets nothing more, and the failure is reported once.
func TestFailingWriter(t *testing.T) {
	for _, w := range []*failing{{}, {panics: true}} {
		synctest.Test(t, func(t *testing.T) {
			var told []error
			l := New(w, func(err error) { told = append(told, err) })
			for range 3 {
				l.Frame(1, Sent, []byte("x"))
				synctest.Wait()
			}
			if w.writes != 1 || len(told) != 1 {
				t.Errorf("%d writes, told %v", w.writes, told)
			}
		})
	}
}

// Lines of many goroutines do not mix.
func TestWholeLines(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 200 {
				l.Frame(uint64(i), Sent, bytes.Repeat([]byte{byte('a' + i)}, 100))
			}
		})
	}
	all.Wait()
	l.Flush(time.Minute)
	whole := regexp.MustCompile(
		`^\S+ #\d > (a{100}|b{100}|c{100}|d{100}|e{100}|f{100}|g{100}|h{100})$`)
	n := 0
	for line := range strings.Lines(out.String()) {
		if n++; !whole.MatchString(strings.TrimSuffix(line, "\n")) {
			t.Fatalf("line %d: %q", n, line)
		}
	}
	if n != 1600 {
		t.Errorf("%d lines, want 1600", n)
	}
}

func TestNew(t *testing.T) {
	var none *Log
	near, far := farcall.Pipe()
	defer near.Close()
	defer far.Close()
	if New(nil, nil) != nil || none.Transport(near) != near || none.RoundTripper(nil) != nil {
		t.Error("a log without a writer does something")
	}
	none.Frame(1, Sent, []byte("x"))
	none.Flush(time.Minute)
	l := New(io.Discard, nil)
	if New(l, nil) != l {
		t.Error("a log of a log is another one")
	}
}

// A Transport keeps what the one below can do.
func TestTransport(t *testing.T) {
	var got lines
	near, far := farcall.Pipe()
	w := got.log().Transport(near)
	if _, ok := w.(farcall.TryWriter); !ok {
		t.Error("no TryWriter")
	}
	if err := w.Write([]byte("1"), []byte("2")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.(farcall.TryWriter).TryWrite([]byte("3")); err != nil {
		t.Fatal(err)
	}
	if err := far.Write([]byte("4")); err != nil {
		t.Fatal(err)
	}
	if !w.(farcall.Buffered).Buffered() {
		t.Error("not Buffered")
	}
	if frame, err := w.Read(); err != nil || string(frame) != "4" {
		t.Errorf("got %q, %v", frame, err)
	}
	far.Close()
	for range 2 {
		if _, err := w.Read(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
	got.want(t, "> 1", "> 2", "> 3", "< 4", "! the connection has ended: EOF")
}

// Both ends of HTTP log the same frames, mirrored, and no header.
func TestHTTP(t *testing.T) {
	var server, client lines
	log := server.log()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w, end := log.Exchange(w, r)
		defer end()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", r.Header.Get("X-Answer"))
		w.Header().Set("Mcp-Session-Id", "secret")
		for part := range strings.SplitSeq(string(body), "|") {
			if _, err := io.WriteString(w, part); err != nil {
				t.Error(err)
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	}))
	defer s.Close()
	c := &http.Client{Transport: client.log().RoundTripper(nil)}
	for _, test := range []struct {
		kind, body string
		want       []string // of the answer
	}{
		{"application/json; charset=utf-8", `{"a":|1}`, []string{`{"a":1}`}},
		{
			"text/event-stream", ": beat\n\nid: 1\ndata: {\"a\":|1}\n\ndata:2\r|\nevent: message\r\n\r\n",
			[]string{`{"a":1}`, "2"},
		},
		{
			"text/event-stream",
			"event: endpoint\ndata: /messages?session=secret\n\ndata: 1\ndata: 2\n\ndata: not whole",
			[]string{"! event endpoint", "1\n2"},
		},
		{"text/plain", "secret", []string{"! HTTP status 200 OK"}},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL,
			strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Answer", test.kind)
		r.Header.Set("Authorization", "Bearer secret")
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		resp.Body.Close()
		request := strings.TrimSpace(test.body)
		sent, received := []string{"> " + request}, []string{"< " + request}
		for _, text := range test.want {
			if !strings.HasPrefix(text, "!") {
				sent, received = append(sent, "< "+text), append(received, "> "+text)
				continue
			}
			sent, received = append(sent, text), append(received, text)
		}
		client.want(t, sent...)
		server.want(t, received...)
	}
}

// FuzzEvents: however an event stream is cut into reads, its frames are the same.
func FuzzEvents(f *testing.F) {
	f.Add("data: 1\r\n\r\nevent: x\ndata: 2\n\ndata\n\n", 3)
	f.Fuzz(func(t *testing.T, text string, size int) {
		size = max(1, min(size, 100))
		var whole, parts lines
		a := &body{log: whole.log(), mark: Sent, events: true}
		b := &body{log: parts.log(), mark: Sent, events: true}
		a.add([]byte(text))
		for p := range slices.Chunk([]byte(text), size) {
			b.add(p)
		}
		a.end()
		b.end()
		parts.want(t, whole.take()...)
	})
}

// A log of a function shows frames as they are, over the transports of a client, too.
func TestNewFunc(t *testing.T) {
	t.Parallel()
	var seen []string
	l := NewFunc(func(conn uint64, mark byte, text []byte) {
		seen = append(seen, fmt.Sprintf("%d %c %q", conn, mark, text))
	})
	if New(l, nil) != l {
		t.Error("New does not find the log again")
	}
	near, far := farcall.Pipe()
	w := l.Transport(near)
	go func() { _ = far.Write([]byte("\"\x1b\u202e\"")) }()
	if _, err := w.Read(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l.Flush(time.Minute)
	want := []string{fmt.Sprintf("1 < %q", "\"\x1b\u202e\"")}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
}
