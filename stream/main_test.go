package stream

import (
	"bufio"
	"fmt"
	"os"
	signals "os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/leak"
)

// childMode makes this test binary play a child process.
const childMode = "STREAM_TEST_CHILD"

// TestMain fails when a goroutine of ours is left at the end.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		os.Exit(playChild(mode))
	}
	os.Exit(leak.Main(m))
}

// blocked reports whether a goroutine waits in a function for input.
func blocked(function string) bool {
	buf := make([]byte, 1<<16)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		state, _, _ := strings.Cut(g, "\n")
		if strings.Contains(g, function) &&
			(strings.Contains(state, "[IO wait") || strings.Contains(state, "[syscall")) {
			return true
		}
	}
	return false
}

// playChild is what the child processes of the tests do.
func playChild(mode string) int {
	switch mode {
	case "stdio": // answers each frame with itself
		t := Stdio(NDJSON, nil)
		for {
			frame, err := t.Read()
			if err != nil {
				fmt.Fprintln(os.Stderr, "end:", err)
				return 0
			}
			if err := t.Write(frame); err != nil {
				fmt.Fprintln(os.Stderr, "write:", err)
				return 4
			}
		}
	case "stdio-close": // closes while it reads
		t := Stdio(NDJSON, nil)
		ended := make(chan error)
		go func() {
			_, _ = t.Read() // the parent has begun to wait
			_, err := t.Read()
			ended <- err
		}()
		fmt.Fprintln(os.Stderr, "ready")
		_, _ = bufio.NewReader(os.NewFile(3, "go")).ReadString('\n')
		for !blocked("stream.(*conn).Read") {
			runtime.Gosched()
		}
		closed := t.Close()
		fmt.Fprintln(os.Stderr, "read:", <-ended, "close:", closed)
		return 0
	case "hang": // survives everything but SIGKILL
		signals.Ignore(syscall.SIGTERM, os.Interrupt)
		fmt.Printf("{\"pid\":%d}\n", os.Getpid())
		<-time.After(time.Hour)
	case "crash":
		fmt.Println(`{"last":"words"}`)
		fmt.Fprintln(os.Stderr, "cannot open the database")
		return 3
	case "succeed":
		return 0
	case "flood": // far more on stderr than a pipe holds, before it answers
		line := strings.Repeat("x", 1023) + "\n"
		for range 4 << 10 {
			fmt.Fprint(os.Stderr, line)
		}
		fmt.Fprintln(os.Stderr, "the last line")
		fmt.Println(`"flooded"`)
		return 1
	case "mute": // closes its output and stays
		os.Stdout.Close()
		<-time.After(time.Hour)
	default:
		return playParent(mode)
	}
	return 0
}
