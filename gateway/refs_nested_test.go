package gateway_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
)

// TestReferencesNested: a gateway behind a gateway, with servers of equal names on both floors. Every
// reference that a client of the outer one sees leads to its server, in every revision of the client
// and of the way between.
func TestReferencesNested(t *testing.T) {
	t.Parallel()
	some := func(mark string) *mcp.Server { return sharer(rand.New(rand.NewPCG(uint64(len(mark)), 3)), mark) }
	inner := newLabOf(t, nil, &gateway.Config{Namespace: "always", Upstreams: []*gateway.Upstream{
		{Name: "a", Server: some("inner-a")}, {Name: "b", Server: some("inner-b")},
	}})
	for _, between := range []string{"legacy", "modern"} {
		outer := newLabOf(t, nil, &gateway.Config{Namespace: "always", Upstreams: []*gateway.Upstream{
			{Name: "a", Server: some("outer-a")}, {Name: "b", URL: inner.url + "/mcp", Era: between},
		}})
		for _, rev := range era.Revisions() {
			w := &walker{Client: outer.client(t, mcp.ClientOptions{Era: rev.Name}), t: t, revision: rev.Name + " over " + between}
			w.once()
			if w.checked < 100 || w.misroute > 0 || w.refused > w.checked/4 {
				t.Errorf("%s: %d references, %d refused, %d misrouted", w.revision, w.checked, w.refused, w.misroute)
			}
		}
	}
}

// once follows everything that a client sees, and what that refers to, by the names as they are
// shown.
func (w *walker) once() {
	ctx, seen := w.t.Context(), map[string]bool{}
	tools, err := w.Tools(ctx)
	prompts, err2 := w.Prompts(ctx)
	resources, err3 := w.Resources(ctx)
	templates, err4 := w.Templates(ctx)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		w.t.Fatal(w.revision, err)
	}
	for _, r := range resources {
		w.read(r.URI, r.Description)
	}
	for _, t := range templates {
		w.read(strings.NewReplacer("{table}", "t", "{id}", "1").Replace(t.URITemplate), t.Description)
	}
	for _, tool := range tools {
		r, err := w.CallTool(ctx, tool.Name, nil)
		if err != nil {
			w.count("tool", tool.Name, tool.Description, "", err)
			continue
		}
		w.count("tool", tool.Name, tool.Description, r.Content[0].Text, nil)
		w.follow(seen, r.Content, r.Meta)
		for _, uri := range urisOf(tool.Meta) {
			w.read(uri, tool.Description)
		}
	}
	for _, p := range prompts {
		r, err := w.Prompt(ctx, p.Name, nil)
		if err != nil {
			w.count("prompt", p.Name, p.Description, "", err)
			continue
		}
		var content []mcp.Content
		for _, m := range r.Messages {
			content = append(content, m.Content)
		}
		w.count("prompt", p.Name, p.Description, content[0].Text, nil)
		w.follow(seen, content, r.Meta)
	}
}
