// Package npipe answers one question: how are the named pipes of Windows dialled and served?
//
// A pipe has a name without a path: NAME stands for \\.\pipe\NAME, on this machine. Elsewhere
// than on Windows there are none, and [ErrUnsupported] says so.
package npipe

import "errors"

// Prefix is what the names of pipes begin with, for Windows.
const Prefix = `\\.\pipe\`

// Network is that of the addresses of pipes.
const Network = "pipe"

// ErrUnsupported is the error of Dial and Listen on other systems than Windows.
var ErrUnsupported = errors.New("named pipes are a feature of Windows; use unix:PATH here")
