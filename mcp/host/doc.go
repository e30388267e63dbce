// Package host answers one question: how does a program that embeds a model use many MCP
// servers?
//
// A [Host] connects to all its servers at once and keeps them: it starts a child process
// again when that has ended, and connects again when a connection is lost. It merges what the
// ready servers offer into one list of tools, prompts, resources and templates, refreshes the
// lists when a server says that they have changed, and calls what is in them.
//
// # Names
//
// A tool or prompt is shown as server__name, whatever else is configured, so that the name of
// a tool never depends on the other servers. A name is split at its first "__"; the name of a
// server therefore neither contains "__" nor ends with "_". URIs are not unique among servers:
// a resource is read by server and URI.
//
// # Failures
//
// A server that does not start, or fails later, does not hinder the others. Its [Status] has
// the reason, each [List] names the servers that are missing from it, and a call of its tools
// fails with [ErrNotReady].
//
// # Configuration
//
// Servers are given in Go. [github.com/farcall-dev/farcall/gateway.Config.Servers] makes them of
// the mcpServers file of a desktop client.
//
// # Ownership
//
// The host owns every connection and child process that it makes, and [Host.Close] ends them.
// Servers of this process ([Server].InProcess) stay the caller's: the host ends its connection
// to them and nothing else.
package host
