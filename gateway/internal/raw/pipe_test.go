package raw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// scripted is an upstream that the test plays itself.
type scripted struct {
	made chan farcall.Transport
}

func (s *scripted) dial(context.Context) (farcall.Transport, error) {
	ours, theirs := farcall.Pipe()
	s.made <- theirs
	return ours, nil
}

func newScripted() *scripted { return &scripted{make(chan farcall.Transport, 10)} }

// Frames go both ways byte by byte, valid or not, and what is not JSON is
// answered.
func TestPipeBytes(t *testing.T) {
	t.Parallel()
	s := newScripted()
	u := open(t, &Options{Dial: s.dial, MaxMessage: 300})
	p := pipeTo(t, u)
	server := <-s.made
	there := []string{
		`{ "method":"a", "id":1.0 ,"jsonrpc":"2.0", "traceparent":"00-x", "auth":{"b":1e0}}`,
		`[{"jsonrpc":"2.0","method":"n"},{"id":"\u0061","method":"m","jsonrpc":"2.0"}]`,
		`{"jsonrpc":"2.0","method":"n","params":[1.00]}`,
		`{"id":7,"method":"v1","params":[]}`,
		`{"jsonrpc":"2.0","id":9007199254740993,"result":  null}`,
		`{"id":8,"method":"neither version","params":{}}`,
	}
	p.send(t, there...)
	for _, want := range there {
		if got, err := server.Read(); string(got) != want || err != nil {
			t.Fatalf("%s, %v, want %s", got, err, want)
		}
	}
	p.send(t, `{"id":`, `nonsense`, `17`,
		`{"jsonrpc":"2.0","id":5,"method":"`+strings.Repeat("x", 300)+`"}`)
	p.expectLike(t, "-32700", `"id":null`)
	p.expectLike(t, "-32700", `"id":null`)
	p.expectLike(t, "-32600", `"id":null`)
	p.expectLike(t, `-32012,"message":"Request too large","data":{"maxSize":`, `"id":5`)

	back := []string{
		`{"id":1, "result": 1.50 ,"jsonrpc":"2.0","extra":[]}`,
		`{"jsonrpc":"2.0","method":"question","id":1}`,
		`{"jsonrpc":"2.0","method":"log","params":["x"]}`,
		`[{"jsonrpc":"2.0","error":{"code":-5.0,"message":"m","more":1},"id":"a"}]`,
		`{"jsonrpc":"2.0","id":4711,"result":"of no call"}`,
		`{"id":7,"result":null,"error":null}`,
	}
	for _, f := range slices.Concat([]string{"Listening on 80", `{"level":"info"}`, `"text"`}, back) {
		if err := server.Write([]byte(f)); err != nil {
			t.Fatal(err)
		}
	}
	p.expect(t, back...)
	// The answer is too large for the client: it is notified.
	if err := server.Write(
		[]byte(`{"jsonrpc":"2.0","id":8,"result":"` + strings.Repeat("x", 300) + `"}`)); err != nil {
		t.Fatal(err)
	}
	p.expectLike(t, "-32012", `"sent":"unknown"`, `"maxSize":`, `"unit":"bytes"}`, `"id":8`)
	// One answer of the upstream was an error, two were ours for what is too large.
	if st := u.Status(); st.Garbage != 4 || st.Calls != 5 || st.Errors != 3 || st.InFlight != 0 ||
		st.State != "up" || st.Connections != 1 {
		t.Errorf("%+v", st)
	}
	p.Close()
	if err := <-p.done; err != nil {
		t.Error(err)
	}
	if _, err := server.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection to the upstream is open: %v", err)
	}
}

// ordered checks that calls and notifications arrive in the order in which they
// were sent.
type ordered struct {
	mu   sync.Mutex
	next int
	bad  []string
}

func (o *ordered) see(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if want := `"n":` + strconv.Itoa(o.next) + `,`; !strings.Contains(string(frame), want) {
		o.bad = append(o.bad, string(frame))
	}
	o.next++
}

