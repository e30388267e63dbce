// Package prompt answers one question: how does a user type lines at a terminal, with a history
// and with completion?
package prompt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Completer returns the words that may stand at the end of a line, and where in the line they
// begin.
type Completer func(line string) (start int, words []string)

// A Prompt reads lines from a terminal. One goroutine may call Line; any number may ask and
// write.
type Prompt struct {
	in       *os.File // nil: it is not a terminal, and has no mode to be changed
	out      io.Writer
	term     *term.Terminal
	complete Completer
	history  *history
	question atomic.Bool // the line that is read answers a question
	refused  atomic.Bool // the question has got no answer

	mu      sync.Mutex
	reading bool          // the terminal is in raw mode
	typing  chan struct{} // closed while Line waits

	want  chan string
	lines chan line

	turn    sync.Mutex // held by who waits for a line
	pending bool       // a line is being read
}

// ErrBusy is the error of a question that cannot be answered now.
var ErrBusy = errors.New("the user is typing something else")

type line struct {
	text string
	ok   bool
}

// New returns a Prompt, which must be closed. Lines are kept in the file, if it is not "". The mode
// of a terminal is changed only while a line is read.
func New(in io.Reader, out io.Writer, file string, complete Completer) *Prompt {
	p := &Prompt{
		out: out, complete: complete, history: readHistory(file),
		want: make(chan string), lines: make(chan line, 1), typing: make(chan struct{}),
	}
	p.term = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keys{in, p}, out}, "")
	p.term.AutoCompleteCallback, p.term.History = p.key, p
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.in = f
	}
	go p.loop()
	return p
}

// Close ends the Prompt; a line that is being read is read to its end.
func (p *Prompt) Close() { close(p.want) }

// loop reads a line whenever one is wanted: a read of a terminal cannot be given up.
func (p *Prompt) loop() {
	for prompt := range p.want {
		text, err := p.read(prompt)
		p.lines <- line{text, !p.refused.Swap(false) && err == nil}
	}
}

func (p *Prompt) read(prompt string) (string, error) {
	p.mu.Lock()
	if p.in != nil {
		fd := int(p.in.Fd())
		if width, height, err := term.GetSize(fd); err == nil && width > 0 {
			_ = p.term.SetSize(width, height) // the size of before does, too
		}
		state, err := term.MakeRaw(fd)
		if err != nil {
			p.mu.Unlock()
			return "", err
		}
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.reading = false
			_ = term.Restore(fd, state) // nothing can be done about it
		}()
		p.reading = true
	}
	p.mu.Unlock()
	p.term.SetPrompt(prompt)
	return p.term.ReadLine()
}

// Line reads a line with the history and completion. It is not ok at the end of the input. A
// question that is open is given up.
func (p *Prompt) Line(ctx context.Context, prompt string) (text string, ok bool, err error) {
	p.mu.Lock()
	close(p.typing)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.typing = make(chan struct{})
	}()
	p.turn.Lock()
	defer p.turn.Unlock()
	return p.next(ctx, prompt, nil)
}

// Ask reads the answer to a question, which is not kept. Ctrl-C and Ctrl-D refuse it: it is not ok.
// The error is ErrBusy where the user types something else.
func (p *Prompt) Ask(ctx context.Context) (text string, ok bool, err error) {
	p.mu.Lock()
	typing := p.typing
	p.mu.Unlock()
	if !p.turn.TryLock() {
		return "", false, ErrBusy
	}
	defer p.turn.Unlock()
	select {
	case <-typing:
		return "", false, ErrBusy
	default:
		return p.next(ctx, "", typing)
	}
}

// next reads a line; that of a question until the user types something else. What has been typed
// for another one, which was given up, is thrown away up to its end.
func (p *Prompt) next(
	ctx context.Context, prompt string, typing <-chan struct{},
) (string, bool, error) {
	for {
		stale := p.pending
		if stale {
			p.term.SetPrompt("(given up: press Enter) ")
			fmt.Fprint(p, "\n")
		} else {
			p.question.Store(typing != nil)
			p.want <- prompt
		}
		p.pending = true
		select {
		case l := <-p.lines:
			p.pending = false
			if !stale {
				return l.text, l.ok, nil
			}
		case <-typing:
			return "", false, ErrBusy
		case <-ctx.Done():
			return "", false, fmt.Errorf("no answer: %w", ctx.Err())
		}
	}
}

// Write writes above the line that is being typed.
func (p *Prompt) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading {
		return p.term.Write(b)
	}
	return p.out.Write(b)
}

// keys are those of the terminal. Ctrl-C clears the line, and ends a question, as Ctrl-D does. The
// terminal gets neither in a question: it would see the same key again with the next line.
type keys struct {
	io.Reader
	p *Prompt
}

func (k keys) Read(b []byte) (int, error) {
	n, err := k.Reader.Read(b[:max(1, len(b)/3)])
	const clearLine = "\x05\x15" // to the end, and delete to the beginning
	got := bytes.ReplaceAll(b[:n], []byte{3}, []byte(clearLine))
	if k.p.question.Load() && bytes.ContainsAny(b[:n], "\x03\x04") {
		k.p.refused.Store(true)
		got = []byte(clearLine + "\r")
	}
	return copy(b, got), err
}

// mostShown bounds the words that a completion lists.
const mostShown = 60

// key completes the line when it is the tabulator.
func (p *Prompt) key(text string, at int, key rune) (string, int, bool) {
	if key != '\t' || p.question.Load() || p.complete == nil {
		return "", 0, false
	}
	start, words := p.complete(text[:at])
	if len(words) == 0 {
		return text, at, true
	}
	common := words[0]
	for _, w := range words[1:] {
		for !strings.HasPrefix(w, common) {
			common = common[:len(common)-1]
		}
	}
	for !utf8.ValidString(common) { // the words part within a character
		common = common[:len(common)-1]
	}
	switch {
	case len(words) == 1 && !strings.HasSuffix(common, "="):
		common += " "
	case len(words) > 1 && common == text[start:at]:
		more := ""
		if len(words) > mostShown {
			words, more = words[:mostShown], fmt.Sprintf("  … %d more", len(words)-mostShown)
		}
		fmt.Fprintf(p.term, "%s%s\n", strings.Join(words, "  "), more)
	}
	return text[:start] + common + text[at:], start + len(common), true
}

// Add implements term.History.
func (p *Prompt) Add(text string) {
	if !p.question.Load() {
		p.history.add(text)
	}
}

// Len implements term.History.
func (p *Prompt) Len() int {
	if p.question.Load() {
		return 0
	}
	return len(p.history.lines)
}

// At implements term.History.
func (p *Prompt) At(i int) string { return p.history.lines[len(p.history.lines)-1-i] }
