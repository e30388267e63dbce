package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The names and URIs that the servers of TestReferences share. Some are made up to lead to another
// one: they look as if they had the qualifier of b.
var (
	sharedTools   = []string{"get-time", "show", "b__get-time", "b__show", "a__show", "x", "b"}
	sharedPrompts = []string{"greet", "b__greet", "ask"}
	sharedURIs    = []string{
		"ui://app/view.html", "ui://b+/app/view.html", "ui://a/x", "skill://git/SKILL.md", "file:///x",
		"b+file:///x", "a+b+file:///x",
		"memo:insights", "urn:uuid:1", "git+ssh://h/x", "https://example.com/x", "data:,x", "ui:///x",
		"ui://a%2B/x",
	}
	sharedTemplates = []string{"db://{table}/{id}", "b+db://{table}/{id}"}
	templated       = []string{"db://t/1", "b+db://t/1"} // of the templates
)

// sharer returns a server with some of what is shared. Everything that it says has its mark.
func sharer(r *rand.Rand, mark string) *mcp.Server {
	s := mcp.NewServer(mark, "1",
		&mcp.ServerOptions{Complete: func(
			_ context.Context, p *spec.CompleteRequestParams,
		) (*spec.CompleteResult, error) {
			return &spec.CompleteResult{
				Completion: spec.Completion{Values: []string{mark + " " + p.Ref.Name + p.Ref.URI}},
			}, nil
		}})
	some := func(of []string) (chosen []string) {
		for _, one := range of {
			if r.IntN(3) > 0 {
				chosen = append(chosen, one)
			}
		}
		return chosen
	}
	uris := append(some(sharedURIs), "own:"+mark)
	for _, uri := range uris {
		s.AddResource(mcp.Resource{URI: uri, Name: uri, Description: mark},
			func(_ context.Context, uri string) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{{URI: uri, Text: mark}}, nil
			})
	}
	links := slices.Clone(uris)
	for i, template := range sharedTemplates {
		if r.IntN(2) > 0 {
			s.AddTemplate(mcp.ResourceTemplate{URITemplate: template, Name: template, Description: mark},
				func(_ context.Context, uri string, _ mcp.Vars) ([]mcp.ResourceContents, error) {
					return []mcp.ResourceContents{{URI: uri, Text: mark}}, nil
				})
			links = append(links, templated[i])
		}
	}
	content := func() []mcp.Content {
		all := []mcp.Content{mcp.Text(mark)}
		for _, uri := range links {
			all = append(all, mcp.Content{Type: spec.TypeResourceLink, URI: uri, Name: uri},
				mcp.Content{Type: spec.TypeResource, Resource: &mcp.ResourceContents{URI: uri, Text: mark}})
		}
		return all
	}
	view := spec.Meta{"ui": map[string]any{"resourceUri": links[0]}, "ui/resourceUri": links[0]}
	tasks := &spec.ToolExecution{TaskSupport: spec.TaskOptional}
	for _, name := range append(some(sharedTools), "own-"+mark) {
		s.AddTool(mcp.Tool{Name: name, Description: mark, Meta: view, Execution: tasks},
			func(_ context.Context, args jsonrpc.Raw) (*mcp.ToolResult, error) {
				if scan.Member(args, "visit") != nil {
					return nil, &jsonrpc.Error{
						Code: spec.URLElicitationRequired, Message: "visit",
						Data: jsonrpc.Raw(visit),
					}
				}
				if uri := scan.Member(args, "uri"); uri != nil {
					return &mcp.ToolResult{
						Content: []mcp.Content{mcp.Text(mark + " " + string(scan.Unquote(uri)))},
					}, nil
				}
				return &mcp.ToolResult{Content: content(), Meta: view}, nil
			})
	}
	for _, name := range append(some(sharedPrompts), "own-"+mark) {
		s.AddPrompt(mcp.Prompt{Name: name, Description: mark},
			func(context.Context, map[string]string) (*mcp.PromptResult, error) {
				p := &mcp.PromptResult{}
				for _, c := range content() {
					p.Messages = append(p.Messages, mcp.PromptMessage{Role: spec.RoleUser, Content: c})
				}
				return p, nil
			})
	}
	addSkill(s, mark)
	return s
}