// A language client's didChange and completion stay in order, 10,000 of each.
func TestPipeOrder(t *testing.T) {
	t.Parallel()
	s := newScripted()
	u := open(t, &Options{Dial: s.dial})
	p := pipeTo(t, u)
	server := <-s.made
	const pairs = 10_000
	var o ordered
	go func() {
		for range 2 * pairs {
			frame, err := server.Read()
			if err != nil {
				t.Error(err)
				return
			}
			o.see(frame)
			if id, ok := strings.CutPrefix(string(frame), `{"jsonrpc":"2.0","id":`); ok {
				id, _, _ = strings.Cut(id, ",")
				if err := server.Write([]byte(result(id, "[]"))); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	go func() {
		for i := range pairs {
			_ = p.Write(
				fmt.Appendf(nil,
					`{"jsonrpc":"2.0","method":"textDocument/didChange","params":{"n":%d,"text":""}}`, 2*i))
			_ = p.Write(
				fmt.Appendf(nil,
					`{"jsonrpc":"2.0","id":%d,"method":"textDocument/completion","params":{"n":%d,"at":0}}`,
					i, 2*i+1))
		}
	}()
	for i := range pairs {
		p.expect(t, result(strconv.Itoa(i), "[]"))
	}
	if len(o.bad) > 0 || o.next != 2*pairs {
		t.Errorf("%d of %d out of order, the first %s", len(o.bad), o.next, o.bad[0])
	}
	if st := u.Status(); st.Calls != pairs || st.InFlight != 0 || st.LatencyP50 == 0 {
		t.Errorf("%+v", st)
	}
}

// When the upstream goes, what it has not answered gets an error, and nothing
// else does; batches get one answer.
func TestPipeUpstreamGone(t *testing.T) {
	t.Parallel()
	s := newScripted()
	records := make(chan farcall.Record, 10)
	u := open(t, &Options{Dial: s.dial, OnRecord: func(_ context.Context, r farcall.Record) {
		records <- r
	}})
	p := pipeTo(t, u)
	server := <-s.made
	p.send(t,
		call("1", "a", "[]"), call(`"two"`, "b", "[]"), `{"jsonrpc":"2.0","method":"n"}`,
		`[`+call("3", "c", "[]")+`,{"jsonrpc":"2.0","method":"n"},`+call("4", "d", "[]")+`]`,
		`{"id":5,"method":"e","params":[]}`)
	for range 5 {
		if _, err := server.Read(); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Write([]byte(result("1", "1")), []byte(result("3", "1"))); err != nil {
		t.Fatal(err)
	}
	server.Close()
	p.expect(t, result("1", "1"), result("3", "1"))
	const e = `{"code":-32008,"message":"The upstream up went away; whether the call had an effect ` +
		`is not known","data":{"upstream":"up","sent":"unknown","retryable":false}}`
	p.expect(t,
		`{"jsonrpc":"2.0","error":`+e+`,"id":"two"}`,
		`[{"jsonrpc":"2.0","error":`+e+`,"id":4}]`,
		`{"result":null,"error":`+e+`,"id":5}`)
	p.ended(t)
	if err := <-p.done; err == nil || !strings.Contains(err.Error(), "up has ended") {
		t.Error(err)
	}
	if st := u.Status(); st.Calls != 5 || st.Errors != 3 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
	close(records)
	var got []string
	for r := range records {
		got = append(got, fmt.Sprintf("%s %s %d %v", r.Method, r.ID, int(r.Code), r.Batch))
	}
	want := []string{
		"a 1 0 false", "c 3 0 true", `b "two" -32008 false`, "d 4 -32008 true",
		"e 5 -32008 false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("records\n%q, want\n%q", got, want)
	}
}

// A child that dies in a call: the caller gets its last words.
func TestPipeChildDies(t *testing.T) {
	t.Parallel()
	u := open(t, &Options{Dial: child("crash")})
	p := pipeTo(t, u)
	p.send(t, call("1", "a", "[]"))
	p.expectLike(t, `"sent":"unknown"`, `"stderr":["first line","out of luck"]`, `"id":1`)
	p.ended(t)
	if err := <-p.done; !errors.As(err, new(*stream.ExitError)) {
		t.Error(err)
	}
	if st := u.Status(); st.Garbage != 2 {
		t.Errorf("%+v", st)
	}
}

// A client that goes takes its child with it. One that only stops sending gets
// its answers first.
func TestPipeClientGone(t *testing.T) {
	t.Parallel()
	u := open(t, &Options{Dial: child("serve")})
	ours, theirs := farcall.Pipe()
	defer ours.Close()
	frames := []string{call("1", "echo", "[1]"), call("2", "echo", "[2]")}
	if err := u.Pipe(t.Context(), &halfClosed{Transport: theirs, frames: frames}); err != nil {
		t.Error(err)
	}
	var got []string
	for range frames {
		answer, err := ours.Read()
		if err != nil {
			t.Error(err)
		}
		got = append(got, string(answer))
	}
	slices.Sort(got) // the child does both at once
	if want := []string{result("1", "[1]"), result("2", "[2]")}; !slices.Equal(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// halfClosed sends frames, and then no more.
type halfClosed struct {
	farcall.Transport
	frames []string
}

func (h *halfClosed) Read() ([]byte, error) {
	if len(h.frames) == 0 {
		return nil, io.EOF
	}
	f := h.frames[0]
	h.frames = h.frames[1:]
	return []byte(f), nil
}

// A call that is never answered does not keep a client that stopped sending for
// ever, and it is notified.
func TestPipeLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := New(&Options{Name: "up", Dial: newScripted().dial})
		ours, theirs := farcall.Pipe()
		began := time.Now()
		if err := u.Pipe(t.Context(),
			&halfClosed{theirs, []string{call("1", "hang", "[]")}}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != lingerTime {
			t.Errorf("took %v", took)
		}
		(&piped{ours, nil}).expectLike(t, `"sent":"unknown"`)
		shut(t, u)
	})
}

// While the upstream is not there, calls fail with that reason, and the first one that
// finds it goes through.
func TestPipeDialFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		dial := inMemory(newServer())
		u := New(&Options{Name: "up", Dial: func(ctx context.Context) (farcall.Transport, error) {
			if !up.Load() {
				return nil, errors.New("secret reason")
			}
			return dial(ctx)
		}})
		ours, theirs := farcall.Pipe()
		p := &piped{ours, make(chan error, 1)}
		go func() { p.done <- u.Pipe(context.Background(), theirs) }()
		for range 5 {
			p.send(t, `{"jsonrpc":"2.0","method":"n"}`, call("1", "echo", "[]"))
			got, err := p.Read()
			if err != nil || !strings.Contains(string(got), `"sent":"no","retryable":true`) ||
				strings.Contains(string(got), "secret") {
				t.Fatalf("%s, %v", got, err)
			}
		}
		if st := u.Status(); st.State != "down" || !strings.Contains(st.LastError, "secret reason") ||
			st.Dropped != 5 {
			t.Errorf("%+v", st)
		}
		up.Store(true)
		<-time.After(maxBackoff)
		p.send(t, call("2", "echo", "[2]"))
		p.expect(t, result("2", "[2]"))
		p.Close()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		shut(t, u)
	})
}

// The server calls back over the connection, with ids that are those of the
// client's own calls.
func TestPipeCallback(t *testing.T) {
	t.Parallel()
	u := open(t, &Options{Dial: inMemory(newServer())})
	ours, theirs := farcall.Pipe()
	done := make(chan error, 1)
	go func() { done <- u.Pipe(context.Background(), theirs) }()
	client := farcall.NewPeer(ours,
		farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
			return map[string]any{"answer to": r.Params}, nil
		}), nil)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			got, err := farcall.Call[jsonrpc.Raw](t.Context(), client, "ask", []int{i})
			if want := fmt.Sprintf(`{"answer to":[%d]}`, i); string(got) != want || err != nil {
				t.Errorf("%s, %v, want %s", got, err, want)
			}
		})
	}
	wg.Wait()
	n := 0
	for v, err := range farcall.Stream[int](t.Context(), client, "count", []int{100}) {
		if v != n || err != nil {
			t.Errorf("%d, %v, want %d", v, err, n)
		}
		n++
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := client.Call(ctx, "hang", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	// The cancellation has gone through, and the answer has come back.
	if _, err := farcall.Call[jsonrpc.Raw](t.Context(), client, "echo", []int{1}); err != nil ||
		n != 100 {
		t.Error(err, n)
	}
	client.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Draining finishes what is under way and lets nothing new in.
func TestPipeDrain(t *testing.T) {
	t.Parallel()
	s := newScripted()
	u := open(t, &Options{Dial: s.dial})
	p := pipeTo(t, u)
	server := <-s.made
	idle := pipeTo(t, u)
	p.send(t, call("1", "a", "[]"))
	if _, err := server.Read(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- u.Close(t.Context()) }()
	idle.ended(t)
	p.send(t, call("2", "b", "[]"), `{"jsonrpc":"2.0","method":"n"}`)
	p.expectLike(t, "Shutting down", `"sent":"no","retryable":true`, `"id":2`)
	if got, err := server.Read(); !strings.Contains(string(got), `"n"`) || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if err := server.Write([]byte(result("1", "1"))); err != nil {
		t.Fatal(err)
	}
	p.expect(t, result("1", "1"))
	p.ended(t)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := u.Pipe(t.Context(), server); !errors.Is(err, errShuttingDown) {
		t.Error(err)
	}
}

// The context ends a pipe though neither end reads or writes.
func TestPipeContext(t *testing.T) {
	t.Parallel()
	s := newScripted()
	u := open(t, &Options{Dial: s.dial})
	ours, theirs := farcall.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- u.Pipe(ctx, theirs) }()
	server := <-s.made
	for range 100 { // more than anybody takes
		go func() { _ = server.Write(make([]byte, 64<<10)) }()
		go func() { _ = ours.Write([]byte(call("1", "a", `["`+strings.Repeat("x", 64<<10)+`"]`))) }()
	}
	cancel()
	<-done
	if _, err := server.Read(); err == nil {
		_, err = server.Read()
		for err == nil {
			_, err = server.Read()
		}
	}
}

// Who does not read is not read from: what is held does not grow. Others are not
// concerned.
func TestPipeBackpressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		u := New(&Options{Name: "up", Dial: s.dial})
		start := func() (*piped, farcall.Transport) {
			ours, theirs := farcall.Pipe()
			p := &piped{ours, make(chan error, 1)}
			go func() { p.done <- u.Pipe(context.Background(), theirs) }()
			return p, <-s.made
		}
		slow, flooding := start()
		other, server := start()
		var there, back atomic.Int64
		frame := []byte(`{"jsonrpc":"2.0","method":"n","params":["` + strings.Repeat("x", 64<<10) + `"]}`)
		go func() {
			for flooding.Write(frame) == nil {
				back.Add(int64(len(frame)))
			}
		}()
		go func() {
			for slow.Write(frame) == nil {
				there.Add(int64(len(frame)))
			}
		}()
		synctest.Wait()
		for _, n := range []int64{there.Load(), back.Load()} {
			if n > 1<<20 { // two pipes hold 256 KiB each
				t.Errorf("%d bytes were taken for a reader that does not read", n)
			}
		}
		other.send(t, call("1", "a", "[]"))
		if _, err := server.Read(); err != nil {
			t.Error(err)
		}
		if err := server.Write([]byte(result("1", "1"))); err != nil {
			t.Error(err)
		}
		other.expect(t, result("1", "1"))
		slow.Close()
		other.Close()
		<-slow.done
		<-other.done
		synctest.Wait()
		shut(t, u)
	})
}

