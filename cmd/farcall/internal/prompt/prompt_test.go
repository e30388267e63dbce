package prompt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// screen is a buffer that several goroutines use.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newTestPrompt(t *testing.T, file string, complete Completer) (*Prompt, io.Writer, *screen) {
	t.Helper()
	in, keys := io.Pipe()
	out := new(screen)
	p := New(in, out, file, complete)
	t.Cleanup(func() {
		_ = keys.Close() // a line that is being read ends
		p.Close()
	})
	return p, keys, out
}

func lineOf(t *testing.T, p *Prompt, keys io.Writer, typed string) string {
	t.Helper()
	go func() { _, _ = io.WriteString(keys, typed) }()
	text, ok, err := p.Line(t.Context(), "> ")
	if err != nil || !ok {
		t.Fatalf("typed %q: %v, %v", typed, ok, err)
	}
	return text
}

func TestKeys(t *testing.T) {
	words := []string{"add", "add_all", "call", "kind=small", "kind=large", "kind="}
	p, keys, out := newTestPrompt(t, "", func(line string) (int, []string) {
		start := strings.LastIndexByte(line, ' ') + 1
		var fit []string
		for _, w := range words {
			if strings.HasPrefix(w, line[start:]) {
				fit = append(fit, w)
			}
		}
		return start, fit
	})
	for _, c := range []struct{ typed, want string }{
		{"call x\r", "call x"},
		{"ca\tx\r", "call x"},
		{"a\t\t\r", "add"}, // the second lists both
		{"x kind=s\t\r", "x kind=small "},
		{"zz\ty\r", "zzy"}, // nothing fits
		{"half\x03whole\r", "whole"},
		{"\x1b[A\r", "whole"},      // the line before
		{"\x1b[A\x1b[A\r", "zzy"},  // the one before that
		{"\x03\x03\x03ok\r", "ok"}, // an empty line stays empty
		{"né\x7f\x7fame\r", "ame"}, // letters of two bytes
	} {
		if got := lineOf(t, p, keys, c.typed); got != c.want {
			t.Errorf("typed %q: %q, want %q", c.typed, got, c.want)
		}
	}
	if !strings.Contains(out.String(), "add  add_all\r\n") {
		t.Errorf("the words were not listed:\n%q", out)
	}
}

// What two words have in common ends between characters, not within one.
func TestCommonPrefix(t *testing.T) {
	p, _, _ := newTestPrompt(t, "", func(string) (int, []string) { return 0, []string{"zé1", "zè2"} })
	if line, at, ok := p.key("", 0, '\t'); line != "z" || at != 1 || !ok {
		t.Errorf("%q, %d, %v", line, at, ok)
	}
}

// A question is refused by Ctrl-C and Ctrl-D, and neither ends the lines behind it. Answers are not
// in the history.
func TestQuestions(t *testing.T) {
	p, keys, _ := newTestPrompt(t, "", nil)
	for _, c := range []struct {
		typed, want string
		ok          bool
	}{{"Ada\r", "Ada", true}, {"A\x03", "", false}, {"\x04", "", false}, {"b\r", "b", true}} {
		go func() { _, _ = io.WriteString(keys, c.typed) }()
		text, ok, err := p.Ask(t.Context())
		if ok != c.ok || ok && text != c.want || err != nil {
			t.Errorf("typed %q: %q, %v, %v", c.typed, text, ok, err)
		}
		if got := lineOf(t, p, keys, "next\r"); got != "next" {
			t.Errorf("behind %q: %q", c.typed, got)
		}
	}
	if got := lineOf(t, p, keys, "\x1b[A\r"); got != "next" {
		t.Errorf("the last line is %q", got)
	}
}

// What was typed for a question that was given up is no command, and is not kept.
func TestQuestionGivenUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	p, keys, _ := newTestPrompt(t, file, nil)
	for _, end := range []string{"\r", "\r"} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, ok, err := p.Ask(ctx); ok || !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, %v", ok, err)
		}
		if got := lineOf(t, p, keys, "secret"+end+"next\r"); got != "next" {
			t.Errorf("%q", got)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "next\n" {
		t.Errorf("%q is kept, %v", data, err)
	}
}

// A question gets nothing of a line that the user is typing, and an open one ends where the user
// is to type a command.
func TestQuestionAtPrompt(t *testing.T) {
	p, keys, out := newTestPrompt(t, "", nil)
	asked := make(chan error)
	go func() {
		_, _, err := p.Ask(t.Context())
		asked <- err
	}()
	for !p.question.Load() { // nothing has been asked yet
		runtime.Gosched()
	}
	typed := make(chan string)
	go func() {
		text, _, _ := p.Line(t.Context(), "at> ")
		typed <- text
	}()
	if err := <-asked; !errors.Is(err, ErrBusy) {
		t.Errorf("the open question: %v", err)
	}
	_, _ = io.WriteString(keys, "half\rcall")
	for !strings.Contains(out.String(), "at> ") {
		runtime.Gosched()
	}
	if text, ok, err := p.Ask(t.Context()); text != "" || ok || !errors.Is(err, ErrBusy) {
		t.Errorf("a question at the prompt: %q, %v, %v", text, ok, err)
	}
	_, _ = io.WriteString(keys, " x\r")
	if got := <-typed; got != "call x" {
		t.Errorf("%q", got)
	}
}

func TestEnd(t *testing.T) {
	p, keys, _ := newTestPrompt(t, "", nil)
	go func() { _, _ = io.WriteString(keys, "\x04") }()
	if text, ok, err := p.Line(t.Context(), "> "); ok || err != nil {
		t.Errorf("%q, %v, %v", text, ok, err)
	}
}

// The history is kept in a file for its owner, without lines that begin with a space.
func TestHistory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "farcall", "history")
	p, keys, _ := newTestPrompt(t, file, nil)
	for _, line := range []string{"one\r", " secret\r", "two\r", "two\r", "\r"} {
		lineOf(t, p, keys, line)
	}
	data, err := os.ReadFile(file)
	if err != nil || string(data) != "one\ntwo\n" {
		t.Errorf("%q, %v", data, err)
	}
	if info, err := os.Stat(file); err != nil ||
		runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	next, typed, _ := newTestPrompt(t, file, nil)
	if got := lineOf(t, next, typed, "\x1b[A\x1b[A\r"); got != "one" {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("x\ny\n", mostKept)), 0o600); err != nil {
		t.Fatal(err)
	}
	if h := readHistory(file); len(h.lines) != mostKept {
		t.Errorf("%d lines", len(h.lines))
	}
}
