package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/faulty"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/stream"
)

func TestStart(t *testing.T) {
	ended := make(chan error, 1)
	s := supervise(t, of("ok"), &Options{Name: "calc", OnExit: func(err error) { ended <- err }})
	ctx, cancel := context.WithCancel(t.Context())
	tr, err := s.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel() // bounded the start only
	for _, able := range []bool{
		is[farcall.Keeper](tr), is[farcall.Buffered](tr),
		is[farcall.TryWriter](tr),
	} {
		if !able {
			t.Error("the transport has lost what a pipe can do")
		}
	}
	send(t, tr, initialize, call)
	expect(t, tr, `"id":0`, "serverInfo")
	expect(t, tr, `"id":1`, "hello")
	st := s.Stats()
	if st.Running != 1 || len(st.PIDs) != 1 || st.Starts != 1 || st.Restarts != 0 ||
		st.Since.IsZero() {
		t.Errorf("%+v", st)
	}
	if err := errors.Join(tr.Close(), tr.Close()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it was closed, and the end is called %v", err)
	}
	if _, err := tr.Read(); !errors.Is(err, farcall.ErrClosed) {
		t.Error(err)
	}
	if st := s.Stats(); st.Running != 0 || st.LastExit != "" {
		t.Errorf("%+v", st)
	}
	if _, err := s.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := s.Start(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func is[T any](v any) bool { _, ok := v.(T); return ok }

// TestDiesDuringStart: anyone who connects learns within a second of the child's end, not
// later, what it said last.
func TestDiesDuringStart(t *testing.T) {
	exits := make(chan error, 10)
	c := of("crash-start", "no such \x1b[31m\adatabase")
	end := filepath.Join(t.TempDir(), "end")
	c.Env = append(c.Env, faulty.EndEnv+"="+end)
	s := supervise(t, c, &Options{Name: "db", OnExit: func(err error) { exits <- err }})
	_, err := mcp.Connect(t.Context(), start(t, s), &mcp.ClientOptions{Redial: s.Start})
	now := time.Now()
	ended, unknown := faulty.Ended(end)
	if unknown != nil {
		t.Fatal(unknown)
	}
	took := now.Sub(ended)
	if !errors.Is(err, farcall.ErrClosed) || took > time.Second {
		t.Errorf("%v after the child's end: %v", took, err)
	}
	reason := Reason(err)
	t.Logf("%v after the child's end: %s", took, reason)
	for _, part := range []string{
		"exit status 3", "reading the configuration\n",
		`no such \u0007database`,
	} {
		if !strings.Contains(reason, part) {
			t.Errorf("%q is missing", part)
		}
	}
	if want := []string{
		"reading the configuration", `no such \u0007database`,
	}; !slices.Equal(LastLines(err), want) {
		t.Errorf("%q", LastLines(err))
	}
	if _, ok := errors.AsType[*stream.ExitError](<-exits); !ok {
		t.Error("OnExit received something else")
	}
	st := s.Stats()
	if st.Running != 0 || st.LastExit == "" ||
		!slices.Contains(st.LastStderr, "reading the configuration") {
		t.Errorf("%+v", st)
	}
}

// TestWhileStderrIsHeld: the error comes within a second of the child's end also when another
// process holds standard error open.
func TestWhileStderrIsHeld(t *testing.T) {
	c := of("fork-exit")
	c.Grace = time.Minute
	end := filepath.Join(t.TempDir(), "end")
	c.Env = append(c.Env, faulty.EndEnv+"="+end)
	s := supervise(t, c, nil)
	err := exitOf(t, start(t, s))
	now := time.Now()
	ended, unknown := faulty.Ended(end)
	if took := now.Sub(ended); Reason(err) == "" || unknown != nil || took > time.Second {
		t.Errorf("%v after the child's end: %v, %v", took, err, unknown)
	}
}

func TestCannotRun(t *testing.T) {
	for name, c := range map[string]Command{
		"no program":   {Path: "farcall-no-such-program"},
		"no file":      {Path: "/nonexistent/program"},
		"no directory": {Path: "/bin/sh", Dir: "/nonexistent"},
		"not a file":   {Path: "/"},
	} {
		t.Run(name, func(t *testing.T) {
			s := supervise(t, c, &Options{Name: "srv"})
			for range 3 { // a program may be installed at any time: no delay
				_, err := s.Start(t.Context())
				if err == nil || !strings.Contains(err.Error(), "supervise: srv: ") ||
					!strings.Contains(err.Error(), "see that the program is installed") {
					t.Error(err)
				}
			}
			if st := s.Stats(); st.Starts != 0 || st.Running != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestDelay ends children that were never started.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Command{Path: "x"}, nil)
		defer s.Close()
		die := func(lived time.Duration) time.Duration {
			c := &child{s: s, started: time.Now()}
			<-time.After(lived)
			s.ended(c, &stream.ExitError{Name: "x", Stderr: "no \x1bluck\n"})
			return max(0, time.Until(s.Stats().Next))
		}
		if d := die(time.Second); d != 0 {
			t.Errorf("the first is to be replaced at once, not after %v", d)
		}
		for n := range 12 {
			limit := min(100*time.Millisecond<<n, 30*time.Second)
			d := die(time.Second)
			if d < limit/2 || d > limit {
				t.Errorf("failure %d: %v, wanted up to %v", n+2, d, limit)
			}
			err := s.enter(t.Context())
			e, ok := errors.AsType[*DelayError](err)
			if !ok || e.Failures != n+2 ||
				!strings.Contains(err.Error(), "x has ended soon after its start") ||
				!strings.Contains(err.Error(), time.Until(e.Next).Round(time.Millisecond).String()) {
				t.Fatal(err)
			}
			if want := []string{`no \u001bluck`}; !slices.Equal(LastLines(err), want) {
				t.Errorf("its last lines are %q, want %q", LastLines(err), want)
			}
			<-time.After(d)
			if err := s.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.calls.Done()
		}
		if d := die(shortLife); d != 0 {
			t.Errorf("one that lived is to be replaced at once, not after %v", d)
		}
		if d := die(time.Second); d != 0 {
			t.Errorf("the series has ended, and still %v", d)
		}
		// Many that fail together are one failure.
		var all []*child
		for range 50 {
			all = append(all, &child{s: s, started: time.Now()})
		}
		<-time.After(time.Millisecond)
		for _, c := range all {
			s.ended(c, &stream.ExitError{Name: "x"})
		}
		if d := time.Until(s.Stats().Next); d > 100*time.Millisecond {
			t.Errorf("50 at once: %v", d)
		}
	})
}

func TestRestart(t *testing.T) {
	s := supervise(t, of("crash-call"), nil)
	for range 2 {
		tr := start(t, s)
		send(t, tr, call)
		if err := exitOf(t, tr); !strings.Contains(Reason(err), "panic: in a call") {
			t.Error(err)
		}
		tr.Close()
	}
	st := s.Stats()
	if st.Starts != 2 || st.Restarts != 1 || st.Causes != [Causes]uint64{Failed: 1} {
		t.Errorf("%+v", st)
	}
	if _, err := s.Start(t.Context()); !is[*DelayError](err) && err != nil {
		t.Error(err)
	}
}

func TestNever(t *testing.T) {
	never := supervise(t, of("crash-start"), &Options{Never: true})
	_ = exitOf(t, start(t, never))
	if _, err := never.Start(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "cannot open the database") {
		t.Error(err)
	}
}

// TestGarbage: between banners, logs, binary, half messages and lines that are
// too long the answers come.
func TestGarbage(t *testing.T) {
	for name, framing := range map[string]stream.Framing{
		"lines":          stream.NDJSON,
		"Content-Length": stream.Header,
	} {
		t.Run(name, func(t *testing.T) { garbageOver(t, framing) })
	}
}

func garbageOver(t *testing.T, framing stream.Framing) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	c := of("garbage")
	c.Framing, c.MaxMessage = framing, 64<<10
	if framing == stream.Header {
		c.Env = append(c.Env, faulty.HeaderEnv)
	}
	s := supervise(t, c, &Options{OnGarbage: func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(line))
	}})
	tr := start(t, s)
	for range 3 {
		send(t, tr, call)
		expect(t, tr, `"id":1`, "hello")
	}
	mu.Lock()
	banners := []string{"Starting the server...", "[INFO] listening", `{"level":"info","msg":"up"}`}
	mixed := []string{
		"\x00\x01\xff binary", `{"jsonrpc":"2.0","id":1,"resu`,
		"Traceback (most recent call last):", strings.Repeat("z", sampleSize),
	}
	if want := slices.Concat(banners, mixed, mixed, mixed); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	st := s.Stats()
	if st.Garbage != uint64(len(got)) || !strings.Contains(st.LastGarbage, "zzz") {
		t.Errorf("%+v", st)
	}
	mu.Unlock()
	send(t, tr, ping)
	expect(t, tr, `"id":2`)
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

