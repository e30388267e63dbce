package interop

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp/era"
)

// where finds in a line of standard error at which address a command listens.
var where = regexp.MustCompile(
	`farcall: (?:ready |tap on |listening at )(?:http://)?(127\.0\.0\.1:[0-9]+)`)

// launch starts a command of farcall that listens, and returns the address. stop ends it.
func launch(t *testing.T, args ...string) (address string, stop func()) {
	t.Helper()
	cmd := exec.Command(farcallPath, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended
			_ = cmd.Wait()                       // interrupted, as it says
		}
	}
	t.Cleanup(stop)
	r := bufio.NewReader(stderr)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("farcall %q ended: %v", args, err)
		}
		if found := where.FindStringSubmatch(line); found != nil {
			go io.Copy(io.Discard, r) // ends with the process
			return found[1], stop
		}
	}
}

// tapped makes calls through a tap in front of a server, and returns the frames of the capture.
func tapped(t *testing.T, scheme, revision, file, server string) []string {
	t.Helper()
	address, stop := launch(t, "tap", "--raw", "--out", file, "127.0.0.1:0", scheme+"://"+server)
	for _, call := range [][]string{
		{"math_add", "a=2", "b=3"},
		{"demo_progress", "steps=3", "ms=0"},
		{"demo_form", "--answer", `{"name":"Ada"}`},
	} {
		args := append([]string{"mcp", "call", "--era", revision, scheme + "://" + address}, call...)
		stdout, stderr, code := program(t, args...)
		if code != 0 && (call[0] != "demo_form" || revision >= "2025-06-18") { // older ones have no forms
			t.Fatalf("farcall %q: exit status %d\n%s%s", args, code, stdout, stderr)
		}
	}
	stop()
	return strings.Split(mustFarcall(t, "view", "--frames", file), "\n")
}

// TestCaptureRoundTrip: with the mock of a capture, a client exchanges the frames of the capture,
// byte for byte, in each revision of MCP and over each transport that listens.
func TestCaptureRoundTrip(t *testing.T) {
	t.Parallel()
	server := serve(t)
	for _, scheme := range []string{"tcp", "ws", "http"} {
		for _, revision := range era.Revisions() {
			t.Run(scheme+" "+revision.Name, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "a.jsonl")
				want := tapped(t, scheme, revision.Name, file, server)
				mock, _ := launch(t, "mock", file, "127.0.0.1:0")
				got := tapped(t, scheme, revision.Name, file+".b", mock)
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("frame %d\nis   %.800s\nwas  %.800s", i+1, got[i], want[i])
					}
				}
				if len(got) != len(want) || len(want) < 12 {
					t.Errorf("%d frames, were %d", len(got), len(want))
				}
			})
		}
	}
}

// TestCaptureAsHAR: har-validator finds the export of a capture valid, and there is an entry for
// each exchange of HTTP, and for each other connection.
func TestCaptureAsHAR(t *testing.T) {
	t.Parallel()
	server := serve(t)
	for scheme, want := range map[string]string{
		"http": "POST 200 application/json", "ws": " messages", "tcp": " messages",
	} {
		file := filepath.Join(t.TempDir(), "a.jsonl")
		tapped(t, scheme, "2025-11-25", file, server)
		har := mustFarcall(t, "export", file, "--format", "har")
		if out := string(node(t, []byte(har), "har-validate.js")); strings.Count(out, want) < 3 {
			t.Errorf("%s: %s", scheme, out)
		}
	}
}
