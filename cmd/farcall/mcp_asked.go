package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// asker answers what the server asks for.
type asker struct {
	screen     *console
	sampleText string
	verbose    bool
	roots      []mcp.Root
	stdin      lineReader // nil: no user sits there
	models     bool       // the user is asked in the place of a model

	turn chan struct{} // held by what is being asked: one thing at a time

	mu      sync.Mutex
	answers []string // of --answer, those that are left
	failure error    // that of the command line, which the server cannot see
}

func (m *mcpRemote) newAsker() (*asker, error) {
	a := &asker{
		screen: m.screen, sampleText: m.sample, verbose: m.verbose, answers: m.answers,
		turn: make(chan struct{}, 1),
	}
	if m.lines != nil {
		a.stdin, a.models = m.lines, !m.sampleGiven
	} else if isPerson(m.stdin) && m.screen.tty {
		a.stdin = newTypist(m.stdin)
	}
	for _, text := range m.answers {
		if _, _, err := readAnswer(text); err != nil {
			return nil, err
		}
	}
	for _, dir := range m.roots {
		root, err := rootOf(dir)
		if err != nil {
			return nil, err
		}
		a.roots = append(a.roots, root)
	}
	return a, nil
}

// rootOf makes a root of a directory or a file: URI.
func rootOf(dir string) (mcp.Root, error) {
	if strings.HasPrefix(dir, "file:") {
		return mcp.Root{URI: dir}, nil
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return mcp.Root{}, usagef("", "cannot use --root %q: %w", dir, err)
	}
	u := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/")}
	return mcp.Root{URI: u.String(), Name: filepath.Base(path)}, nil
}

// readAnswer reads an --answer: what the user does, and the form's content.
func readAnswer(text string) (action string, content jsonrpc.Raw, err error) {
	switch text {
	case spec.ElicitAccept, spec.ElicitDecline, spec.ElicitCancel:
		return text, nil, nil
	}
	raw := jsonrpc.Raw(strings.TrimSpace(text))
	if jsonrpc.Valid(raw) != nil || raw[0] != '{' {
		return "", nil, usagef(`Write it as --answer '{"name":"Ada"}', or accept, decline or cancel.`,
			"%q is not an answer", text)
	}
	return spec.ElicitAccept, raw, nil
}

// failed is why the command line did not suffice, nil when it did.
func (a *asker) failed() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failure
}

// elicit answers a form, or whether a page may be opened.
func (a *asker) elicit(
	ctx context.Context, p *spec.ElicitRequestParams,
) (*spec.ElicitResult, error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var f form
	if p.Mode != spec.ElicitURL {
		var err error
		if f, err = newForm(p.RequestedSchema); err != nil {
			return nil, err
		}
	}
	r, used, err := a.given(p, f)
	switch {
	case r != nil || err != nil:
		return r, err
	case a.stdin != nil && p.Mode == spec.ElicitURL:
		return a.askPage(ctx, p)
	case a.stdin != nil:
		return a.askForm(ctx, p, f)
	}
	a.screen.printf("The server asks: %s", tame(p.Message))
	hint := "--answer accept"
	if p.Mode == spec.ElicitURL {
		a.screen.printf("  %s", tame(p.URL))
	} else {
		hint = "--answer '" + f.example() + "'"
	}
	if used > 0 {
		hint += " (those given have been used)"
	}
	a.screen.printf("It is declined, because there is no user to ask. Answer it with %s", hint)
	return &spec.ElicitResult{Action: spec.ElicitDecline}, nil
}

// given takes the first of the answers of the command line that fits. Questions
// of one round come in any order.
func (a *asker) given(
	p *spec.ElicitRequestParams, f form,
) (r *spec.ElicitResult, used int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var misfit error
	for i, text := range a.answers {
		if text == "" {
			used++
			continue
		}
		action, content, err := readAnswer(text)
		if err == nil && p.Mode != spec.ElicitURL && action == spec.ElicitAccept {
			content, err = f.check(content)
		}
		if err == nil {
			a.answers[i] = ""
			return &spec.ElicitResult{Action: action, Content: content}, used, nil
		}
		misfit = cmp.Or(misfit, err)
	}
	if misfit != nil && a.stdin == nil {
		a.failure = usagef("The server asks: "+tame(p.Message)+"\nFor example --answer '"+f.example()+"'",
			"--answer does not fit: %w", misfit)
		return nil, used, a.failure
	}
	return nil, used, nil
}