func TestIsMessage(t *testing.T) {
	for text, want := range map[string]bool{
		`{"jsonrpc":"2.0","method":"a"}`:     true,
		` { "id":1, "result":2}`:             true,
		`{"result":2,"error":null,"id":1}`:   true,
		`[{"jsonrpc":"2.0","id":1}]`:         true,
		`[ {"method":"a","params":[]} , {}]`: true,
		`{}`:                                 false, `[]`: false, `[1]`: false, `"a"`: false, `1`: false,
		``: false, ` `: false, `[[{"id":1}]]`: false,
		`{"level":"info"}`: false, `{'id':1}`: false, `{"id":1`: false, `{"id":1} x`: false,
		`[INFO] "id"`: false, "{\"id\":\"\x00\"}": false,
	} {
		if got := isMessage([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// A large message is validated by the peer alone; half of one is garbage.
func TestIsLargeMessage(t *testing.T) {
	long := strings.Repeat("x", largeMessage)
	for text, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"result":"` + long + `"}`:      true,
		`{"jsonrpc":"2.0","id":1,"result":"\a` + long + `"}`:    true, // it is not valid
		`{"jsonrpc":"2.0","id":1,"result":"` + long + "\"}\r":   true,
		`[{"jsonrpc":"2.0","id":1,"result":"` + long + `"}]`:    true,
		`{"jsonrpc":"2.0","id":1,"result":"` + long:             false,
		`{"level":"info","msg":"` + long + `"}`:                 false,
		`{"jsonrpc":"2.0","id":1,"result":"` + long + `"} done`: false,
	} {
		if got := isMessage([]byte(text)); got != want {
			t.Errorf("%.40q: %v", text, got)
		}
	}
}

// TestFloodsStderr: 10,000 lines do not hold up the answer.
func TestFloodsStderr(t *testing.T) {
	s := supervise(t, of("flood-stderr"), nil)
	tr := start(t, s)
	began := time.Now()
	send(t, tr, call)
	expect(t, tr, "hello")
	t.Logf("10,000 lines took %v", time.Since(began))
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	said := s.Stats().LastStderr
	size := 0
	for _, line := range said {
		size += len(line)
	}
	if len(said) != tailLines || size > tailBytes ||
		!strings.HasPrefix(said[len(said)-1], "line 10000 of the flood") ||
		!strings.HasPrefix(said[0], "line 9901 ") {
		t.Errorf("%d lines, %d bytes, the last is %q", len(said), size, said[len(said)-1])
	}
}

func TestBinaryStderr(t *testing.T) {
	s := supervise(t, of("binary-stderr"), nil)
	tr := start(t, s)
	send(t, tr, ping)
	expect(t, tr, `"id":2`)
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	want := []string{
		`a\u0000bred\u001b]0;title\u0007\xff\u202etxt`,
		strings.Repeat("x", maxLine) + "…", "without an end",
	}
	if got := s.Stats().LastStderr; !slices.Equal(got, want) {
		t.Errorf("%.2000q", got)
	}
}

func TestTail(t *testing.T) {
	tail := tail{maxLines: 3, maxBytes: 20}
	a, b := lines{tail: &tail}, lines{tail: &tail}
	fmt.Fprint(&a, "one\ntw")
	fmt.Fprint(&b, "from b\r\n\n \n")
	fmt.Fprint(&a, "o\n10%\r20%")
	if got := tail.last(); !slices.Equal(got, []string{"from b", "two", "10%"}) {
		t.Errorf("%q", got)
	}
	a.flush()
	fmt.Fprint(&b, "0123456789abcd\n")
	if got := tail.last(); !slices.Equal(got, []string{"10%", "20%", "0123456789abcd"}) {
		t.Errorf("%q", got)
	}
	fmt.Fprint(&b, strings.Repeat("y", 30)+"\n")
	if got := tail.last(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	for n := range 1000 {
		fmt.Fprintln(&b, n)
	}
	if got := tail.last(); !slices.Equal(got, []string{"997", "998", "999"}) || len(tail.kept) > 8 {
		t.Errorf("%q, %d", got, len(tail.kept))
	}
	if Reason(io.EOF) != "" || LastLines(nil) != nil {
		t.Error("a reason without a child")
	}
}

// TestDoesNotRead: a child that does not read holds up neither a write for ever
// nor Close.
func TestDoesNotRead(t *testing.T) {
	s := supervise(t, of("deaf"), nil)
	tr := start(t, s)
	written := make(chan error)
	go func() {
		large := []byte(`"` + strings.Repeat("x", 4<<20) + `"`) // far more than a pipe holds
		written <- tr.Write(large)
	}()
	read := make(chan error)
	go func() {
		_, err := tr.Read()
		read <- err
	}()
	if done, err := start(t, s).(farcall.TryWriter).TryWrite(make([]byte, 1<<20)); done || err != nil {
		t.Error("a full pipe:", done, err)
	}
	began := time.Now()
	if err := tr.Close(); err != nil || time.Since(began) > 10*grace {
		t.Errorf("closed after %v: %v", time.Since(began), err)
	}
	if err := <-written; err == nil {
		t.Error("it was written")
	}
	if err := <-read; !errors.Is(err, farcall.ErrClosed) {
		t.Error(err)
	}
	began = time.Now()
	if err := s.Close(); err != nil || time.Since(began) > 10*grace {
		t.Errorf("closed after %v: %v", time.Since(began), err)
	}
}

// TestPeerOverDeaf: nor does it hold up a peer or a client.
func TestPeerOverDeaf(t *testing.T) {
	s := supervise(t, of("deaf"), nil)
	peer := farcall.NewPeer(start(t, s), nil, nil)
	began := time.Now()
	for range 10 {
		if err := peer.Notify(t.Context(), "x", strings.Repeat("x", 1<<20)); err != nil {
			break // no more is taken
		}
	}
	if err := peer.Close(); err != nil || time.Since(began) > 2*time.Second {
		t.Errorf("closed after %v: %v", time.Since(began), err)
	}
	began = time.Now()
	if _, err := mcp.Connect(t.Context(), start(t, s),
		&mcp.ClientOptions{Era: "legacy", Timeout: 50 * time.Millisecond}); err == nil ||
		time.Since(began) > 2*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if st := s.Stats(); st.Running != 0 {
		t.Errorf("%+v", st)
	}
}

// TestClosedStdin: a child that reads no more but stays is of no use.
func TestClosedStdin(t *testing.T) {
	t.Parallel()
	s := supervise(t, of("mute-stdin"), nil)
	tr := start(t, s)
	var err error
	for err == nil { // until it has come to close it
		err = tr.Write([]byte(ping))
	}
	if !strings.Contains(err.Error(), "has closed its standard input") {
		t.Error(err)
	}
}

// TestWriteToTheDead: what the child said before its end is read, and then how
// it ended, though writes fail in between.
func TestWriteToTheDead(t *testing.T) {
	s := supervise(t, of("crash-after", "3"), nil)
	tr := start(t, s)
	send(t, tr, ping, ping, ping)
	for s.Stats().Running > 0 {
		<-time.After(time.Millisecond)
	}
	send(t, tr, ping, ping)
	for _, err := range []error{second(tr.(farcall.TryWriter).TryWrite([]byte(ping)))} {
		if err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		expect(t, tr, `"id":2`)
	}
	if _, err := tr.Read(); !strings.Contains(Reason(err), "exit status 5") ||
		!strings.Contains(Reason(err), "out of luck after 3") {
		t.Error(err)
	}
}

func second(_ bool, err error) error { return err }

// TestGuardIsReplaced: another process kills the guard.
func TestGuardIsReplaced(t *testing.T) {
	s := supervise(t, of("ok"), nil)
	start(t, s)
	before := s.guard.line.pid()
	if before == 0 {
		t.Skip("no guard here")
	}
	p, err := os.FindProcess(before)
	if err == nil {
		err = p.Kill()
	}
	if left := faulty.Gone(before); err != nil || left != nil {
		t.Fatal(err, left)
	}
	start(t, s)
	if now := s.guard.line.pid(); now == before || !faulty.Alive(now) {
		t.Errorf("the guard was %d and is %d", before, now)
	}
}

// TestSharedGuard: supervisors may share one.
func TestSharedGuard(t *testing.T) {
	g := NewGuard(nil)
	a, b := supervise(t, of("ok"), &Options{Guard: g}),
		supervise(t, of("fork-away"), &Options{Guard: g})
	t.Cleanup(g.Close) // after those above it would be left
	start(t, a)
	tr := start(t, b)
	if _, err := forked(tr); err != nil {
		t.Error(err)
	}
	if n := len(faulty.Descendants()); n != 4 {
		t.Errorf("%d processes, wanted two children, a child of theirs and a guard: %v", n,
			faulty.Descendants())
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	send(t, tr, ping) // of no concern to the other
	expect(t, tr, `"id":2`)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	g.Close()
}

// TestStartsAndClose: whatever is started while the supervisor closes ends too.
func TestStartsAndClose(t *testing.T) {
	s := supervise(t, of("ok"), nil)
	var all sync.WaitGroup
	first := make(chan struct{}, 8)
	for range 8 {
		all.Go(func() {
			for {
				tr, err := s.Start(t.Context())
				first <- struct{}{}
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					return
				}
				if _, err := tr.Read(); !errors.Is(err, farcall.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		<-first
	}
	go func() {
		for range first {
		}
	}()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	close(first)
	if st := s.Stats(); st.Running != 0 {
		t.Errorf("%+v", st)
	}
}
