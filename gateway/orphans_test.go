//go:build linux

package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/faulty"
	"github.com/farcall-dev/farcall/internal/binary"
	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/mcp"
)

// A running is a farcall that serves.
type running struct {
	*exec.Cmd
	addr string // host:port
}

var readyLine = regexp.MustCompile(`127\.0\.0\.1:[1-9]\d*`)

// run starts farcall and waits until it is ready.
func run(t *testing.T, path string, args ...string) *running {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	in := bufio.NewReader(out)
	var said strings.Builder
	for {
		line, err := in.ReadString('\n')
		said.WriteString(line)
		if at := readyLine.FindString(line); at != "" {
			go func() { _, _ = io.Copy(io.Discard, in) }()
			return &running{cmd, at}
		}
		if err != nil {
			t.Fatalf("it is not ready: %v\n%s", err, said.String())
		}
	}
}

// bridge are the arguments that put a faulty child behind farcall.
func bridge(mode string, args ...string) []string {
	path, args, _ := faulty.Command(mode, args...)
	return append([]string{
		"bridge", "127.0.0.1:0", "--max-message", "100MB", "--env",
		"FARCALL_FAULTY=" + mode, "--env", "GORACE=atexit_sleep_ms=0", "--", path,
	}, args...)
}

// serve are the arguments that put it behind farcall by a file.
func serve(t *testing.T, mode string) []string {
	t.Helper()
	path, _, _ := faulty.Command(mode)
	file := filepath.Join(t.TempDir(), "farcall.yaml")
	var text strings.Builder
	text.WriteString("listen: [127.0.0.1:0]\nupstreams:\n")
	for _, name := range []string{"one", "two"} {
		fmt.Fprintf(&text,
			"  %s: {command: [%s], env: {FARCALL_FAULTY: %s, GORACE: atexit_sleep_ms=0}}\n", name,
			path, mode)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"serve", "--config", file}
}

// TestProcess looks at farcall as a process.
func TestProcess(t *testing.T) {
	if race.Enabled {
		t.Skip("it runs a program that has no race detector; without -race it runs")
	}
	t.Parallel()
	farcall := binary.Path(t)
	t.Run("no orphan", func(t *testing.T) { noOrphans(t, farcall) })
	t.Run("big result", func(t *testing.T) { bigResult(t, farcall) })
}

// noOrphans: farcall leaves no process behind, however it ends and whatever its
// children do: not those that ignore signals, nor what they have forked. 2,676
// orphans in 41 days, 526 zombies and 2,018 processes in 14 days were counted
// behind others. Its log is meant to be read.
func noOrphans(t *testing.T, farcall string) {
	t.Helper()
	for m, mode := range []string{"ok", "ignore-sigterm", "fork-away"} {
		for w, way := range []string{"bridge", "serve --config"} {
			for h, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
				if !full.Wanted() && (m+w+h)%2 != 0 { // each mode both ways and with both signals
					continue
				}
				t.Run(fmt.Sprintf("farcall %s gets %v, child %s", way, how, mode), func(t *testing.T) {
					t.Parallel()
					args := bridge(mode)
					if way != "bridge" {
						args = serve(t, mode)
					}
					noOrphan(t, run(t, farcall, args...), how)
				})
			}
		}
	}
}

func noOrphan(t *testing.T, r *running, how syscall.Signal) {
	t.Helper()
	c, err := mcp.Dial(t.Context(), "http://"+r.addr+"/mcp", &mcp.ClientOptions{Era: "legacy"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if names, missing := toolsOf(t, c); len(names) == 0 || len(missing) > 0 {
		t.Fatalf("%v, missing %v", names, missing)
	}
	processes := below(r.Process.Pid)
	t.Logf("started: farcall %d, below it %v", r.Process.Pid, processes)
	if len(processes) == 0 {
		t.Fatal("it has no children")
	}
	began := time.Now()
	if err := syscall.Kill(r.Process.Pid, how); err != nil {
		t.Fatal(err)
	}
	_ = r.Wait()
	t.Logf("killed:  %v, it ended with %v after %v", how, r.ProcessState,
		time.Since(began).Round(time.Millisecond))
	var pids []int
	for _, p := range processes {
		pids = append(pids, p.PID)
	}
	if left := faulty.Gone(pids...); left != nil {
		t.Errorf("found:   STILL RUNNING: %v", left)
		return
	}
	t.Logf("found:   none of the %d processes runs, %v after the signal", len(pids),
		time.Since(began).Round(time.Millisecond))
}

// below returns the processes below one, however far.
func below(pid int) (found []faulty.Process) {
	at := map[int]bool{pid: true}
	for again := true; again; {
		again = false
		for _, p := range faulty.Descendants() {
			if at[p.Parent] && !at[p.PID] {
				at[p.PID], again = true, true
				found = append(found, p)
			}
		}
	}
	return found
}

// bigResult: a result of 50 MB passes, and costs the gateway a bounded amount
// of memory. Lines were cut at 1 MiB elsewhere, and their results lost in silence.
func bigResult(t *testing.T, farcall string) {
	t.Helper()
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"work","arguments":{},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern +
		`","io.modelcontextprotocol/clientCapabilities":{}}}}`
	for name, fetch := range map[string]func(t *testing.T, addr string) (n int64){
		"http": func(t *testing.T, addr string) int64 {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/mcp",
				strings.NewReader(call))
			r.Header = http.Header{
				"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
				"Mcp-Protocol-Version": {modern}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"work"},
			}
			got, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			n, err := io.Copy(io.Discard, got.Body)
			if err != nil {
				t.Fatal(err)
			}
			return n
		},
		"tcp": func(t *testing.T, addr string) int64 {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, call+"\n"); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(conn)
			for n := int64(0); ; {
				part, err := in.ReadSlice('\n')
				n += int64(len(part))
				if err == nil {
					return n
				} else if !errors.Is(err, bufio.ErrBufferFull) {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "tcp" && !full.Wanted() {
				t.Skip("make full tries it")
			}
			r := run(t, farcall, bridge("big", "50")...)
			_ = fetch(t, r.addr) // the first one starts the child
			before := memoryOf(t, r.Process.Pid, "VmRSS")
			for range 2 {
				if n := fetch(t, r.addr); n < 50<<20 || n > 51<<20 {
					t.Fatalf("%d bytes", n)
				}
			}
			peak := memoryOf(t, r.Process.Pid, "VmHWM")
			t.Logf("a result of 50 MB three times: the gateway's resident memory was %d MB at most, %d MB "+
				"after the first", peak>>20, before>>20)
			if peak > 512<<20 {
				t.Errorf("that is more than ten times the result")
			}
		})
	}
}

// memoryOf is a line of /proc/PID/status, in bytes.
func memoryOf(t *testing.T, pid int, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("no %s in %s", name, text)
	return 0
}
