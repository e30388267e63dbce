package gateway

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/apps"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// describe describes what is at the address. One server speaks for itself; of several it is
// what all of them can do, as far as they are up.
func (e *endpoint) describe(ctx context.Context) (*relay.Description, error) {
	if e.g.draining.Load() {
		return nil, errDraining()
	}
	_, servers := e.servers()
	who := e.g.caller(ctx)
	p := e.g.plan.Load()
	c, v := p.config, p.virtual[e.name]
	if !v.admits(ctx) {
		return nil, errNotThere()
	}
	if v == nil && len(servers) == 1 && (e.name != "" || c.Name == "") {
		info, err := servers[0].info(ctx, who)
		if err != nil {
			return nil, err
		}
		return &relay.Description{
			Name: info.Name, Title: info.Title, Version: info.Version,
			Instructions: info.Instructions, Capabilities: info.Capabilities,
		}, nil
	}
	infos := make([]*mcp.ServerInfo, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { infos[i] = s.describe(ctx, who) }) // one that is down is described when it is up
	}
	wg.Wait()
	all := union(infos)
	if v != nil {
		c = &Config{Name: c.name() + "/" + e.name, Title: v.cfg.Title, Instructions: v.cfg.Instructions}
		maps.DeleteFunc(all.Extensions, func(id string, _ any) bool {
			return id != apps.Extension && id != spec.ExtensionTasks
		})
	}
	return &relay.Description{
		Name: c.name(), Title: c.Title, Version: e.g.opts.Version,
		Instructions: instructions(c, servers, infos), Capabilities: all,
	}, nil
}

// union is what any of the servers can do. One that is down may offer anything
// once it is up.
func union(infos []*mcp.ServerInfo) *spec.ServerCapabilities {
	all := &spec.ServerCapabilities{}
	var tools, resources, prompts bool
	for _, info := range infos {
		if info == nil {
			tools, resources, prompts = true, true, true
			continue
		}
		c := info.Capabilities
		tools, resources, prompts = tools || c.Tools != nil, resources || c.Resources != nil,
			prompts || c.Prompts != nil
		if c.Completions != nil {
			all.Completions = spec.JSONObject{}
		}
		if c.Logging != nil {
			all.Logging = spec.JSONObject{}
		}
		if c.Tasks != nil {
			all.Tasks = c.Tasks
		}
	}
	all.Extensions = declared(infos)
	if tools || len(infos) == 0 {
		all.Tools = &spec.ToolsCapability{ListChanged: true}
	}
	if resources {
		all.Resources = &spec.ResourcesCapability{Subscribe: true, ListChanged: true}
	}
	if prompts {
		all.Prompts = &spec.PromptsCapability{ListChanged: true}
	}
	return all
}

// instructions are the configuration's own, or those of the servers, each with
// its name.
func instructions(c *Config, servers []*server, infos []*mcp.ServerInfo) string {
	if c.Instructions != "" {
		return c.Instructions
	}
	var parts []string
	for i, info := range infos {
		if info != nil && info.Instructions != "" {
			parts = append(parts, servers[i].cfg.Name+": "+info.Instructions)
		}
	}
	return strings.Join(parts, "\n\n")
}
