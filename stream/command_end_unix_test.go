//go:build unix

package stream

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// slowWriter takes its time for the first write.
type slowWriter struct{ took bool }

func (w *slowWriter) Write(p []byte) (int, error) {
	if !w.took {
		w.took = true
		<-time.After(300 * time.Millisecond)
	}
	return len(p), nil
}

// The reason has what a child wrote to its standard error before its exit, also where the machine
// is so busy that it was not read in time.
func TestStderrIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/bin/sh", "-c", "echo first >&2; sleep 0.1; echo second >&2; exit 3")
	cmd.Stderr, cmd.WaitDelay = &slowWriter{}, 10*time.Millisecond
	tr, err := Command(cmd, NDJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tr.Read()
	if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Stderr != "first\nsecond\n" {
		t.Errorf("%v", err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// The same for the standard output of what Run runs: the deadline has passed by the time of a read.
func TestOutputIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	from, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(from, write)
	if _, err := io.WriteString(write, "all of it"); err != nil {
		t.Fatal(err)
	}
	p := &child{stdout: from, exited: make(chan struct{})}
	close(p.exited)
	if err := from.SetReadDeadline(time.Unix(1, 0)); err != nil { // as at the exit
		t.Fatal(err)
	}
	got, err := p.output(100, -time.Hour)
	if err != nil || string(got) != "all of it" {
		t.Errorf("%q, %v", got, err)
	}
}
