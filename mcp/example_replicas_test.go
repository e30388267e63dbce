package mcp_test

import (
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// newReplica returns one of several servers that share keys.
func newReplica(newest, previous []byte) *mcp.Server {
	s := mcp.NewServer("calc", "1.0.0", &mcp.ServerOptions{
		// 32 random bytes each, the same on each replica
		Keys: [][]byte{newest, previous},
		// where the other replicas reach this one
		HTTP: &mcphttp.Options{Advertise: "http://10.0.0.3:7331"},
	})
	return s
}

func ExampleServerOptions_keys() {
	newest, previous := make([]byte, 32), make([]byte, 32) // of a file of secrets
	defer newReplica(newest, previous).Close()
	// Output:
}
