//go:build !unix

package stream

import (
	"io"
	"os"
)

// readNow is for such systems, too: there are no deadlines without them.
func readNow(*os.File, []byte) (int, error) { return 0, io.EOF }

// raw is for systems with descriptors that can be read without blocking.
type raw struct{}

func newRaw(io.ReadWriteCloser, *input) *raw { return nil }

func (r *raw) canRead() bool                   { return false }
func (r *raw) canWrite() bool                  { return false }
func (r *raw) read(int) error                  { return io.EOF }
func (r *raw) write(p []byte) (n int, e error) { return 0, io.EOF }
