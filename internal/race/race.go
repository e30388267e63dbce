//go:build race

// Package race says whether the race detector is on, for tests with sizes and time limits that
// depend on it.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