// An upstream that does not read is given up, or a client that has gone would
// never be noticed.
func TestPipeStalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := New(&Options{Name: "up", Dial: newScripted().dial, Timeout: time.Minute})
		ours, theirs := farcall.Pipe()
		p := &piped{ours, make(chan error, 1)}
		go func() { p.done <- u.Pipe(context.Background(), theirs) }()
		began := time.Now()
		p.send(t, call("1", "a", `["`+strings.Repeat("x", 256<<10)+`"]`),
			call("2", "a", `["`+strings.Repeat("x", 256<<10)+`"]`))
		p.expectLike(t, `"sent":"unknown"`, `"id":1`)
		p.expectLike(t, `"sent":"unknown"`, `"id":2`)
		p.ended(t)
		if err := <-p.done; !errors.Is(err, errStalled) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		synctest.Wait()
		shut(t, u)
	})
}

// With a shared lifetime connections share one, and ids are rewritten.
func TestPipeShared(t *testing.T) {
	t.Parallel()
	u := open(t, &Options{Dial: inMemory(newServer()), Lifetime: "shared"})
	a, b := pipeTo(t, u), pipeTo(t, u)
	a.send(t, call("1.0", "echo", `["a"]`))
	b.send(t, call("1.0", "echo", `["b"]`))
	a.expect(t, result("1.0", `["a"]`))
	b.expect(t, result("1.0", `["b"]`))
	if st := u.Status(); st.Dials != 1 || st.Connections != 3 {
		t.Errorf("%+v", st)
	}
	a.Close()
	b.Close()
	<-a.done
	<-b.done
}