// walker is a client that follows every reference that it sees.
type walker struct {
	*mcp.Client

	t                          *testing.T
	revision                   string
	checked, refused, misroute int
	kinds                      map[string]int // of what was checked
	listening, updated         chan string
}

// count notes where a reference has led.
func (w *walker) count(what, ref, mark, got string, err error) {
	w.checked++
	if w.kinds != nil {
		w.kinds[what]++
	}
	wire, refused := errors.AsType[*jsonrpc.Error](err)
	switch {
	case refused && wire.Code == jsonrpc.InvalidParams &&
		(strings.Contains(wire.Message, "is among the") || what == "bare tool"):
		w.refused++
	case err != nil || got != mark && !strings.HasPrefix(got, mark+" "):
		w.misroute++
		w.t.Errorf("%s: the %s %q of %s leads to %q, %v", w.revision, what, ref, mark, got, err)
	}
}

func (w *walker) read(uri, mark string) {
	r, err := w.Read(w.t.Context(), uri)
	got := ""
	if err == nil {
		got = r.Contents[0].Text
		if r.Contents[0].URI != uri && !strings.HasPrefix(r.Contents[0].URI, "http") &&
			!strings.HasPrefix(r.Contents[0].URI, "data") {
			w.t.Errorf("%s: %q is read as %q", w.revision, uri, r.Contents[0].URI)
		}
	}
	w.count("URI", uri, mark, got, err)
}

// follow reads what content refers to.
func (w *walker) follow(seen map[string]bool, content []mcp.Content, meta spec.Meta) {
	mark := content[0].Text
	refs := urisOf(meta)
	for _, c := range content {
		if c.Type == spec.TypeResourceLink {
			refs = append(refs, c.URI)
		} else if c.Resource != nil {
			refs = append(refs, c.Resource.URI)
		}
	}
	for _, uri := range refs {
		if !seen[uri+mark] {
			seen[uri+mark] = true
			w.read(uri, mark)
		}
	}
}

func urisOf(meta spec.Meta) (all []string) {
	ui, _ := meta["ui"].(map[string]any)
	for _, value := range []any{ui["resourceUri"], meta["ui/resourceUri"]} {
		if uri, ok := value.(string); ok {
			all = append(all, uri)
		}
	}
	return all
}

