package npipe_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/npipe"
)

func TestPipe(t *testing.T) {
	name := fmt.Sprintf("farcall-test-%d", os.Getpid())
	l, err := npipe.Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := l.Addr(); got.Network() != npipe.Network || got.String() != npipe.Prefix+name {
		t.Errorf("listens on %s %s", got.Network(), got)
	}
	if os.Getenv("FARCALL_WINE") != "" { // see "make windows"
		// Wine 8 connects the first client to the handle with which go-winio only reserves the name.
		lost, err := npipe.Dial(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer lost.Close()
	} else if other, err := npipe.Listen(name); err == nil { // Wine 8 lets two servers have one name
		other.Close()
		t.Error("two listeners have one pipe")
	}
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = io.Copy(conn, io.LimitReader(conn, 6))
			conn.Close()
		}
		done <- err
	}()
	conn, err := npipe.Dial(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := npipe.Dial(ctx, name+"-none"); err == nil {
		conn.Close()
		t.Error("a pipe that is not there was dialled")
	}
}
