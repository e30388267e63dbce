package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/mcp/spec"
)

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
		line = fmt.Sprintf("%s%s %3.0f%% %s", strings.Repeat("█", full), strings.Repeat("░", barCells-full), 100*share, message)
	}
	return shorten(strings.TrimSpace(line), barWidth)
}
