package stream

import (
	"errors"
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
