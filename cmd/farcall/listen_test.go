package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/stream"
)

// A connection that breaks is made again, with the calls that subscribe, and Ctrl-C is how
// listening ends.
func TestListenConnectsAgain(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := program(t, "listen", "tcp://"+l.Addr().String(), "--call", "subscribe news")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	lines, said := bufio.NewReader(out), bufio.NewReader(pipe)
	for n := range 3 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil ||
			!strings.Contains(line, `"method":"subscribe","params":["news"]`) {
			t.Fatalf("it sent %q, %v", line, err)
		}
		fmt.Fprintf(c,
			`{"jsonrpc":"2.0","result":"s%d","id":1}`+"\n"+`{"jsonrpc":"2.0","method":"news","params":[%d]}`+
				"\n", n, n)
		want := fmt.Sprintf(`{"method":"news","params":[%d]}`+"\n", n)
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("it printed %q, %v, want %q", got, err, want)
		}
		if n < 2 {
			c.Close()
		}
	}
	const again = "again; what it sent in between is lost\n"
	for strings.Count(stderr.String(), again) < 2 { // it comes after what was sent is printed
		line, err := said.ReadString('\n')
		if stderr.WriteString(line); err != nil {
			t.Fatal(err, stderr.String())
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(lines); len(rest) > 0 {
		t.Errorf("more came: %q", rest)
	}
	if _, err := said.WriteTo(&stderr); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, stderr.String())
	}
	for want, times := range map[string]int{
		"subscribe: \"s0\"\n": 1, "subscribe: \"s2\"\n": 1,
		"broke, connecting again": 2, again: 2,
	} {
		if n := strings.Count(stderr.String(), want); n != times {
			t.Errorf("standard error has %q %d times, not %d:\n%s", want, n, times, stderr.String())
		}
	}
}

// An open pipe without a writer gets a notice, and an error at the timeout.
func TestPipeWithoutWriter(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	cmd := program(t, "call", "127.0.0.1:1", "m", "--timeout", (pipedNotice + pipedNotice/10).String())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitTimeout {
		t.Errorf("%v", err)
	}
	for _, want := range []string{
		"waiting for params on standard input", "not closed in time",
		"</dev/null",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
}

// The events of a subscription of the library are what listen prints.
func TestListenToSubscription(t *testing.T) {
	mux := farcall.NewMux()
	farcall.HandleSubscription(mux, "news/items",
		func(ctx context.Context, p struct{ Topic string }) (iter.Seq2[string, error], error) {
			return func(yield func(string, error) bool) {
				if yield(p.Topic+" 1", nil) && yield(p.Topic+" 2", nil) {
					<-ctx.Done()
				}
			}, nil
		})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		if conn, err := l.Accept(); err == nil {
			<-farcall.NewPeer(stream.New(conn, stream.NDJSON, nil), mux, nil).Done()
		}
	}()
	cmd := program(t, "listen", "tcp://"+l.Addr().String(), "news/subscription", "--call",
		`news/subscribe ["items", {"Topic": "go"}]`, "--count", "2")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	<-served
	id := `{"method":"news/subscription","params":{"subscription":`
	lines := strings.Split(string(out), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], id) ||
		!strings.HasSuffix(lines[0], `"result":"go 1"}}`) ||
		!strings.HasSuffix(lines[1], `"result":"go 2"}}`) {
		t.Errorf("%s", out)
	}
}
