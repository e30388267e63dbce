// Package filelock answers one question: does another process use this file?
package filelock

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	pause    = 5 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// Wait opens a file for writing, which it makes if need be, and waits until it has locked it. The
// lock ends with [Close], or with the process. Do not remove what is locked: another
// process may wait for it. flags are more of those of os.OpenFile.
func Wait(ctx context.Context, path string, flags int, exclusive bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|flags, 0o600)
	if err != nil {
		return nil, err
	}
	for wait := pause; ; wait = min(2*wait, maxPause) {
		ok, err := Try(f, exclusive)
		if ok {
			return f, nil
		}
		if err == nil {
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				err = fmt.Errorf("another process uses it: %w", ctx.Err())
			}
		}
		_ = f.Close() // nothing was written
		return nil, err
	}
}

// Close unlocks a file and closes it. If it were only closed, it might stay locked for a moment: a
// child that this process is just starting has a copy of the file until it runs its program.
func Close(f *os.File) error {
	unlock(f)
	return f.Close()
}
