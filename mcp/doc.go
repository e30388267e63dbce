// Package mcp answers one question: how does a Go program offer tools, resources
// and prompts to language models, and use those of others?
//
// A [Server] serves every revision of the Model Context Protocol at once, on one
// address: the legacy ones, where a client opens a session with initialize, and
// the modern one, where every request stands alone. Handlers do not see the
// difference: they get Go values, return Go values, and ask the client with
// [Elicit], [Sample] and [Roots] in every revision.
//
//	s := mcp.NewServer("calc", "1.0.0", nil)
//	mcp.AddTool(s, mcp.Tool{Name: "add", Description: "Add two numbers"}, func(ctx context.Context, in Add) (Sum, error) {
//		return Sum{in.A + in.B}, nil
//	})
//	err := s.ListenAndServe(ctx, "127.0.0.1:7331") // or s.ServeStdio(ctx)
//
// # Handlers
//
// Handlers must be safe for concurrent use. Their context ends when the caller
// gives up, when its connection ends, and when they return; what outlives the
// handler must not use it. In a handler, [ClientFrom] says who calls, [Log] and
// [Progress] tell the caller how things go, in order and before the result. A
// panic is that call's internal error; its text and stack go to the log only.
//
// # Names
//
// The types of messages are those of package [spec], in the form of the newest
// revision; the everyday ones have aliases here.
package mcp
