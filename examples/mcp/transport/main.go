// Command transport carries MCP over files: each message is a file in a directory, which the other
// end reads and deletes. A transport has three methods; what is on top, and every revision, stays
// as it is.
//
//	go run ./examples/mcp/transport DIRECTORY &      # serves
//	go run ./examples/mcp/transport DIRECTORY Ada    # calls
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
)

type person struct {
	Name string `json:"name"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "transport:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	switch len(args) {
	case 1:
		return newServer().Serve(ctx, newSpool(args[0], "calls", "answers"))
	case 2:
		c, err := mcp.Connect(ctx, newSpool(args[0], "answers", "calls"), nil)
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // the answer is here
		said, err := mcp.CallTool[string](ctx, c, "hello", person{args[1]})
		if err == nil {
			_, err = fmt.Fprintln(out, said)
		}
		return err
	}
	return errors.New("usage: transport DIRECTORY [NAME]")
}

func newServer() *mcp.Server {
	s := mcp.NewServer("hello", "1.0.0", nil)
	mcp.AddTool(s, mcp.Tool{Name: "hello", Description: "Greet a person"},
		func(_ context.Context, p person) (string, error) {
			return "Hello, " + p.Name + "!", nil
		})
	return s
}

// A spool is one end of a farcall.Transport: it reads the files IN-1, IN-2 … of a directory and
// writes OUT-1, OUT-2 ….
type spool struct {
	in, out       string
	read, written atomic.Int64
	closed        chan struct{}
	close         sync.Once
}

func newSpool(dir, in, out string) farcall.Transport {
	return &spool{
		in: filepath.Join(dir, in), out: filepath.Join(dir, out),
		closed: make(chan struct{}),
	}
}

// Read waits for the next file, and ends with Close.
func (s *spool) Read() ([]byte, error) {
	name := fmt.Sprintf("%s-%d", s.in, s.read.Add(1))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if frame, err := os.ReadFile(name); err == nil {
			return frame, os.Remove(name)
		} else if !os.IsNotExist(err) {
			return nil, err
		}
		select {
		case <-s.closed:
			return nil, io.EOF
		case <-tick.C:
		}
	}
}

// Write gives a file its name when all of it is there.
func (s *spool) Write(frames ...[]byte) error {
	for _, frame := range frames {
		name := fmt.Sprintf("%s-%d", s.out, s.written.Add(1))
		if err := os.WriteFile(name+".new", frame, 0o600); err != nil {
			return err
		}
		if err := os.Rename(name+".new", name); err != nil {
			return err
		}
	}
	return nil
}

func (s *spool) Close() error {
	s.close.Do(func() { close(s.closed) })
	return nil
}
