package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// far is a process of farcall that has servers behind it. When the test ends it
// must end with exit status 0, and what it has started must be gone.
type far struct {
	t       *testing.T
	cmd     *exec.Cmd
	dir     string // TMPDIR, which marks it and what it starts
	address string // host:port
	ended   chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// marked makes a command and all that it starts known by their TMPDIR, and fails
// the test when any of them is left at its end.
func marked(t *testing.T, cmd *exec.Cmd) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "TMPDIR="+dir)
	t.Cleanup(func() { nothingLeft(t, dir) })
	return dir
}

// processes returns the processes with a TMPDIR, each as "PID COMMAND".
func processes(dir string) (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), "TMPDIR="+dir) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		found = append(found,
			filepath.Base(filepath.Dir(file))+" "+strings.ReplaceAll(string(line), "\x00", " "))
	}
	return found
}

// nothingLeft gives processes that have been killed a moment to go.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	for late := time.After(3 * time.Second); ; {
		left := processes(dir)
		if len(left) == 0 {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			t.Errorf("processes are left:\n%s", strings.Join(left, "\n"))
			return
		}
	}
}

// starts starts the program and waits until it is ready.
func starts(t *testing.T, args ...string) *far {
	t.Helper()
	return begins(t, exec.Command(farcallPath, args...))
}

// begins starts a command of the program and waits until it is ready.
func begins(t *testing.T, cmd *exec.Cmd) *far {
	t.Helper()
	args := cmd.Args[1:]
	f := &far{t: t, cmd: cmd, ended: make(chan struct{})}
	f.dir = marked(t, f.cmd)
	stderr, err := f.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(f.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			f.mu.Lock()
			fmt.Fprintln(&f.log, lines.Text())
			f.mu.Unlock()
			if address, ok := strings.CutPrefix(lines.Text(), "farcall: ready "); ok {
				select {
				case ready <- strings.TrimPrefix(address, "http://"):
				default:
				}
			}
		}
		f.cmd.Wait()
	}()
	t.Cleanup(f.stop)
	select {
	case f.address = <-ready:
	case <-f.ended:
		t.Fatalf("farcall %q ended: %s", args, f.cmd.ProcessState)
	case <-time.After(waitLimit):
		t.Fatalf("farcall %q is not ready", args)
	}
	return f
}

func (f *far) output() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.String()
}

// stop asks it to end, unless it has ended.
func (f *far) stop() {
	select {
	case <-f.ended:
	default:
		f.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-f.ended:
			if code := f.cmd.ProcessState.ExitCode(); code != 0 {
				f.t.Errorf("farcall ended with %d", code)
			}
		case <-time.After(waitLimit):
			f.t.Errorf("farcall does not end")
			f.cmd.Process.Kill()
			<-f.ended
		}
	}
	if f.t.Failed() {
		f.t.Logf("farcall printed:\n%s", f.output())
	}
}

// place returns where the server of a name is, "" for all of them.
func (f *far) place(name string) *place {
	path := strings.TrimSuffix("/mcp/"+name, "/")
	return &place{http: "http://" + f.address + path, sse: "http://" + f.address + "/sse"}
}

// upstream is an entry of a configuration.
type upstream struct {
	name string
	at   map[string]any
}

// runs is the entry of a command.
func runs(name string, cmd *exec.Cmd) upstream {
	env := map[string]string{}
	for _, variable := range cmd.Env {
		for _, prefix := range []string{childVariable, "MEMORY_FILE_PATH"} {
			if key, value, ok := strings.Cut(variable, "="); ok && key == prefix {
				env[key] = value
			}
		}
	}
	at := map[string]any{"command": cmd.Args, "env": env}
	if cmd.Dir != "" {
		at["cwd"], _ = filepath.Abs(cmd.Dir)
	}
	return upstream{name, at}
}

// gatewayOf serves the entries.
func gatewayOf(t *testing.T, settings string, upstreams ...upstream) *far {
	t.Helper()
	var b strings.Builder
	b.WriteString(settings + "upstreams:\n")
	for _, u := range upstreams {
		at, err := json.Marshal(u.at) // JSON is YAML
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "  %s: %s\n", u.name, at)
	}
	file := filepath.Join(t.TempDir(), "farcall.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return starts(t, "serve", "--config", file, "--listen", "127.0.0.1:0")
}

// status is what /api/status says.
type status struct {
	Upstreams []upstreamStatus
}

type upstreamStatus struct {
	Name                       string
	InFlight, Queued, Restarts int
}

func (s status) of(name string) upstreamStatus {
	for _, u := range s.Upstreams {
		if u.Name == name {
			return u
		}
	}
	return upstreamStatus{}
}

// status waits for a status that is as it should.
func (f *far) status(t *testing.T, ok func(status) bool) (s status) {
	t.Helper()
	for late := time.After(waitLimit); ; {
		r, err := http.Get("http://" + f.address + "/api/status")
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(r.Body).Decode(&s)
		r.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if ok(s) {
			return s
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-late:
			t.Fatalf("the status is %+v", s)
		}
	}
}
