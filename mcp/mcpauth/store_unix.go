//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package mcpauth

import (
	"io/fs"
	"os"
	"syscall"
)

// Another user may have put a pipe into the place of a file, or a link to what that user cannot
// write.
const (
	dontWait = syscall.O_NONBLOCK
	noLink   = syscall.O_NOFOLLOW
)

// ours reports whether a file belongs to who runs this, or to root.
func ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Uid == 0 || int(stat.Uid) == os.Geteuid()
}
