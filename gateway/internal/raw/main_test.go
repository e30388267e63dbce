package raw

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// childVar makes the test binary be a server on its standard input and output.
const childVar = "FARCALL_RAW_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		os.Exit(childMain())
	}
	os.Exit(leak.Main(m))
}

// childMain serves, or crashes at the first call.
func childMain() int {
	if os.Getenv(childVar) == "crash" {
		_, _ = os.Stdout.WriteString("banner\n{\"level\":\"info\"}\n")
		_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
		_, _ = os.Stderr.WriteString("first line\nout of luck\n")
		return 3
	}
	peer := farcall.NewPeer(stream.Stdio(stream.NDJSON, nil), newServer(), nil)
	<-peer.Done()
	return 0
}

// child returns a Dial that starts the test binary.
func child(mode string) func(context.Context) (farcall.Transport, error) {
	return func(context.Context) (farcall.Transport, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childVar+"="+mode)
		return stream.Command(cmd, stream.NDJSON, nil)
	}
}

// newServer is the server behind the upstreams of the tests.
func newServer() *farcall.Mux {
	mux := farcall.NewMux()
	mux.Handle("echo", farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
		return r.Params, nil
	}))
	mux.Handle("trace",
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			return farcall.TraceFrom(ctx).Parent, nil
		}))
	mux.Handle("fail", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, &jsonrpc.Error{Code: 17, Message: "no", Data: jsonrpc.Raw(`{"a": 1.0}`)}
	}))
	mux.Handle("hang", farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	mux.Handle("ask", farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
		var answer jsonrpc.Raw
		err := farcall.CallerFrom(ctx).Call(ctx, "question", r.Params, &answer)
		return answer, farcall.PassOn(err)
	}))
	mux.Handle("tell", farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
		return "told", farcall.CallerFrom(ctx).Notify(ctx, "news", r.Params)
	}))
	farcall.HandleStream(mux, "count", func(_ context.Context, p []int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range p[0] {
				if !yield(i, nil) {
					return
				}
			}
		}
	})
	return mux
}

// inMemory returns a Dial over farcall.Pipe.
func inMemory(h farcall.Handler) func(context.Context) (farcall.Transport, error) {
	return func(context.Context) (farcall.Transport, error) {
		ours, theirs := farcall.Pipe()
		farcall.NewPeer(theirs, h, nil)
		return ours, nil
	}
}

// open returns an upstream that is closed when the test ends.
func open(t *testing.T, o *Options) *Upstream {
	t.Helper()
	o.Name = "up"
	u := New(o)
	t.Cleanup(func() { shut(t, u) })
	return u
}

func shut(t *testing.T, u *Upstream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := u.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if s := u.Status(); s.InFlight != 0 || s.Connections != 0 {
		t.Errorf("%d calls and %d connections are left", s.InFlight, s.Connections)
	}
}

// piped is a client's end of a piped connection.
type piped struct {
	farcall.Transport
	done chan error
}

// pipeTo pipes a connection to u.
func pipeTo(t *testing.T, u *Upstream) *piped {
	t.Helper()
	ours, theirs := farcall.Pipe()
	p := &piped{ours, make(chan error, 1)}
	go func() { p.done <- u.Pipe(context.Background(), theirs) }()
	t.Cleanup(func() { ours.Close() })
	return p
}

func (p *piped) send(t *testing.T, frames ...string) {
	t.Helper()
	for _, f := range frames {
		if err := p.Write([]byte(f)); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *piped) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got, err := p.Read(); string(got) != w || err != nil {
			t.Fatalf("got  %.300s, %v\nwant %.300s", got, err, w)
		}
	}
}

// expectLike reads a frame that has all the parts.
func (p *piped) expectLike(t *testing.T, parts ...string) {
	t.Helper()
	got, err := p.Read()
	for _, part := range parts {
		if !strings.Contains(string(got), part) || err != nil {
			t.Fatalf("%.500s, %v\nhas no %s", got, err, part)
		}
	}
}

func (p *piped) ended(t *testing.T) {
	t.Helper()
	if got, err := p.Read(); err == nil {
		t.Errorf("the connection is open: %s", got)
	}
}

func call(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

func result(id, value string) string {
	return `{"jsonrpc":"2.0","result":` + value + `,"id":` + id + `}`
}
