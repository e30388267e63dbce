package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// unreadable is the exit for a file that cannot be read: what it is, its path, the reason and what
// to do. The exit code is the same for every command.
func unreadable(what, path string, err error) error {
	reason := err
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		reason = inner.Err
	}
	return &exitError{code: exitUsage, err: fmt.Errorf("cannot read %s %s: %w", what, path, reason), hint: pathHint(path, err)}
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
