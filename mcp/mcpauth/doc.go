// Package mcpauth answers one question: how does an MCP client get its tokens?
//
// A [Client] is the mcphttp.Authorizer of one MCP server. It finds out who
// issues that server's tokens, makes itself known there, asks for them, in the
// user's browser or with its own credentials, keeps them in a [Store],
// renews them, and asks for more when the server wants more.
//
//	auth, err := mcpauth.New(url, &mcpauth.Options{
//		Store: mcpauth.NewKeyring("farcall"), Visit: mcpauth.Browser(nil),
//	})
//	c, err := mcp.Dial(ctx, url, &mcp.ClientOptions{HTTP: &mcphttp.DialOptions{Authorize: auth}})
//
// It speaks all revisions of MCP's authorization at once: what the server and
// its authorization server publish says what is done.
package mcpauth
