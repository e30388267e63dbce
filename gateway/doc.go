// Package gateway answers one question: how do many callers reach many servers?
//
// A [Gateway] has servers behind it, which a [Config] names: child processes,
// and servers at an address. Clients of every revision of MCP, over HTTP,
// WebSocket and byte streams, find all of them at one address, whatever revision
// and transport they speak, and plain JSON-RPC passes as well.
//
//	c, err := gateway.Load("farcall.yaml")
//	g, err := gateway.New(c, nil)
//	err = http.ListenAndServe("127.0.0.1:7331", g)
//
// # Addresses
//
//	/mcp         all servers as one: MCP, every revision, also over WebSocket
//	/mcp/NAME    one of them
//	/sse         all of them for clients of HTTP+SSE, who post to /messages
//	/rpc/NAME    JSON-RPC of one of them: POST, or WebSocket
//	/            a page for operators; /api/status has it as JSON
//	/api/v1      for operators: what there is, and changes; /api/v1/openapi.json describes it
//	/metrics     for Prometheus, where Options has them
//	/healthz     200 while the process lives; /readyz while it takes calls
//
// With one server /rpc and /rpc/ws are that server's.
//
// # Revisions
//
// A call travels in the revision of its client and is translated once, to that
// of the server. What a server asks during a call, the client of that call is
// asked: by its own request in the legacy era, and in the modern one by
// suspending the call and answering input_required; the retry resumes it.
//
// # Children
//
// A child process is shared by the clients that can be asked the same, until it
// asks a question that does not say which call it is about; then each session has
// its own: see [Upstream].Lifetime and Pool. None outlives the gateway.
package gateway