// sample stands in for a model.
func (a *asker) sample(
	ctx context.Context, p *spec.CreateMessageRequestParams,
) (*spec.CreateMessageResult, error) {
	if a.verbose {
		raw, err := jsonv2.Append(nil, p)
		if err != nil {
			return nil, err
		}
		a.screen.printf("sampling %s", appendTame(nil, compact(raw)))
	}
	text, model := a.sampleText, "farcall --sample"
	if a.models {
		var err error
		if text, err = a.askModel(ctx, p); err != nil {
			return nil, err
		}
		model = "farcall shell"
	}
	return &spec.CreateMessageResult{
		Role: spec.RoleAssistant, Content: []spec.Content{mcp.Text(text)}, Model: model,
		StopReason: spec.StopEndTurn,
	}, nil
}

// askModel asks the user what a model would answer.
func (a *asker) askModel(ctx context.Context, p *spec.CreateMessageRequestParams) (string, error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	a.screen.printf("The server asks a model:")
	if p.SystemPrompt != "" {
		a.screen.printf("  system: %s", tame(p.SystemPrompt))
	}
	for i := range p.Messages {
		raw, err := jsonv2.Append(nil, p.Messages[i].Content)
		if err != nil {
			return "", err
		}
		a.screen.printf("  %s: %s", tame(p.Messages[i].Role), appendTame(nil, raw))
	}
	a.screen.write("answer as the model> ")
	text, ok, err := a.stdin.line(ctx)
	if err == nil && !ok {
		err = jsonrpc.Errorf(-1, "the user refused") // as the specification of sampling has it
	}
	return text, err
}

// askPage asks whether a page may be opened.
func (a *asker) askPage(
	ctx context.Context, p *spec.ElicitRequestParams,
) (*spec.ElicitResult, error) {
	a.screen.printf("The server asks you to open a page: %s\n  %s", tame(p.Message), tame(p.URL))
	for {
		a.screen.write("Have you, or will you? [y/n] ")
		line, ok, err := a.stdin.line(ctx)
		switch answer := strings.ToLower(strings.TrimSpace(line)); {
		case err != nil:
			return nil, err
		case !ok, answer == spec.ElicitCancel:
			a.screen.write("\n")
			return &spec.ElicitResult{Action: spec.ElicitCancel}, nil
		case answer == "y", answer == "yes":
			return &spec.ElicitResult{Action: spec.ElicitAccept}, nil
		case answer == "n", answer == "no", answer == spec.ElicitDecline:
			return &spec.ElicitResult{Action: spec.ElicitDecline}, nil
		}
	}
}

// askForm asks for the fields of a form one by one.
func (a *asker) askForm(
	ctx context.Context, p *spec.ElicitRequestParams, f form,
) (*spec.ElicitResult, error) {
	a.screen.printf(
		"The server asks: %s\n(\"decline\" or \"cancel\" end the form, and so does Ctrl-D.)",
		tame(p.Message))
	content := jsonrpc.Raw{'{'}
	for i := range f {
		field := &f[i]
		a.screen.printf("\n%s", field.describe())
		value, action, err := a.askField(ctx, field)
		if err != nil {
			return nil, err
		}
		if action != "" {
			return &spec.ElicitResult{Action: action}, nil
		}
		if value != nil {
			content = field.append(content, value)
		}
	}
	return &spec.ElicitResult{Action: spec.ElicitAccept, Content: append(content, '}')}, nil
}

