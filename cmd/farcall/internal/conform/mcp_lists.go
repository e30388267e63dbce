package conform

import (
	"context"
	"encoding/json" //nolint:depguard // shares nothing with what it checks
	"fmt"

	"github.com/farcall-dev/farcall/mcp/spec"
)

// mcpList is one of the lists of a server.
type mcpList struct {
	method, member, capability string
	has                        []string // strings that each item has
}

var (
	listOfTools     = mcpList{spec.MethodToolsList, "tools", "tools", []string{"name"}}
	listOfResources = mcpList{
		spec.MethodResourcesList, "resources", "resources", []string{"uri", "name"},
	}
	listOfTemplates = mcpList{
		spec.MethodResourcesTemplatesList, "resourceTemplates", "resources",
		[]string{"uriTemplate", "name"},
	}
	listOfPrompts = mcpList{spec.MethodPromptsList, "prompts", "prompts", []string{"name"}}
)

// mcpListRuns are the cases about lists and what is in them.
func mcpListRuns() map[string]mcpRun {
	named := fmt.Sprintf(`"name":%q`, unknownName)
	complete := fmt.Sprintf(
		`"ref":{"type":"ref/prompt","name":%q},"argument":{"name":"a","value":""}`, unknownName,
	)
	unknown := func(capability, method, params string) mcpRun {
		return refusal{capability, method, params, nil, codeInvalidParams, 0}.run
	}
	runs := map[string]mcpRun{
		"tools/schemas":   toolSchemas,
		"tools/unique":    toolNames,
		"resources/read":  readFirst,
		"tools/unknown":   unknown("tools", spec.MethodToolsCall, named+`,"arguments":{}`),
		"prompts/unknown": unknown("prompts", spec.MethodPromptsGet, named),
		"resources/unknown": func(ctx context.Context, p *mcpProbe) (string, string) {
			return refusal{
				capability: "resources", method: spec.MethodResourcesRead,
				params: fmt.Sprintf(`"uri":%q`, unknownURI), code: int(p.rev.ResourceNotFound),
			}.run(ctx, p)
		},
		"completion/unknown": unknown("completions", spec.MethodCompletionComplete, complete),
	}
	for _, l := range []mcpList{listOfTools, listOfResources, listOfTemplates, listOfPrompts} {
		runs[l.method] = func(ctx context.Context, p *mcpProbe) (string, string) { return p.list(ctx, l) }
		runs[l.method+"/cursor"] = func(ctx context.Context, p *mcpProbe) (string, string) {
			if p.can[l.capability] == nil {
				return "", "the server does not declare " + l.capability
			}
			r := p.call(ctx, l.method, `"cursor":"`+unknownName+`"`)
			if r.answer != nil && r.answer.code == codeMethodNotFound {
				return "", "the server does not have the method"
			}
			return r.refused(codeInvalidParams), ""
		}
	}
	return runs
}

// list checks all pages of a list.
func (p *mcpProbe) list(ctx context.Context, l mcpList) (finding, skip string) {
	if p.can[l.capability] == nil {
		r := p.call(ctx, l.method, "")
		if r.answer != nil && r.answer.code == 0 {
			return "the method answers, and the capability " + l.capability + " is not declared", ""
		}
		return "", "the server does not declare " + l.capability
	}
	_, finding = p.pages(ctx, l)
	if finding == noTemplates {
		return "", finding
	}
	return finding, ""
}

const noTemplates = "the server has no templates"

// pages reads all pages of a list.
func (p *mcpProbe) pages(
	ctx context.Context,
	l mcpList,
) (items []map[string]json.RawMessage, finding string) {
	cursor, seen := "", map[string]bool{}
	for range mostPages {
		r := p.call(ctx, l.method, cursor)
		if l.member == "resourceTemplates" && r.answer != nil && r.answer.code == codeMethodNotFound {
			return nil, noTemplates
		}
		m, wrong := r.result()
		if wrong != "" {
			return items, wrong
		}
		var page []json.RawMessage
		if json.Unmarshal(m[l.member], &page) != nil || page == nil {
			return items, "there is no array " + l.member
		}
		if wrong := p.common(m); wrong != "" {
			return items, wrong
		}
		for _, raw := range page {
			item := object(string(raw))
			for _, name := range l.has {
				if wrong := missing(item, name, isText); wrong != "" {
					return items, fmt.Sprintf("of %s: %s", clip(string(raw)), wrong)
				}
			}
			items = append(items, item)
		}
		if m["nextCursor"] == nil {
			return items, ""
		}
		next, err := text(m["nextCursor"])
		switch {
		case err != nil:
			return items, "nextCursor is not a string"
		case seen[next]:
			return items, "nextCursor comes again: the list does not end"
		}
		seen[next] = true
		cursor = `"cursor":` + string(m["nextCursor"])
	}
	return items, fmt.Sprintf("the list has more than %d pages", mostPages)
}

// tools reads the list of tools.
func (p *mcpProbe) tools(
	ctx context.Context,
) (items []map[string]json.RawMessage, finding, skip string) {
	if p.can["tools"] == nil {
		return nil, "", "the server does not declare tools"
	}
	items, finding = p.pages(ctx, listOfTools)
	return items, finding, ""
}

func toolSchemas(ctx context.Context, p *mcpProbe) (string, string) {
	items, finding, skip := p.tools(ctx)
	if finding != "" || skip != "" {
		return finding, skip
	}
	for _, t := range items {
		name, in, out := clip(string(t["name"])), object(string(t["inputSchema"])), t["outputSchema"]
		kind, _ := text(in["type"])
		switch {
		case in == nil:
			return fmt.Sprintf("the tool %s has no inputSchema", name), ""
		case kind != "object":
			return fmt.Sprintf("the inputSchema of %s has not the type \"object\"", name), ""
		case out == nil || !p.rev.OutputSchema:
		case object(string(out)) == nil:
			return fmt.Sprintf("the outputSchema of %s is not an object", name), ""
		case !p.rev.AnyStructured && string(object(string(out))["type"]) != `"object"`:
			return fmt.Sprintf("the outputSchema of %s has not the type \"object\"", name), ""
		}
	}
	return "", ""
}

func toolNames(ctx context.Context, p *mcpProbe) (string, string) {
	items, finding, skip := p.tools(ctx)
	seen := map[string]bool{}
	for _, t := range items {
		if seen[string(t["name"])] {
			return clip(string(t["name"])) + " is there twice", ""
		}
		seen[string(t["name"])] = true
	}
	return finding, skip
}

func readFirst(ctx context.Context, p *mcpProbe) (string, string) {
	if p.can["resources"] == nil {
		return "", "the server does not declare resources"
	}
	items, finding := p.pages(ctx, listOfResources)
	switch {
	case finding != "":
		return finding, ""
	case len(items) == 0:
		return "", "the server lists no resources"
	}
	r := p.call(ctx, spec.MethodResourcesRead, `"uri":`+string(items[0]["uri"]))
	m, wrong := r.result()
	if wrong != "" {
		return wrong, ""
	}
	var contents []map[string]json.RawMessage
	if json.Unmarshal(m["contents"], &contents) != nil || contents == nil {
		return "there is no array contents", ""
	}
	for _, c := range contents {
		if wrong := missing(c, "uri", isText); wrong != "" {
			return wrong, ""
		}
		if !isText(c["text"]) && !isText(c["blob"]) {
			return "a content has neither text nor blob", ""
		}
	}
	return p.common(m), ""
}
