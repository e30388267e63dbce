// Package interop has no code of its own. Its tests run farcall against
// implementations of others, in a module of its own so that nobody who uses
// farcall gets them.
//
//	./setup.sh && go test ./...
//
// setup.sh installs what the tests with Node.js need. Without it they are
// skipped.
package interop
