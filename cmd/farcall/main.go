// Command farcall serves, calls and checks JSON-RPC 2.0.
//
// Everything is wired here, explicitly: one file per command.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
