package interop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// waitLimit is how long a test waits for another process before it gives up.
const waitLimit = 30 * time.Second

// The programs under test, which TestMain builds: farcall itself, and the MCP
// server of ./server.
var farcallPath, fixturePath string

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		os.Exit(beChild(name))
	}
	_ = flag.Set("test.parallel", "4") // most tests wait for other processes; -parallel replaces it
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "farcall-interop")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	fixturePath = filepath.Join(dir, "fixture")
	builds := []*exec.Cmd{exec.Command("go", "build", "-o", fixturePath, "./server")}
	if farcallPath = os.Getenv("FARCALL_BINARY"); farcallPath == "" { // one that stands built
		farcallPath = filepath.Join(dir, "farcall")
		build := exec.Command("go", "build", "-o", farcallPath, "./cmd/farcall")
		build.Dir = ".."
		builds = append(builds, build)
	}
	for _, cmd := range builds {
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", cmd, err, out)
			return 1
		}
	}
	return m.Run()
}

// program runs farcall and returns what it printed and its exit code.
func program(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, farcallPath, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("farcall %q: %v", args, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// mustFarcall is program where it must succeed.
func mustFarcall(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := program(t, args...)
	if code != 0 {
		t.Fatalf("farcall %q: exit status %d\n%s%s", args, code, stdout, stderr)
	}
	return strings.TrimSpace(stdout)
}

// serve starts farcall's playground and returns its address, host:port.
func serve(t *testing.T) string {
	t.Helper()
	return strings.TrimPrefix(serveAt(t, "127.0.0.1:0"), "http://")
}

// serveAt starts farcall's playground at an address, and returns where it is ready.
func serveAt(t *testing.T, listen string, flags ...string) string {
	t.Helper()
	cmd := exec.Command(farcallPath, append([]string{"serve", "--listen", listen}, flags...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	r := bufio.NewReader(stderr)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("farcall serve ended: %v", err)
		}
		if address, ok := strings.CutPrefix(strings.TrimSpace(line), "farcall: ready "); ok {
			go io.Copy(io.Discard, r) // ends with the process
			return address
		}
	}
}
