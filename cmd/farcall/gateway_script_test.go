package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestGatewayScripts runs the scripts of bridge, check, pin and serve --config. They
// have four more commands:
//
//	gateway NAME ARGS...   starts farcall ARGS and waits until it is ready; its address is $NAME
//	saw NAME PATTERN       waits until its standard error has a line like that
//	ends NAME [HUP|CODE]   ends it by SIGTERM, and it must exit with 0, or CODE; HUP is only sent
//	dumps NAME             has it write its flight recorder by a signal
func TestGatewayScripts(t *testing.T) {
	needsScripts(t)
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(exe, filepath.Join(dir, "farcall")); err != nil {
		t.Fatal(err)
	}
	sock := filepath.Join(dir, "s")
	cert, key := writeCertificate(t, dir)
	plain := serve(t, "--listen", "127.0.0.1:0", "--listen", "unix:"+sock, "--tls-cert", cert,
		"--tls-key", key, "--insecure", "--log", "off")
	vars := map[string]string{
		execVar: "1", "GORACE": noLinger, "PATH": dir + string(os.PathListSeparator) + os.Getenv("PATH"),
		"GITHUB_TOKEN": "ghp_s3cr3t", "HOST": plain.hostport(t), "SOCK": sock,
		"CERT": cert, "KEY": key, "SSL_CERT_FILE": cert, "REFUSED": refusedAddress(t),
	}
	tool, err := os.ReadFile(filepath.Join("testdata", "tool.sh"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "gateway"),
		Setup: func(e *testscript.Env) error {
			for name, value := range vars {
				e.Setenv(name, value)
			}
			all := &backgrounds{of: map[string]*background{}}
			e.Values[backgroundsKey{}] = all
			e.Defer(all.kill)
			return os.WriteFile(filepath.Join(e.WorkDir, "tool.sh"), tool, 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "gateway": startGateway, "saw": sawLine, "ends": endGateway,
			"dumps": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(gatewaysOf(ts).of[args[0]].cmd.Process.Signal(dumping[0]))
			},
		},
	})
}

type backgroundsKey struct{}

// backgrounds are the programs that a script has started.
type backgrounds struct{ of map[string]*background }

func (all *backgrounds) kill() {
	for _, b := range all.of {
		_ = b.cmd.Process.Kill()
		<-b.done
	}
}

// background is a farcall that goes on.
type background struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu     sync.Mutex
	change sync.Cond
	lines  []string // of standard error
	ended  bool
	late   bool
}

func (b *background) read(lines *bufio.Scanner) {
	defer close(b.done)
	for lines.Scan() {
		b.mu.Lock()
		b.lines = append(b.lines, lines.Text())
		b.change.Broadcast()
		b.mu.Unlock()
	}
	_ = b.cmd.Wait() // its state says it
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.change.Broadcast()
}

// find waits for a line, and takes it away.
func (b *background) find(ts *testscript.TestScript, re *regexp.Regexp) []string {
	timer := time.AfterFunc(waitLimit, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.late = true
		b.change.Broadcast()
	})
	defer timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for i, line := range b.lines {
			if m := re.FindStringSubmatch(line); m != nil {
				b.lines = slices.Delete(b.lines, i, i+1)
				return m
			}
		}
		if b.ended || b.late {
			ts.Fatalf("there is no line like %q:\n%s", re, strings.Join(b.lines, "\n"))
		}
		b.change.Wait()
	}
}

func startGateway(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: gateway NAME ARGS...")
	}
	exe, err := os.Executable()
	ts.Check(err)
	b := &background{cmd: exec.Command(exe, args[1:]...), done: make(chan struct{})}
	b.change.L = &b.mu
	b.cmd.Dir = ts.Getenv("WORK")
	b.cmd.Env = append(os.Environ(), execVar+"=1", "GORACE="+noLinger, "PATH="+ts.Getenv("PATH"),
		"SSL_CERT_FILE="+ts.Getenv("SSL_CERT_FILE"), "WORD="+ts.Getenv("WORD"))
	stderr, err := b.cmd.StderrPipe()
	ts.Check(err)
	ts.Check(b.cmd.Start())
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	go b.read(lines)
	gatewaysOf(ts).of[args[0]] = b
	ts.Setenv(args[0], strings.TrimPrefix(strings.TrimPrefix(b.find(ts, readyForm)[1], "http://"),
		"https://"))
}

func gatewaysOf(ts *testscript.TestScript) *backgrounds {
	return ts.Value(backgroundsKey{}).(*backgrounds)
}

func sawLine(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] saw NAME PATTERN")
	}
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	b := gatewaysOf(ts).of[args[0]]
	if !neg {
		b.find(ts, re)
		return
	}
	b.mu.Lock() // of what has come until now
	defer b.mu.Unlock()
	if at := slices.IndexFunc(b.lines, re.MatchString); at >= 0 {
		ts.Fatalf("there is a line like %q: %s", re, b.lines[at])
	}
}

func endGateway(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: ends NAME [HUP|CODE]")
	}
	b, want := gatewaysOf(ts).of[args[0]], 0
	if len(args) == 2 {
		if args[1] == "HUP" {
			ts.Check(b.cmd.Process.Signal(syscall.SIGHUP))
			return
		}
		var err error
		want, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		ts.Fatalf("%v", err)
	}
	<-b.done
	if code := b.cmd.ProcessState.ExitCode(); code != want {
		ts.Fatalf("exit status %d, want %d:\n%s", code, want, strings.Join(b.lines, "\n"))
	}
}
