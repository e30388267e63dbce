//go:build unix

package signin

import (
	"io/fs"
	"strconv"
	"syscall"
)

// inodeOf tells a file from one that has replaced it at the same moment.
func inodeOf(info fs.FileInfo) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return "-" + strconv.FormatUint(uint64(st.Ino), 36) //nolint:unconvert // it has another type on some systems
	}
	return ""
}
