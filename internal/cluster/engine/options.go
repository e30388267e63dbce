// Package engine answers one question: how is the store opened that a cluster.Config names?
//
// With the build tag nocluster the program has no engines, and Open says so.
package engine

import "log/slog"

// Options adjust Open. The zero value, and nil, mean the defaults.
type Options struct {
	// Waiting is called when an embedded engine has waited for a while, with how many of the
	// others are connected. Nil: nothing is.
	Waiting func(connected, others int)
	// Logger has what the engine reports. Default [slog.Default].
	Logger *slog.Logger
}
