package sandbox

import (
	"io"
	"os"

	"github.com/farcall-dev/farcall/internal/visible"
)

// stderrOf returns where the command's standard error goes. On its way to a terminal it is
// escaped; a file or a pipe gets the bytes as they are.
func stderrOf(f *os.File) io.Writer {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return f
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
		return f
	}
	return visible.NewWriter(f)
}
