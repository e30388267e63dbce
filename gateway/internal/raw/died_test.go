package raw

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// deaf is a transport to a child that has ended, while Read does not know it yet.
type deaf struct {
	farcall.Transport
	closed chan struct{}
}

func (d *deaf) Read() ([]byte, error) {
	<-d.closed
	return nil, os.ErrDeadlineExceeded
}

func (d *deaf) Close() error {
	select {
	case <-d.closed:
	default:
		close(d.closed)
	}
	return d.Transport.Close()
}

// TestDiedBeforeWrite: when a child ends before it takes a call, the error has what the child said
// last, whether the reading or the writing finds out first.
func TestDiedBeforeWrite(t *testing.T) {
	t.Parallel()
	for range 20 {
		diedBeforeWrite(t)
	}
}

func diedBeforeWrite(t *testing.T) {
	t.Helper()
	u := New(&Options{Name: "bad", Dial: func(ctx context.Context) (farcall.Transport, error) {
		exited := make(chan struct{})
		child, err := stream.Command(exec.Command("sh", "-c", "echo the key is 42 >&2; exit 3"),
			stream.NDJSON, &stream.Options{
				OnExit: func(*stream.ExitError) { close(exited) },
			})
		if err != nil {
			return nil, err
		}
		<-exited
		return &deaf{Transport: child, closed: make(chan struct{})}, nil
	}})
	defer func() { _ = u.Close(t.Context()) }()
	_, err := u.ServeRPC(t.Context(), &farcall.Request{Method: "x", ID: jsonrpc.IntID(1)})
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || wire.Code != jsonrpc.Unavailable ||
		!strings.Contains(string(wire.Data), `"stderr":["the key is 42"]`) {
		t.Errorf("%v %s", err, wire.Data)
	}
}
