//go:build !unix

package signin

import "io/fs"

// inodeOf is "" where files have no numbers.
func inodeOf(fs.FileInfo) string { return "" }