// walk follows everything that a client sees once, and from what that says once more; and with bare
// the tools by their names without a qualifier.
func (w *walker) walk(bare bool) {
	ctx, seen := w.t.Context(), map[string]bool{}
	tools, err := w.Tools(ctx)
	prompts, err2 := w.Prompts(ctx)
	resources, err3 := w.Resources(ctx)
	templates, err4 := w.Templates(ctx)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		w.t.Fatal(w.revision, err)
	}
	for _, r := range resources {
		if !ofSkill(r.URI) {
			w.read(r.URI, r.Description)
		}
	}
	for _, t := range templates {
		w.read(strings.NewReplacer("{table}", "t", "{id}", "1").Replace(t.URITemplate), t.Description)
	}
	for _, tool := range tools {
		for _, uri := range urisOf(tool.Meta) {
			w.read(uri, tool.Description)
		}
		r, err := w.CallTool(ctx, tool.Name, nil)
		if err != nil {
			w.count("tool", tool.Name, tool.Description, "", err)
			continue
		}
		w.count("tool", tool.Name, tool.Description, r.Content[0].Text, nil)
		w.follow(seen, r.Content, r.Meta)
		if !bare {
			continue
		}
		own := strings.TrimPrefix(tool.Name, tool.Description+"__")
		// of the bare name, too, unless that is the qualified one of another tool
		owner := tool.Description
		if before, _, ok := strings.Cut(own, "__"); ok {
			owner = before
		}
		got := ""
		if r, err = w.CallTool(ctx, own, nil); err == nil {
			got = r.Content[0].Text
		}
		w.count("bare tool", own, owner, got, err)
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

// TestReferences follows every name and URI in every answer back to the server that it is of:
// several servers that share names and URIs, each of another revision, for clients of each
// revision. FARCALL_REFERENCES=N goes on until N references were followed; make references does
// 100,000.
func TestReferences(t *testing.T) {
	t.Parallel()
	least, _ := strconv.Atoi(os.Getenv("FARCALL_REFERENCES"))
	names := []string{"a", "b", "c_d", "2e", "F"}
	checked, refused, misroutes, kinds := 0, 0, 0, map[string]int{}
	for seed := uint64(1); seed == 1 || checked < least; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		c := &gateway.Config{Namespace: "always"}
		servers := map[string]*mcp.Server{}
		for i, rev := range era.Revisions() {
			name := names[(i+int(seed))%5]
			servers[name] = sharer(r, name)
			c.Upstreams = append(c.Upstreams,
				&gateway.Upstream{Name: name, Server: servers[name], Era: rev.Name})
		}
		l := newLabOf(t, nil, c)
		for _, rev := range era.Revisions() {
			w := &walker{
				t: t, revision: rev.Name, kinds: kinds, listening: make(chan string, 10),
				updated: make(chan string, 100),
			}
			client, err := l.pipe(t, mcp.ClientOptions{
				Era: rev.Name, Tasks: true, OnResourceUpdated: func(uri string) { w.updated <- uri },
				OnListening: func(spec.SubscriptionFilter) { w.listening <- "" },
			})
			if err != nil {
				t.Fatal(err)
			}
			w.Client = client
			w.walk(true)
			w.walkMore(servers)
			client.Close()
			checked, refused, misroutes = checked+w.checked, refused+w.refused, misroutes+w.misroute
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d references, %d refused, %d misrouted: %v", checked, refused, misroutes, kinds)
	for _, kind := range []string{"completion", "skill", "subscription", "task", "elicitation"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s was followed", kind)
		}
	}
	if checked < 1000 || refused == 0 || refused > checked/4 {
		t.Errorf("%d references, %d refused: the servers share too little or too much", checked, refused)
	}
}

// TestReferencesIndependent: what is shown of a server does not change with the others.
func TestReferencesIndependent(t *testing.T) {
	t.Parallel()
	one := func(name string) *gateway.Upstream {
		return &gateway.Upstream{Name: name, Server: sharer(rand.New(rand.NewPCG(7, 7)), name)}
	}
	shownAt := func(l *lab) string {
		c := l.client(t, mcp.ClientOptions{})
		tools, err := c.Tools(t.Context())
		resources, err2 := c.Resources(t.Context())
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		all := map[string]bool{}
		for _, tool := range tools {
			all[fmt.Sprint(tool.Name, tool.Meta)] = tool.Description == "a"
		}
		for _, r := range resources {
			all[r.URI] = r.Description == "a" || strings.HasPrefix(r.URI, "http") ||
				strings.HasPrefix(r.URI, "data")
		}
		maps.DeleteFunc(all, func(_ string, of bool) bool { return !of })
		return fmt.Sprint(slices.Sorted(maps.Keys(all)))
	}
	config := func(upstreams ...*gateway.Upstream) *gateway.Config {
		return &gateway.Config{Namespace: "always", Upstreams: upstreams}
	}
	lab := newLabOf(t, nil, config(one("a")))
	alone := shownAt(lab)
	for how, others := range map[string]*gateway.Config{
		"with others":      config(one("z"), one("a"), one("b")),
		"in another order": config(one("b"), one("a"), one("z")),
		"with one that is down": config(
			&gateway.Upstream{Name: "b", URL: "tcp://127.0.0.1:1", Profile: "mcp"}, one("a")),
	} {
		if with := shownAt(newLabOf(t, nil, others)); alone != with || len(alone) < 100 {
			t.Errorf("alone:\n%s\n%s:\n%s", alone, how, with)
		}
		if err := lab.Reload(others); err != nil {
			t.Fatal(err)
		}
		if with := shownAt(lab); alone != with {
			t.Errorf("alone:\n%s\n%s, after a reload:\n%s", alone, how, with)
		}
	}
}

// TestReferencesArguments: what a client was shown goes to its server in the server's own form,
// before the guard decides.
func TestReferencesArguments(t *testing.T) {
	t.Parallel()
	for _, opaque := range []bool{false, true} {
		u := &gateway.Upstream{Name: "a", Server: sharer(rand.New(rand.NewPCG(7, 7)), "a")}
		c := &gateway.Config{
			Namespace: "always",
			Upstreams: []*gateway.Upstream{u, {Name: "b", Server: sharer(rand.New(rand.NewPCG(8, 8)), "b")}},
		}
		if opaque {
			u.Arguments = "opaque"
		}
		client := newLabOf(t, nil, c).client(t, mcp.ClientOptions{})
		for given, want := range map[string]string{
			"a+file:///x": "file:///x", "ui://a+/v": "ui://v", "b+file:///x": "b+file:///x",
			"file:///x":       "file:///x",
			"see a+file:///x": "see a+file:///x", "a+b": "a+b",
		} {
			if opaque {
				want = given
			}
			r, err := client.CallTool(t.Context(), "a__own-a", map[string]string{"uri": given})
			if err != nil || r.Content[0].Text != "a "+want {
				t.Errorf("opaque %v: the argument %q: %v, %v", opaque, given, r, err)
			}
		}
	}
}

// TestReferencesApps: two servers have a page of one name. In every pair of revisions each tool
// leads to the page of the same server, and the server knows that the client shows pages.
func TestReferencesApps(t *testing.T) {
	t.Parallel()
	const ui, page = "io.modelcontextprotocol/ui", "ui://get-time/mcp-app.html"
	c := &gateway.Config{Namespace: "always"}
	for i, rev := range slices.Concat(era.Revisions(), era.Revisions()) {
		name := fmt.Sprintf("s%d", i)
		s := mcp.NewServer(name, "1", nil)
		s.AddTool(mcp.Tool{
			Name: "get-time", Description: name, Meta: spec.Meta{"ui": map[string]any{"resourceUri": page}},
		}, func(ctx context.Context, _ jsonrpc.Raw) (*mcp.ToolResult, error) {
			return &mcp.ToolResult{
				Content: []mcp.Content{mcp.Text(fmt.Sprint(mcp.ClientFrom(ctx).Capabilities.Extensions[ui]))},
			}, nil
		})
		s.AddResource(mcp.Resource{URI: page, Name: "page"},
			func(context.Context, string) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{
					{
						URI: page, Text: "<p>" + name,
						Meta: spec.Meta{"ui": map[string]any{"domain": "x", "prefersBorder": true}},
					},
				}, nil
			})
		c.Upstreams = append(c.Upstreams, &gateway.Upstream{Name: name, Server: s, Era: rev.Name})
	}
	l := newLabOf(t, nil, c)
	for _, rev := range era.Revisions() {
		client := l.client(t,
			mcp.ClientOptions{
				Era: rev.Name,
				Extensions: map[string]any{
					ui: map[string]any{"mimeTypes": []string{"text/html;profile=mcp-app"}},
				},
			})
		tools, err := client.Tools(t.Context())
		if err != nil || len(tools) != len(c.Upstreams) {
			t.Fatal(rev.Name, tools, err)
		}
		// as a page does, which knows no other name
		_, err = client.CallTool(t.Context(), "get-time", nil)
		for _, tool := range tools {
			if err == nil || !strings.Contains(err.Error(), tool.Name) {
				t.Fatalf("%s: a name that all have: %v; %s is no candidate", rev.Name, err, tool.Name)
			}
		}
		for _, tool := range tools {
			uris := urisOf(tool.Meta)
			if len(uris) != 1 || !strings.HasPrefix(uris[0], "ui://") {
				t.Fatalf("%s: the page of %s is %v", rev.Name, tool.Name, uris)
			}
			r, err := client.Read(t.Context(), uris[0])
			if err != nil || r.Contents[0].Text != "<p>"+tool.Description ||
				fmt.Sprint(r.Contents[0].Meta["ui"]) != "map[prefersBorder:true]" {
				t.Errorf("%s: the page of %s is %+v, %v", rev.Name, tool.Name, r, err)
			}
			said, err := client.CallTool(t.Context(), tool.Name, nil)
			if err != nil || said.Content[0].Text != "map[mimeTypes:[text/html;profile=mcp-app]]" {
				t.Errorf("%s: to %s the client declares %v, %v", rev.Name, tool.Name, said, err)
			}
		}
	}
}

