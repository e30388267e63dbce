package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/visible"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Colours of a terminal.
const (
	colourName    = "\x1b[34;1m"
	colourString  = "\x1b[32m"
	colourNumber  = "\x1b[33m"
	colourLiteral = "\x1b[35m"
	colourFaint   = "\x1b[2m"
	colourRed     = "\x1b[31m"
	colourGreen   = "\x1b[32m"
	colourReset   = "\x1b[0m"
)

// colours reports whether standard output takes colours (https://no-color.org).
func (e *env) colours() bool {
	return e.isTTY && e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb"
}

// paint colours a text for standard output.
func (e *env) paint(colour, text string) string {
	if !e.colours() {
		return text
	}
	return colour + text + colourReset
}

// printJSON prints a value: for people indented, for programs on one line.
func (e *env) printJSON(raw jsonrpc.Raw) error {
	var b []byte
	if e.isTTY {
		b = pretty(raw, e.colours())
	} else {
		b = compact(raw)
	}
	_, err := e.stdout.Write(append(b, '\n'))
	return err
}

// printValue prints what marshals to JSON.
func (e *env) printValue(v any) error {
	raw, err := jsonv2.Append(nil, v)
	if err != nil {
		return err
	}
	return e.printJSON(raw)
}

// say prints a line.
func (e *env) say(format string, args ...any) error {
	_, err := fmt.Fprintf(e.stdout, format+"\n", args...)
	return err
}

// printLine prints a value on one line, as those of a stream are.
func (e *env) printLine(raw jsonrpc.Raw) error {
	b := compact(raw)
	if e.colours() {
		b = appendColoured(nil, raw)
	}
	_, err := e.stdout.Write(append(b, '\n'))
	return err
}

// compact returns a value without the white space between its tokens.
func compact(raw jsonrpc.Raw) []byte {
	var dst []byte
	for t := range tokens(raw) {
		dst = append(dst, t...)
	}
	return dst
}

// appendColoured appends a value on one line, in colour.
func appendColoured(dst []byte, raw jsonrpc.Raw) []byte {
	for t := range tokens(raw) {
		dst = appendToken(dst, t, "", true)
	}
	return dst
}

// pretty returns a value with one member or element a line. Numbers and strings keep their bytes.
func pretty(raw jsonrpc.Raw, colour bool) []byte {
	var dst []byte
	depth := 0
	var last byte
	newline := func() { dst = append(append(dst, '\n'), strings.Repeat("  ", depth)...) }
	all := slices.Collect(tokens(raw))
	for n, t := range all {
		c := t[0]
		switch {
		case c == '}' || c == ']':
			depth--
			if last != '{' && last != '[' {
				newline()
			}
		case last == '{' || last == '[' || last == ',':
			newline()
		}
		hue := ""
		if n+1 < len(all) && all[n+1][0] == ':' {
			hue = colourName
		}
		dst = appendToken(dst, t, hue, colour)
		switch c {
		case '{', '[':
			depth++
		case ':':
			dst = append(dst, ' ')
		}
		last = c
	}
	return dst
}

func appendToken(dst, t []byte, hue string, colour bool) []byte {
	if !colour {
		return appendTame(dst, t)
	}
	switch c := t[0]; {
	case hue != "":
	case c == '"':
		hue = colourString
	case c == '-' || c >= '0' && c <= '9':
		hue = colourNumber
	case c == 't' || c == 'f' || c == 'n':
		hue = colourLiteral
	default:
		return append(dst, t...)
	}
	return append(appendTame(append(dst, hue...), t), colourReset...)
}

// appendTame writes the control characters that JSON allows in a string and a
// terminal obeys as escapes, which mean the same in JSON.
func appendTame(dst, t []byte) []byte {
	for len(t) > 0 {
		r, n := utf8.DecodeRune(t)
		if r == 0x7f || r >= 0x80 && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r) {
			dst = fmt.Appendf(dst, `\u%04x`, r)
		} else {
			dst = append(dst, t[:n]...)
		}
		t = t[n:]
	}
	return dst
}

// tokens splits valid JSON.
func tokens(raw jsonrpc.Raw) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := 0; i < len(raw); {
			end := i + 1
			switch c := raw[i]; {
			case c == ' ' || c == '\t' || c == '\n' || c == '\r':
				i++
				continue
			case c == '"':
				end = stringEnd(raw, i)
			case bytes.IndexByte([]byte("{}[],:"), c) < 0:
				for end < len(raw) && bytes.IndexByte([]byte("{}[],: \t\r\n"), raw[end]) < 0 {
					end++
				}
			}
			if !yield(raw[i:end]) {
				return
			}
			i = end
		}
	}
}

func stringEnd(raw jsonrpc.Raw, start int) int {
	for i := start + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// tame returns a text of the other end that is fit to be printed.
func tame(s string) string { return visible.Text(s) }

// widthsOf are the widths of the columns of a table, without so many cells at the end of each row.
func widthsOf(rows [][]string, without int) (widths []int) {
	for _, row := range rows {
		for i, cell := range row[:max(len(row)-without, 0)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// columns prints rows as an aligned table.
func columns(w io.Writer, rows [][]string, style func(row, col int, text string) string) error {
	widths := widthsOf(rows, 1) // the last cell may be as long as it likes
	var b strings.Builder
	for r, row := range rows {
		for i, cell := range row {
			text := cell
			if style != nil {
				text = style(r, i, cell)
			}
			b.WriteString(text)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// namedRows are names and what they stand for, below a heading.
type namedRows [][]string

// add adds a name with its texts, one a row. Without a text there is no row.
func (r *namedRows) add(name string, texts ...string) {
	for _, text := range texts {
		if text != "" {
			*r = append(*r, []string{"  " + name, tame(text)})
			name = ""
		}
	}
}

// aligned returns rows as lines in columns, those from first to last to the right.
func aligned(rows [][]string, first, last int) []string {
	widths := widthsOf(rows, 0)
	lines := make([]string, len(rows))
	for n, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			width := widths[i]
			if i < first || i > last {
				width = -width // to the left
			}
			cells[i] = fmt.Sprintf("%*s", width, cell)
		}
		lines[n] = strings.TrimRight(strings.Join(cells, "  "), " ")
	}
	return lines
}

// mapped returns what f makes of each element; nil for none.
func mapped[T, R any](list []T, f func(T) R) (all []R) {
	for _, one := range list {
		all = append(all, f(one))
	}
	return all
}

// countOf writes a number with its noun, in the plural where it needs one.
func countOf(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "ss"):
		noun += "es"
	default:
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// unreadable is the exit for a file that cannot be read: what it is, its path, the reason and what
// to do. The exit code is the same for every command.
func unreadable(what, path string, err error) error {
	return &exitError{
		code: exitUsage,
		err:  fmt.Errorf("cannot read %s %s: %w", what, path, pathReason(err)), hint: pathHint(path, err),
	}
}

// pathReason is an error without the path, which the message has already.
func pathReason(err error) error {
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		return inner.Err
	}
	return err
}

// pathHint says what to do about a path that cannot be used.
func pathHint(path string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if dir, err := os.Getwd(); err == nil && !filepath.IsAbs(path) {
			return "Is the path right? It is relative to the working directory, " + dir + "."
		}
		return "Is the path right?"
	case errors.Is(err, fs.ErrPermission):
		return "The user that runs farcall needs permission for it: 'ls -l' shows its mode."
	}
	return ""
}
