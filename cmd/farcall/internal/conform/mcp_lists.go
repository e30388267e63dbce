package conform

import (
	"context"
	"encoding/json" //nolint:depguard // shares nothing with what it checks
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// mcpList is one of the lists of a server.
type mcpList struct {
	method, member, capability, page string
	has                              []string // strings that each item has
}

func mcpListsOf() []mcpList {
	return []mcpList{
		{spec.MethodToolsList, "tools", "tools", "Tools", []string{"name"}},
		{spec.MethodResourcesList, "resources", "resources", "Resources", []string{"uri", "name"}},
		{
			spec.MethodResourcesTemplatesList,
			"resourceTemplates",
			"resources",
			"Resources",
			[]string{"uriTemplate", "name"},
		},
		{spec.MethodPromptsList, "prompts", "prompts", "Prompts", []string{"name"}},
	}
}

// mcpLists are the cases about lists.
func mcpLists() (all []mcpCase) {
	for _, l := range mcpListsOf() {
		all = append(all, mcpCase{
			name:  l.method,
			title: "the list is complete and each item has what it needs",
			page:  l.page + ", Capabilities",
			expected: fmt.Sprintf("pages of %s, each with %s; no result without the capability",
				l.member, strings.Join(l.has, " and ")),
			run: func(ctx context.Context, p *mcpProbe) (string, string) { return p.list(ctx, l) },
		}, mcpCase{
			name:     l.method + "/cursor",
			title:    "an invalid cursor is refused",
			page:     "Pagination, Error Handling",
			level:    Should,
			expected: "error -32602",
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				if p.can[l.capability] == nil {
					return "", "the server does not declare " + l.capability
				}
				r := p.call(ctx, l.method, `"cursor":"`+unknownName+`"`)
				if r.answer != nil && r.answer.code == codeMethodNotFound {
					return "", "the server does not have the method"
				}
				return r.refused(codeInvalidParams), ""
			},
		})
	}
	return append(all, mcpCase{
		name:     "tools/schemas",
		title:    "each tool has schemas that the revision allows",
		page:     "Tools, Data Types",
		expected: `inputSchema, an object with the type "object"; outputSchema an object`,
		run:      toolSchemas,
	}, mcpCase{
		name:     "tools/unique",
		title:    "no two tools have the same name",
		page:     "Tools, Tool Names",
		level:    Should,
		expected: "different names",
		run:      toolNames,
	}, mcpCase{
		name:     "resources/read",
		title:    "a listed resource can be read",
		page:     "Resources, Reading Resources",
		expected: "contents, each with a uri and text or blob",
		run:      readFirst,
	})
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
	items, finding = p.pages(ctx, mcpListsOf()[0])
	return items, finding, ""
}

func toolSchemas(ctx context.Context, p *mcpProbe) (string, string) {
	items, finding, skip := p.tools(ctx)
	if finding != "" || skip != "" {
		return finding, skip
	}
	for _, t := range items {
		in, out := object(string(t["inputSchema"])), t["outputSchema"]
		kind, _ := text(in["type"])
		switch {
		case in == nil:
			return fmt.Sprintf("the tool %s has no inputSchema", clip(string(t["name"]))), ""
		case kind != "object":
			return fmt.Sprintf(
				"the inputSchema of %s has not the type \"object\"",
				clip(string(t["name"])),
			), ""
		case out == nil || !p.rev.OutputSchema:
		case object(string(out)) == nil:
			return fmt.Sprintf("the outputSchema of %s is not an object", clip(string(t["name"]))), ""
		case !p.rev.AnyStructured && string(object(string(out))["type"]) != `"object"`:
			return fmt.Sprintf(
				"the outputSchema of %s has not the type \"object\"",
				clip(string(t["name"])),
			), ""
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
	items, finding := p.pages(ctx, mcpListsOf()[1])
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

// mcpNames are the cases about what does not exist.
func mcpNames() []mcpCase {
	refused := func(name, capability, method, params, page, expected string, codes func(*era.Revision) []int) mcpCase {
		return mcpCase{
			name:     name,
			title:    "what does not exist is refused",
			page:     page + ", Error Handling",
			level:    Should,
			expected: expected,
			run: func(ctx context.Context, p *mcpProbe) (string, string) {
				if p.can[capability] == nil {
					return "", "the server does not declare " + capability
				}
				r := p.call(ctx, method, params)
				return r.refused(codes(p.rev)...), ""
			},
		}
	}
	invalid := func(*era.Revision) []int { return []int{codeInvalidParams} }
	named := fmt.Sprintf(`"name":%q`, unknownName)
	complete := fmt.Sprintf(
		`"ref":{"type":"ref/prompt","name":%q},"argument":{"name":"a","value":""}`,
		unknownName,
	)
	return []mcpCase{
		refused("tools/unknown", "tools", spec.MethodToolsCall, named+`,"arguments":{}`, "Tools",
			"error -32602", invalid),
		refused("prompts/unknown", "prompts", spec.MethodPromptsGet, named, "Prompts",
			"error -32602", invalid),
		refused(
			"resources/unknown",
			"resources",
			spec.MethodResourcesRead,
			fmt.Sprintf(`"uri":%q`, unknownURI),
			"Resources",
			"the revision's code for a resource that is not there",
			func(r *era.Revision) []int { return []int{int(r.ResourceNotFound)} },
		),
		refused("completion/unknown", "completions", spec.MethodCompletionComplete, complete,
			"Completion", "error -32602", invalid),
	}
}
