package main

import (
	"errors"
	"strings"

	"github.com/farcall-dev/farcall/internal/target"
)

// targetForms lists what a TARGET may be; it is part of the help.
var targetForms = "TARGET is one of:\n  " + strings.Join(target.Standard().Forms(), "\n  ") + `
  host:port                            the same as http://host:port
  -- command args...                   a child process, over its standard input and output
FRAMING is how a byte stream marks messages (for a child --framing FRAMING): line,
the default, has one a line; header has the Content-Length headers of language
servers; raw has JSON texts one after another, with or without line ends.`

// parseTarget reads a TARGET other than a command, for JSON-RPC.
func parseTarget(text string) (*target.Target, error) {
	t, err := readTarget(text)
	if err == nil {
		t.DefaultPath("")
	}
	return t, err
}

// readTarget reads a TARGET other than a command. A URL without a path has none.
func readTarget(text string) (*target.Target, error) {
	t, err := target.Parse(text)
	if bad := (*target.Error)(nil); errors.As(err, &bad) {
		return nil, usagef("Try http://host:port, ws://host:port, tcp://host:port, unix:PATH, or put a command behind --.", "%w", err)
	}
	return t, err
}
