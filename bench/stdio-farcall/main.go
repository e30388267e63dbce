// Command stdio-farcall is a server of farcall on its standard input and
// output, and nothing else: what a gateway has behind it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/farcall-dev/farcall/bench/internal/addfarcall"
)

func main() {
	if err := addfarcall.NewServer().ServeStdio(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