// TestPipesLeaveConnections: the piped connections of one caller do not take all connections to the
// upstream: each may be a process.
func TestPipesLeaveConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := New(&Options{Name: "up", MaxConnections: 16, Dial: inMemory(newServer())})
		as := func(o owner.Key) *piped {
			ours, theirs := farcall.Pipe()
			p := &piped{ours, make(chan error, 1)}
			ctx := context.WithValue(context.Background(), owner.ContextKey{}, o)
			go func() { p.done <- u.Pipe(ctx, theirs) }()
			return p
		}
		var all []*piped
		for i := range 16 {
			p := as(owner.Connection(strconv.Itoa(i), "192.0.2.1:1"))
			all = append(all, p)
			p.send(t, call("1", "echo", "[1]"))
			got, err := p.Read()
			if err != nil || strings.Contains(string(got), `"result"`) != (i < 14) {
				t.Errorf("connection %d: %s, %v", i, got, err)
			}
		}
		other := as(owner.Connection("b", "192.0.2.2:1"))
		other.send(t, call("1", "echo", "[2]"))
		other.expect(t, result("1", "[2]"))
		for _, p := range append(all[:14:14], other) { // then there is room
			p.Close()
			<-p.done
		}
		all[15].send(t, call("2", "echo", "[3]"))
		all[15].expect(t, result("2", "[3]"))
		for _, p := range all[14:] {
			p.Close()
			<-p.done
		}
		shut(t, u)
		synctest.Wait()
	})
}
