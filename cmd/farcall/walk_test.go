package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The walk-throughs work as they are typed, one command after the other, beside a
// playground that runs: what they print is what the page says, where … stands for anything.
func TestWalkThroughs(t *testing.T) {
	needsScripts(t)
	t.Parallel()
	for _, name := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("there is no", name)
		}
	}
	for _, page := range []struct {
		file     string
		headings []string // of the parts, one after the other in one directory
	}{
		{"README.md", []string{"## A gateway with a guard"}},
		{"docs/start.md", []string{"## Call a method", "## Call a tool of MCP", "## Check a server"}},
		{"docs/security.md", []string{"# Security", "## What it may call", "### Tests", "### The chain"}},
	} {
		t.Run(filepath.Base(page.file), func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("..", "..", page.file))
			if err != nil {
				t.Fatal(err)
			}
			playground := serve(t, "--listen", "127.0.0.1:0", "--log", "off").addrs[0]
			w := newWalk(t, strings.TrimPrefix(playground, "http://"))
			for _, heading := range page.headings {
				_, text, found := strings.Cut("\n"+string(raw), "\n"+heading+"\n")
				text, _, _ = strings.Cut(text, "\n#")
				if !found || !strings.Contains(text, "```console") {
					t.Fatalf("%s, %s: there is no walk-through", page.file, heading)
				}
				for _, s := range stepsOf(text) {
					w.take(s)
				}
			}
		})
	}
}

// A step is one command of a page, and what it says that it prints.
type step struct{ command, want string }

var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

func stepsOf(text string) (all []step) {
	for _, block := range consoleBlock.FindAllStringSubmatch(text, -1) {
		document := false
		for line := range strings.Lines(block[1]) {
			command, ok := strings.CutPrefix(line, "$ ")
			last := len(all) - 1
			switch {
			case document:
				all[last].command += line
				document = line != "END\n"
			case ok:
				all = append(all, step{command: command})
				document = strings.HasSuffix(command, "<<'END'\n")
			default:
				all[last].want += line
			}
		}
	}
	return all
}

// A walk is a directory in which the steps are taken.
type walk struct {
	t         *testing.T
	dir       string
	addresses *strings.Replacer // those of the page, and what they are here
	back      *strings.Replacer
	until     time.Time // how long what comes later is waited for
}

func newWalk(t *testing.T, playground string) *walk {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{t: t, dir: t.TempDir(), until: time.Now().Add(waitLimit)}
	script := fmt.Sprintf("#!/bin/sh\n%s=1 GORACE=%s exec %s \"$@\"\n", execVar, noLinger, program)
	if err := os.WriteFile(filepath.Join(w.dir, "farcall"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	free := freeAddresses(t, 1)[0]
	w.addresses = strings.NewReplacer("127.0.0.1:7331", playground, "127.0.0.1:7332", free,
		"go run ./cmd/farcall", "farcall")
	w.back = strings.NewReplacer(free, "127.0.0.1:7332", playground, "127.0.0.1:7331")
	return w
}

func (w *walk) take(s step) {
	w.t.Helper()
	line, background := strings.CutSuffix(strings.TrimSpace(s.command), "&")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := exec.CommandContext(ctx, "bash", "-c", "exec "+w.addresses.Replace(line))
	if strings.HasPrefix(line, "cat ") {
		cmd.Args[2] = w.addresses.Replace(line)
	}
	cmd.Dir, cmd.WaitDelay = w.dir, 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "PATH="+w.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	var out bytes.Buffer
	if !background {
		defer cancel()
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if strings.HasPrefix(line, "farcall audit verify") && !w.fits(s, out.String()) &&
			time.Now().Before(w.until) {
			w.take(s) // lines are written a little later
			return
		}
		if (err == nil) == refusal.MatchString(s.want) {
			w.t.Fatalf("$ %s%v\n%s", s.command, err, &out)
		}
		w.compare(s, out.String())
		return
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was interrupted
	})
	b := make([]byte, 4096)
	for strings.Count(out.String(), "\n") < strings.Count(strings.TrimSpace(s.want), "\n")+1 {
		n, err := stderr.Read(b)
		out.Write(b[:n])
		if err != nil {
			break
		}
	}
	w.compare(s, out.String())
}

// refusal is what a page shows of a command that ends with a status other than 0.
var refusal = regexp.MustCompile(`(?m)^(denied|FAIL) `)

// fits reports whether a step printed what the page says.
func (w *walk) fits(s step, got string) bool {
	want := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(s.want)), "…", ".+")
	return regexp.MustCompile("^" + want + "$").MatchString(strings.TrimSpace(w.back.Replace(got)))
}

func (w *walk) compare(s step, got string) {
	w.t.Helper()
	if !w.fits(s, got) {
		w.t.Fatalf("$ %sprints\n%s\nand the page says\n%s", s.command, w.back.Replace(got), s.want)
	}
}
