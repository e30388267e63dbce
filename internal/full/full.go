// Package full says whether tests that try many combinations, or large sizes, are to try all of
// them. go test ./... tries a part of each, and make full the rest.
package full

import "os"

// Wanted reports whether FARCALL_FULL is set, as make full does.
func Wanted() bool { return os.Getenv("FARCALL_FULL") != "" }
