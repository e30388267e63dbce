//go:build race

// Package race says whether the race detector is on, for tests whose sizes and time limits depend on it.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
