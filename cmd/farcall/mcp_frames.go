package main

import (
	"bytes"
	"io"
)

// trace returns what shows messages in both directions, nil without -v.
func (m *mcpRemote) trace() io.Writer {
	if !m.verbose {
		return nil
	}
	return consoleLines{m.screen}
}

// consoleLines writes lines to a console, above what moves there.
type consoleLines struct{ *console }

func (c consoleLines) Write(p []byte) (int, error) {
	c.printf("%s", bytes.TrimSuffix(p, []byte("\n")))
	return len(p), nil
}
