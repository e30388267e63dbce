package capture_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/capture"
)

// killVar names the file of a process that records until it is killed.
const killVar = "FARCALL_TEST_CAPTURE"

// TestKill kills a process that records. Its file can be read up to the last whole line.
func TestKill(t *testing.T) {
	if path := os.Getenv(killVar); path != "" {
		r, err := capture.New(&capture.Options{File: path})
		if err != nil {
			t.Fatal(err)
		}
		for {
			r.Frame(1, true, call)
			r.Frame(1, false, answer)
		}
	}
	t.Parallel()
	for _, name := range []string{"a.jsonl", "a.jsonl.zst"} {
		path := filepath.Join(t.TempDir(), name)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), killVar+"="+path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
			if info, err := os.Stat(path); err == nil && info.Size() > 20000 {
				tick.Stop()
				break
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		r, err := capture.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; ; n++ {
			rec, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: record %d: %v", name, n, err)
			}
			if data, err := rec.Data(); err != nil || rec.Type == "frame" && len(data) != rec.Size {
				t.Fatalf("%s: record %d: %v", name, n, err)
			}
		}
		r.Close()
		if n < 50 {
			t.Errorf("%s: %d records", name, n)
		}
	}
}
