package mcpauth

import "io/fs"

const dontWait, noLink = 0, 0

// ours is for the access rules of the directory to say.
func ours(fs.FileInfo) bool { return true }
