package playground

import (
	"encoding/base64"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	website = "https://github.com/farcall-dev/farcall"

	instructions = `A playground to try the Model Context Protocol with. Nothing here reaches beyond the process.

- Calculate with math_add, math_subtract, math_multiply, math_sqrt and sum. math_add_stream and paritosh_stream report each value as progress.
- fail fails in the way you choose; sleep takes as long as you say, and can be cancelled.
- The tools demo_* show one feature each: forms, URLs, sampling, roots, progress, logging, tasks and every type of content.
- logEvent changes the resource playground://events: subscribe to that to be notified.`

	icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><path fill="#0d7a5f" d="M1 3h4V1l2 3-2 3V5H1z"/></svg>`
)

// MCP returns a server that offers the playground to language models: the methods
// of mux, which were added by Register, as tools, and what the protocol has
// as well. rpc says how calls are recorded and what becomes of errors.
// Close closes the server, too.
func (s *Service) MCP(mux *farcall.Mux, rpc farcall.Options, adjust func(*mcp.ServerOptions)) *mcp.Server {
	rpc.V1 = false // no revision has it
	o := &mcp.ServerOptions{
		Title:        "farcall playground",
		Description:  "Tools, resources and prompts to try the Model Context Protocol with.",
		WebsiteURL:   website,
		Icons:        []spec.Icon{{Src: dataURI("image/svg+xml", []byte(icon)), MIMEType: "image/svg+xml", Sizes: []string{"any"}}},
		Instructions: instructions,
		Complete:     complete,
		RPC:          &rpc,
		Logger:       rpc.Logger,
	}
	if adjust != nil {
		adjust(o)
	}
	server := mcp.NewServer("farcall-playground", mux.Info.Version, o)
	local := inProcess(mux, rpc)
	addFunctions(server, mux, local)
	addQuestions(server)
	addDemos(server)
	s.addResources(server, local)
	s.addPrompts(server)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mcp = server
	return server
}

func dataURI(mime string, data []byte) string {
	return "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// readOnly are the hints of a tool that changes nothing and reaches nothing
// outside the process.
func readOnly() *spec.ToolAnnotations {
	return &spec.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: new(false), IdempotentHint: true, OpenWorldHint: new(false)}
}
