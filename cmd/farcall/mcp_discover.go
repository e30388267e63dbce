package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/lint"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func newMCPDiscoverCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	const short = "Show what a server is, speaks and offers"
	return m.onTarget("discover TARGET", short, 0, m.discoverServer)
}

// serverCard is what farcall mcp discover prints as JSON.
type serverCard struct {
	Name         string                   `json:"name"`
	Title        string                   `json:"title,omitzero"`
	Version      string                   `json:"version"`
	Revision     string                   `json:"revision"`
	Era          string                   `json:"era"`
	Supported    []string                 `json:"supported"`
	Capabilities *spec.ServerCapabilities `json:"capabilities"`
	Counts       map[string]int           `json:"counts"`
	Instructions string                   `json:"instructions,omitzero"`
}

func (m *mcpRemote) discoverServer(ctx context.Context, t *target.Target, _ []string) error {
	return m.with(ctx, t, func(ctx context.Context, s *mcpSession) error {
		info := s.Server()
		card := &serverCard{
			Name: info.Name, Title: info.Title, Version: info.Version, Revision: info.Revision,
			Era:       eraName(info),
			Supported: info.Supported, Capabilities: info.Capabilities, Counts: map[string]int{},
			Instructions: info.Instructions,
		}
		lists := []struct{ key, method, one string }{
			{"tools", spec.MethodToolsList, "tool"},
			{"resources", spec.MethodResourcesList, "resource"},
			{"resourceTemplates", spec.MethodResourcesTemplatesList, "template"},
			{"prompts", spec.MethodPromptsList, "prompt"},
		}
		var offers []string
		var missing []missingServer
		for _, l := range lists {
			if !s.lists(l.method) {
				continue
			}
			all, err := s.all(ctx, l.method, l.key)
			if err != nil && ctx.Err() != nil {
				return s.failure(ctx, l.method, err)
			}
			if err != nil {
				m.screen.printf("farcall: warning: %s: %s", l.method, plainWords(err))
				continue
			}
			for _, one := range all.missing {
				// The reason of a later list may say more of the same: that it is not tried again for now.
				if !slices.ContainsFunc(missing, func(m missingServer) bool {
					return m.Upstream == one.Upstream
				}) {
					missing = append(missing, one)
				}
			}
			card.Counts[l.key] = len(all.items)
			offers = append(offers, countOf(len(all.items), l.one))
		}
		m.sayMissing(missing)
		if m.asJSON {
			return m.printValue(card)
		}
		return m.printCard(card, offers)
	})
}

func eraName(info *mcp.ServerInfo) string {
	if r := era.Lookup(info.Revision); r != nil && r.Handshake {
		return "legacy"
	}
	return "modern"
}

func (m *mcpRemote) printCard(c *serverCard, offers []string) error {
	name := tame(c.Name)
	if c.Title != "" && c.Title != c.Name {
		name += " (" + tame(c.Title) + ")"
	}
	rows := [][]string{
		{"server", name},
		{"version", tame(c.Version)},
		{"speaks", fmt.Sprintf("%s (%s)", tame(c.Revision), c.Era)},
	}
	add := func(key string, values []string) {
		if len(values) > 0 {
			rows = append(rows, []string{key, tame(strings.Join(values, ", "))})
		}
	}
	add("supports", c.Supported)
	add("capabilities", capabilityNames(c.Capabilities))
	add("offers", offers)
	if text := strings.TrimSpace(c.Instructions); text != "" {
		for i, line := range strings.Split(m.plain(text), "\n") {
			rows = append(rows, []string{map[bool]string{true: "instructions"}[i == 0], line})
		}
	}
	return m.facts(rows)
}

// facts prints names and what they stand for.
func (e *env) facts(rows [][]string) error {
	return columns(e.stdout, rows, func(_, col int, text string) string {
		if col == 0 && text != "" {
			return e.paint(colourName, text)
		}
		return text
	})
}

// capabilityNames are capabilities in words.
func capabilityNames(c *spec.ServerCapabilities) []string {
	var names []string
	add := func(has bool, name string, details ...string) {
		if !has {
			return
		}
		if details = slices.DeleteFunc(details, func(d string) bool {
			return d == ""
		}); len(details) > 0 {
			name += " (" + strings.Join(details, ", ") + ")"
		}
		names = append(names, name)
	}
	word := func(has bool, name string) string { return map[bool]string{true: name}[has] }
	add(c.Tools != nil, "tools", word(c.Tools != nil && c.Tools.ListChanged, "tells of changes"))
	add(c.Resources != nil, "resources",
		word(c.Resources != nil && c.Resources.ListChanged, "tells of changes"),
		word(c.Resources != nil && c.Resources.Subscribe, "subscriptions"))
	add(c.Prompts != nil, "prompts",
		word(c.Prompts != nil && c.Prompts.ListChanged, "tells of changes"))
	add(c.Completions != nil, "completions")
	add(c.Logging != nil, "logging")
	add(c.Tasks != nil, "tasks")
	names = append(names, slices.Sorted(maps.Keys(c.Extensions))...)
	for _, name := range slices.Sorted(maps.Keys(c.Experimental)) {
		names = append(names, name+" (experimental)")
	}
	return names
}

func newMCPLintCmd(e *env) *cobra.Command {
	m := newMCPRemote(e)
	strict := false
	const short = "Find what models and clients misread in the tools of a server"
	cmd := m.onTarget("lint TARGET", short, 0,
		func(ctx context.Context, t *target.Target, _ []string) error { return m.lint(ctx, t, strict) })
	cmd.Flags().BoolVar(&strict, "strict", false, "fail when there is a warning, too")
	return cmd
}

func (m *mcpRemote) lint(ctx context.Context, t *target.Target, strict bool) error {
	return m.list(ctx, t, spec.MethodToolsList, "tools", func(l *mcpList) error {
		r := lint.Tools(l.items)
		if err := m.printLint(r); err != nil {
			return err
		}
		if r.Count(lint.Error) > 0 || strict && r.Count(lint.Warning) > 0 {
			return &exitError{code: exitFailure}
		}
		return nil
	})
}

// printLint prints a report for people, or as JSON.
func (m *mcpRemote) printLint(r *lint.Report) error {
	if m.asJSON {
		return m.printValue(r)
	}
	var b strings.Builder
	for _, f := range r.Findings {
		tool := cmp.Or(f.Tool, "all tools")
		fmt.Fprintf(&b, "%-7s  %s%s: %s [%s]\n",
			f.Severity, tame(tool), tame(f.Pointer), tame(f.Message), f.Rule)
	}
	fmt.Fprintf(&b, "%d tools, about %d tokens: %d errors, %d warnings, %d notes\n",
		len(r.Costs), r.Tokens, r.Count(lint.Error), r.Count(lint.Warning), r.Count(lint.Note))
	for i := 0; i < min(3, len(r.Costs)) && len(r.Costs) > 1; i++ {
		fmt.Fprintf(&b, "  %6d  %s\n", r.Costs[i].Tokens, tame(r.Costs[i].Tool))
	}
	_, err := fmt.Fprint(m.stdout, b.String())
	return err
}
