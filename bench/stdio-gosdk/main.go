// Command stdio-gosdk is a server of go-sdk on its standard input and output,
// and nothing else: what a gateway has behind it.
package main

import (
	"context"
	"fmt"
	"os"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farcall-dev/farcall/bench/internal/addgosdk"
)

func main() {
	if err := addgosdk.NewServer().Run(context.Background(), &gosdk.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
