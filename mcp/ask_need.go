package mcp

import (
	"fmt"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// need is what a client must be able to do, to be asked something.
type need struct {
	name string // for people
	caps spec.ClientCapabilities
	in   func(*era.Revision) bool
	has  func(*spec.ClientCapabilities) bool
}

var (
	needForm = &need{
		name: "elicitation",
		caps: spec.ClientCapabilities{Elicitation: &spec.ElicitationCapability{}},
		in:   func(r *era.Revision) bool { return r.Elicitation },
		has: func(c *spec.ClientCapabilities) bool {
			e := c.Elicitation // that of neither mode is of the form
			return e != nil && (e.Form != nil || e.URL == nil)
		},
	}
	needURL = &need{
		name: "elicitation.url",
		caps: spec.ClientCapabilities{Elicitation: &spec.ElicitationCapability{URL: spec.JSONObject{}}},
		in:   func(r *era.Revision) bool { return r.ElicitationURL },
		has:  func(c *spec.ClientCapabilities) bool { return c.Elicitation != nil && c.Elicitation.URL != nil },
	}
	needSampling = &need{
		name: "sampling",
		caps: spec.ClientCapabilities{Sampling: &spec.SamplingCapability{}},
		in:   every,
		has:  func(c *spec.ClientCapabilities) bool { return c.Sampling != nil },
	}
	needSamplingTools = &need{
		name: "sampling.tools",
		caps: spec.ClientCapabilities{Sampling: &spec.SamplingCapability{Tools: spec.JSONObject{}}},
		in:   func(r *era.Revision) bool { return r.SamplingTools },
		has:  func(c *spec.ClientCapabilities) bool { return c.Sampling != nil && c.Sampling.Tools != nil },
	}
	needRoots = &need{
		name: "roots",
		caps: spec.ClientCapabilities{Roots: &spec.RootsCapability{}},
		in:   every,
		has:  func(c *spec.ClientCapabilities) bool { return c.Roots != nil },
	}
	needTasks = &need{
		name: "extensions[" + spec.ExtensionTasks + "]",
		caps: spec.ClientCapabilities{Extensions: map[string]any{spec.ExtensionTasks: spec.JSONObject{}}},
		in:   func(r *era.Revision) bool { return r.TasksExtension },
		has:  func(c *spec.ClientCapabilities) bool { return c.Extensions[spec.ExtensionTasks] != nil },
	}
)

// met reports whether the client can be asked.
func (n *need) met(c *call) bool { return n.in(c.rev) && n.has(c.caps()) }

// refuse returns the error of a client that cannot. Where the protocol has one
// that belongs to it, it is that (2026-07-28, basic, "Missing required capabilities").
func (n *need) refuse(c *call) error {
	if !c.rev.ReservedCodes {
		if !n.in(c.rev) {
			return fmt.Errorf("mcp: the client cannot be asked: revision %s has no %s", c.rev.Name, n.name)
		}
		return fmt.Errorf("mcp: the client cannot be asked: it does not declare the capability %s", n.name)
	}
	data, err := jsonv2.Append(nil, spec.MissingRequiredClientCapabilityData{RequiredCapabilities: n.caps})
	if err != nil {
		return err
	}
	return &jsonrpc.Error{
		Code: spec.MissingRequiredClientCapability, Data: data,
		Message: "Missing required client capability: " + n.name,
	}
}
