package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/skills"
)

// A scenario uses a server.
type scenario func(context.Context, *mcp.Client) error

// scenarios are those that need special code. In all others the client
// calls the tools that there are.
var scenarios = map[string]scenario{
	"tools_call":                         calls("add_numbers", `{"a":2,"b":3}`),
	"sep-2322-client-request-state":      callTools,
	"http-standard-headers":              useEverything,
	"http-custom-headers":                callAsTold,
	"json-schema-ref-no-deref":           listTools,
	"json-schema-2020-12-preservation":   echoSchema,
	"sep-2640-client-no-prefetch":        listSkills,
	"sep-2640-client-verify-digest":      loadSkills,
	"sep-2640-client-verify-size":        loadSkills,
	"sep-2640-client-verify-frontmatter": loadSkills,
}

// calls calls one tool.
func calls(tool, arguments string) scenario {
	return func(ctx context.Context, c *mcp.Client) error {
		if _, err := c.Tools(ctx); err != nil {
			return err
		}
		_, err := c.CallTool(ctx, tool, jsonrpc.Raw(arguments))
		return err
	}
}

func listTools(ctx context.Context, c *mcp.Client) error {
	_, err := c.Tools(ctx)
	return err
}

// callTools calls each tool that the client takes for valid.
func callTools(ctx context.Context, c *mcp.Client) error {
	tools, err := c.Tools(ctx)
	if err != nil {
		return err
	}
	for _, t := range tools {
		arguments, err := someArguments(t.InputSchema)
		if err != nil {
			return fmt.Errorf("the tool %q: %w", t.Name, err)
		}
		if _, err := c.CallTool(ctx, t.Name, arguments); err != nil {
			return err
		}
	}
	return nil
}

// someArguments makes up what a tool requires.
func someArguments(inputSchema jsonrpc.Raw) (map[string]any, error) {
	var schema struct {
		Required   []string
		Properties map[string]struct{ Type string }
	}
	if err := json.Unmarshal(inputSchema, &schema); err != nil {
		return nil, err
	}
	values := map[string]any{
		"string": "test", "integer": 1, "number": 1, "boolean": true,
		"array": []any{}, "object": struct{}{},
	}
	arguments := map[string]any{}
	for _, name := range schema.Required {
		arguments[name] = values[schema.Properties[name].Type]
	}
	return arguments, nil
}

// callAsTold calls the tools that the suite names.
func callAsTold(ctx context.Context, c *mcp.Client) error {
	var told struct {
		ToolCalls []struct {
			Name      string
			Arguments jsonrpc.Raw
		}
	}
	if err := errors.Join(settings(&told), listTools(ctx, c)); err != nil {
		return err
	}
	for _, call := range told.ToolCalls {
		if _, err := c.CallTool(ctx, call.Name, call.Arguments); err != nil {
			return err
		}
	}
	return nil
}

// useEverything uses the tools, resources and prompts that there are.
func useEverything(ctx context.Context, c *mcp.Client) error {
	if err := callTools(ctx, c); err != nil {
		return err
	}
	resources, err := c.Resources(ctx)
	if err != nil {
		return err
	}
	for _, r := range resources {
		if _, err := c.Read(ctx, r.URI); err != nil {
			return err
		}
	}
	prompts, err := c.Prompts(ctx)
	if err != nil {
		return err
	}
	for _, p := range prompts {
		if _, err := c.Prompt(ctx, p.Name, nil); err != nil {
			return err
		}
	}
	return nil
}

// echoSchema sends a schema back as it came.
func echoSchema(ctx context.Context, c *mcp.Client) error {
	tools, err := c.Tools(ctx)
	if err != nil {
		return err
	}
	for _, t := range tools {
		if t.Name == "json_schema_2020_12_tool" {
			_, err := c.CallTool(ctx, "json_schema_echo", map[string]any{"schema": t.InputSchema})
			return err
		}
	}
	return errors.New("the tool with a schema that is to be sent back is not there")
}

// listSkills lists the skills of a server, and reads none of their files.
func listSkills(ctx context.Context, c *mcp.Client) error {
	_, err := skills.List(ctx, c)
	return err
}

// loadSkills reads the files of all skills, of each one SKILL.md first, and goes
// no further when one is not what it must be.
func loadSkills(ctx context.Context, c *mcp.Client) error {
	all, err := skills.List(ctx, c)
	if err != nil {
		return err
	}
	for _, skill := range all {
		for _, uri := range append([]string{skill.URI}, skill.Files...) {
			if _, err := skill.Read(ctx, uri); err != nil {
				return err
			}
		}
	}
	return nil
}
