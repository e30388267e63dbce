package prompt

import (
	"os"
	"path/filepath"
	"strings"
)

// history is what was typed, the newest line last.
type history struct {
	file  string
	lines []string
}

// mostKept bounds the lines of a history.
const mostKept = 1000

// readHistory reads the lines of a file, which becomes shorter if it is too long.
func readHistory(file string) *history {
	h := &history{file: file}
	data, err := os.ReadFile(file)
	if err != nil {
		return h // it is made with the first line
	}
	h.lines = strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
	if n := len(h.lines); n > mostKept {
		h.lines = h.lines[n-mostKept:]
		short := strings.Join(h.lines, "\n") + "\n"
		_ = os.WriteFile(file, []byte(short), 0o600) //nolint:gosec // the user's own; else it stays long
	}
	return h
}

// add keeps a line, but not twice in a row, and not one that begins with a space. The file is for
// its owner only: lines may hold secrets.
func (h *history) add(line string) {
	n := len(h.lines)
	if line == "" || line[0] == ' ' || n > 0 && h.lines[n-1] == line {
		return
	}
	h.lines = append(h.lines, line)
	if h.file == "" || os.MkdirAll(filepath.Dir(h.file), 0o700) != nil {
		return
	}
	f, err := os.OpenFile(h.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // it is not kept for the next run
	}
	_, _ = f.WriteString(line + "\n") // as above
	_ = f.Close()                     // as above
}
