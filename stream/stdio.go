package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/farcall-dev/farcall"
)

// Stdio returns a transport over the standard input and output of this process.
// It takes both over: nothing else may read or write them, and Close closes
// them.
//
// Close unblocks a Read where standard input is a pipe or a socket on unix, and
// on linux also where it is a terminal. A Read of anything else that can keep
// its reader waiting, such as a console on windows, returns with the next input.
func Stdio(framing Framing, o *Options) farcall.Transport {
	in, out := standardFiles()
	return New(&stdio{in, out}, framing, o)
}

type stdio struct{ in, out *os.File }

func (s *stdio) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *stdio) Write(p []byte) (int, error) { return s.out.Write(p) }

// ended tells the end of the input from the end of the connection: a program that closes standard
// input may wait for the answers (printf … | program).
func (s *stdio) ended(cause error) error {
	if errors.Is(cause, io.EOF) {
		return inputEndError{}
	}
	return fmt.Errorf("stream: read: %w", cause)
}

// An inputEndError is io.EOF of an input while the output is open.
type inputEndError struct{}

func (inputEndError) Error() string { return io.EOF.Error() }

// Unwrap returns io.EOF.
func (inputEndError) Unwrap() error { return io.EOF }

// HalfClosed says that the other end may still read: see farcall.Transport.
func (inputEndError) HalfClosed() bool { return true }

func (s *stdio) Close() error {
	var errs []error
	for _, f := range []*os.File{s.in, s.out, os.Stdin, os.Stdout} {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// SetReadDeadline fails where standard input cannot be interrupted.
func (s *stdio) SetReadDeadline(t time.Time) error { return s.in.SetReadDeadline(t) }

func (s *stdio) files() (in, out *os.File) { return s.in, s.out }

var _ io.ReadWriteCloser = (*stdio)(nil)
