package gateway

import "github.com/farcall-dev/farcall/mcp/host"

// Servers returns the upstreams as servers for package mcp/host, so that a program that embeds a
// model reads the files that [Load] reads: the mcpServers of a desktop client above all. What is
// about sharing an upstream among clients (lifetime, pool, queues, namespace …) has no meaning
// there and is left out. What would no longer protect or show what the file says is a
// *[ConfigError]: a guard, a sandbox, auth, and filters but allow and deny of tools.
func (c *Config) Servers() ([]host.Server, error) {
	bad := &ConfigError{}
	if len(c.files) > 0 {
		bad.File = c.files[0]
	}
	refuse := func(is bool, path, what string) {
		if is {
			bad.Problems = append(bad.Problems,
				c.ProblemAt(path, what+" needs a gateway",
					"remove it, or serve the file with farcall serve --config and use the gateway as a server"))
		}
	}
	refuse(c.Guard != nil, "guard", "a guard")
	var all []host.Server
	for _, u := range c.Upstreams {
		at := "upstreams." + u.Name
		refuse(u.profile() == profileRaw, at+".profile", "a server that does not speak MCP")
		refuse(u.OpenAPI != nil, at+".openapi", "an HTTP API")
		refuse(u.Framing != "" && u.Framing != "line", at+".framing", "this framing")
		refuse(u.Era != "" && u.Era != "auto", at+".era", "the revision of one server")
		refuse(u.Sandbox != nil, at+".sandbox", "a sandbox")
		refuse(u.Auth != nil, at+".auth", "auth")
		refuse(u.ownTLS(), at+".tls", "tls")
		refuse(u.Proxy != "", at+".proxy", "a proxy of one server")
		refuse(len(u.ForwardHeaders) > 0, at+".forward_headers", "forwarding headers")
		refuse(len(u.Tools.Rename)+len(u.Tools.Describe) > 0, at+".tools",
			"renaming and describing tools")
		refuse(!u.Resources.empty(), at+".resources", "a filter of resources")
		refuse(!u.Prompts.empty(), at+".prompts", "a filter of prompts")
		all = append(all, host.Server{
			Name: u.Name, Command: u.Command, Env: u.Env, InheritEnv: u.InheritEnv, Dir: u.Cwd, URL: u.URL,
			Headers: u.Headers,
			SSE:     u.Transport == "sse", InProcess: u.Server, Disabled: u.Disabled, Timeout: u.Timeout,
			AllowTools: u.Tools.Allow, DenyTools: u.Tools.Deny,
		})
	}
	if len(bad.Problems) > 0 {
		return nil, bad
	}
	return all, nil
}