// askField asks until the answer fits. A nil value is none; an action ends the
// form.
func (a *asker) askField(
	ctx context.Context, field *field,
) (value jsonrpc.Raw, action string, err error) {
	for {
		a.screen.write(field.prompt())
		line, ok, err := a.stdin.line(ctx)
		line = strings.TrimSpace(line)
		switch {
		case err != nil:
			return nil, "", err
		case !ok:
			a.screen.write("\n")
			return nil, spec.ElicitCancel, nil
		case line == spec.ElicitDecline, line == spec.ElicitCancel:
			return nil, line, nil
		case line == "" && (field.Default != nil || !field.required):
			return field.Default, "", nil
		}
		value, err := field.parse(strings.TrimPrefix(line, `\`)) // \decline is the word itself
		if err == nil {
			return value, "", nil
		}
		a.screen.printf("  %v", err)
	}
}

// lineReader reads what a user types. It is not ok when there will be no more.
type lineReader interface {
	line(ctx context.Context) (text string, ok bool, err error)
}

// typist is who types lines. One goroutine reads them, for as long as the
// program runs: a read of a terminal cannot be given up.
type typist struct {
	once   sync.Once
	start  func()
	lines  chan string
	closed chan struct{}
}

func newTypist(r interface{ Read([]byte) (int, error) }) *typist {
	t := &typist{lines: make(chan string), closed: make(chan struct{})}
	t.start = func() {
		go func() {
			defer close(t.closed)
			for in := bufio.NewScanner(r); in.Scan(); {
				t.lines <- in.Text()
			}
		}()
	}
	return t
}

// line waits for a line. It is not ok when there will be none.
func (t *typist) line(ctx context.Context) (text string, ok bool, err error) {
	t.once.Do(t.start)
	select {
	case text := <-t.lines:
		return text, true, nil
	case <-t.closed:
		return "", false, nil
	case <-ctx.Done():
		return "", false, fmt.Errorf("no answer: %w", ctx.Err())
	}
}

// console is standard error while a call runs: lines, and on a terminal below
// them a bar that shows how far the call has come.
type console struct {
	w   io.Writer
	tty bool

	mu  sync.Mutex
	bar string // what stands in the last line of the terminal
}

func newConsole(w io.Writer) *console { return &console{w: w, tty: isPerson(w)} }

// isPerson reports whether a user sits at the other end of f: it is a
// terminal, and not the null device, which looks like one.
func isPerson(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// printf prints a line above the bar.
func (c *console) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bar := c.bar
	c.wipe()
	fmt.Fprintf(c.w, format+"\n", args...)
	c.draw(bar)
}

// write prints what needs no separate line, such as a prompt. The bar goes.
func (c *console) write(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wipe()
	_, _ = io.WriteString(c.w, text)
}

// clear takes the bar away.
func (c *console) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wipe()
}

func (c *console) wipe() {
	if c.bar != "" {
		_, _ = io.WriteString(c.w, "\r\x1b[K")
		c.bar = ""
	}
}

func (c *console) draw(bar string) {
	if bar != "" && bar != c.bar {
		c.wipe()
		_, _ = io.WriteString(c.w, noWrap+bar+wrap)
		c.bar = bar
	}
}

// progress shows a report: on a terminal as a bar, elsewhere as a line, if
// those are wanted.
func (m *mcpRemote) progress(p spec.ProgressNotificationParams) {
	switch c := m.screen; {
	case c.tty:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.draw(progressBar(p.Progress, p.Total, tame(p.Message)))
	case m.verbose:
		c.printf("progress %s", progressText(p.Progress, p.Total, tame(p.Message)))
	}
}

// progressText is a report in words.
func progressText(done float64, total *float64, message string) string {
	text := fmt.Sprintf("%g", done)
	if total != nil {
		text += fmt.Sprintf("/%g", *total)
	}
	if message != "" {
		text += " " + message
	}
	return text
}

const (
	barCells = 24
	barWidth = 79 // of the whole line

	// A terminal that is narrower cuts the bar off: what has wrapped could not be
	// wiped.
	noWrap, wrap = "\x1b[?7l", "\x1b[?7h"
)

// progressBar is a report as a line that stays within a terminal.
func progressBar(done float64, total *float64, message string) string {
	message = strings.ReplaceAll(message, "\n", " ")
	line := progressText(done, nil, message)
	if total != nil && *total > 0 {
		share := min(max(done / *total, 0), 1)
		full := int(share * barCells)
		line = fmt.Sprintf("%s%s %3.0f%% %s", strings.Repeat("█", full),
			strings.Repeat("░", barCells-full), 100*share, message)
	}
	return shorten(strings.TrimSpace(line), barWidth)
}