// TestReferencesGuard: a policy on arguments judges what the server gets, so a qualifier is no way
// around it.
func TestReferencesGuard(t *testing.T) {
	t.Parallel()
	const policy = `
permit(principal, action, resource);
forbid(principal, action, resource) when { context has arguments && context.arguments has uri && context.arguments.uri like "file:///etc/*" };`
	u := &gateway.Upstream{Name: "a", Server: sharer(rand.New(rand.NewPCG(7, 7)), "a")}
	client := newLabOf(t, nil,
		&gateway.Config{
			Namespace: "always", Upstreams: []*gateway.Upstream{u},
			Guard: &guard.Config{Anonymous: true, Cedar: policy},
		}).client(t, mcp.ClientOptions{})
	for uri, allowed := range map[string]bool{
		"a+file:///public/x": true, "file:///etc/x": false,
		"a+file:///etc/x": false,
	} {
		r, err := client.CallTool(t.Context(), "a__own-a", map[string]string{"uri": uri})
		if (err == nil) != allowed || allowed && r.Content[0].Text != "a file:///public/x" {
			t.Errorf("%s: %v, %v", uri, r, err)
		}
	}
}

// TestReferencesState: without a guard, too, the state that one server has given to a client does
// not reach another one.
func TestReferencesState(t *testing.T) {
	t.Parallel()
	c := &gateway.Config{Namespace: "always"}
	for _, name := range []string{"a", "b"} {
		s := mcp.NewServer(name, "1", nil)
		s.AddTool(mcp.Tool{Name: "ask"},
			func(ctx context.Context, _ jsonrpc.Raw) (*mcp.ToolResult, error) {
				in, err := mcp.Elicit[struct {
					Name string `json:"name"`
				}](ctx, "Who?")
				return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(name + in.Name)}}, err
			})
		c.Upstreams = append(c.Upstreams, &gateway.Upstream{Name: name, Server: s, Era: "modern"})
	}
	l := newLabOf(t, nil, c)
	r, err := l.modern(t.Context(), "tools/call", "a__ask", `"name":"a__ask"`)
	if err != nil || r.err != nil {
		t.Fatal(r, err)
	}
	state := scan.Member(r.result, "requestState")
	key := ""
	for name := range scan.Members(scan.Member(r.result, "inputRequests")) {
		key = string(name)
	}
	again := fmt.Sprintf(
		`,"requestState":%s,"inputResponses":{%q:{"action":"accept","content":{"name":" Ann"}}}`,
		state, key)
	if r, err := l.modern(t.Context(), "tools/call", "b__ask", `"name":"b__ask"`+again); err != nil ||
		r.err == nil || r.err.Code != jsonrpc.InvalidParams ||
		!strings.Contains(r.err.Message, "another caller or server") {
		t.Errorf("at another server: %v, %v", r, err)
	}
	if r, err := l.modern(t.Context(), "tools/call", "a__ask", `"name":"a__ask"`+again); err != nil ||
		r.err != nil || !strings.Contains(r.body, "a Ann") {
		t.Errorf("at the same server: %v, %v", r, err)
	}
}
