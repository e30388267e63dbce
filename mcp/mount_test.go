package mcp

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// node is a server of a random tree, and what is known of it.
type node struct {
	*Server
	prefix  string
	own     map[string]string // who answers, by kind and name
	mounted []*node
	outer   *node
}

// offers returns who answers for each name that the server shows, and whether there are two of one
// name.
func (n *node) offers() (all map[string]string, conflict bool) {
	all = maps.Clone(n.own)
	for _, m := range n.mounted {
		inner, twice := m.offers()
		conflict = conflict || twice
		for key, who := range inner {
			kind, name, _ := strings.Cut(key, " ")
			if m.prefix != "" && (kind == "tool" || kind == "prompt") {
				name = m.prefix + "__" + name
			}
			if _, taken := all[kind+" "+name]; taken {
				conflict = true
			}
			all[kind+" "+name] = who
		}
	}
	return all, conflict
}

func (n *node) root() *node {
	for n.outer != nil {
		n = n.outer
	}
	return n
}

// add makes the server offer something that answers with who.
func (n *node) add(kind, name, who string) {
	switch kind {
	case "tool":
		n.AddTool(Tool{Name: name}, func(context.Context, jsonrpc.Raw) (*ToolResult, error) {
			return &ToolResult{Content: []Content{Text(who)}}, nil
		})
	case "prompt":
		n.AddPrompt(Prompt{Name: name}, func(context.Context, map[string]string) (*PromptResult, error) {
			return &PromptResult{Description: who}, nil
		})
	case "resource":
		n.AddResource(Resource{URI: name, Name: name},
			func(context.Context, string) ([]ResourceContents, error) {
				return []ResourceContents{{Text: who}}, nil
			})
	case "template":
		n.AddTemplate(ResourceTemplate{URITemplate: name, Name: name},
			func(context.Context, string, Vars) ([]ResourceContents, error) {
				return []ResourceContents{{Text: who}}, nil
			})
	}
}

func (n *node) remove(kind, name string) {
	switch kind {
	case "tool":
		n.RemoveTool(name)
	case "prompt":
		n.RemovePrompt(name)
	case "resource":
		n.RemoveResource(name)
	case "template":
		n.RemoveTemplate(name)
	}
}

// panics reports whether f panics.
func panics(f func()) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	f()
	return ""
}

// In a tree of servers whatever is listed reaches the handler that owns it, in every revision, and
// what would give two things one name is refused and changes nothing.
func TestMountTrees(t *testing.T) {
	race.Skip(t, "one call after the other")
	refused, served := 0, 0
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		nodes := []*node{}
		for i := range 2 + rnd.IntN(5) {
			nodes = append(nodes,
				&node{Server: NewServer(fmt.Sprint("s", i), "1", nil), own: map[string]string{}})
		}
		for step := range 80 {
			refused += changeOne(t, rnd, nodes, step)
		}
		for _, n := range nodes {
			for _, rev := range era.Revisions() {
				served += checkTree(t, n, rev.Name)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if refused < 100 || served < 2000 {
		t.Errorf("%d changes were refused and %d calls were served: the trees are too tame",
			refused, served)
	}
}

var treeNames = map[string][]string{
	"tool": {"a", "b", "b__a", "p__a"}, "prompt": {"a", "b", "p__a"},
	"resource": {"x:a", "x:b", "x:c"}, "template": {"y:{v}", "z:{v}"},
}

// changeOne makes one change, as the model has it, and returns 1 when it was refused.
func changeOne(t *testing.T, rnd *rand.Rand, nodes []*node, step int) (refused int) {
	n := nodes[rnd.IntN(len(nodes))]
	if rnd.IntN(8) == 0 {
		return mountNodes(t, n, nodes[rnd.IntN(len(nodes))], []string{"", "p", "q", "b"}[rnd.IntN(4)])
	}
	kind := []string{"tool", "prompt", "resource", "template"}[rnd.IntN(4)]
	name := treeNames[kind][rnd.IntN(len(treeNames[kind]))]
	key, who := kind+" "+name, fmt.Sprint(n.info.Name, " ", step)
	if rnd.IntN(4) == 0 {
		n.remove(kind, name)
		delete(n.own, key)
		return 0
	}
	old, had := n.own[key]
	n.own[key] = who
	_, conflict := n.root().offers()
	conflict = conflict && !had
	if text := panics(func() { n.add(kind, name, who) }); conflict != (text != "") ||
		conflict && strings.Count(text, "the server ") < 2 {
		t.Fatalf("add %s to %s: conflict is %v, and the panic %q", key, n.info.Name, conflict, text)
	}
	if !conflict {
		return 0
	}
	if delete(n.own, key); had {
		n.own[key] = old
	}
	return 1
}

func mountNodes(t *testing.T, n, m *node, prefix string) (refused int) {
	conflict := m.outer != nil || n.root() == m
	if !conflict {
		m.outer, m.prefix = n, prefix
		n.mounted = append(n.mounted, m)
		if _, conflict = n.root().offers(); conflict {
			m.outer, n.mounted = nil, n.mounted[:len(n.mounted)-1]
		}
	}
	if text := panics(func() { n.Mount(prefix, m.Server) }); conflict != (text != "") {
		t.Fatalf("mount %s in %s as %q: conflict is %v, and the panic %q", m.info.Name, n.info.Name,
			prefix, conflict, text)
	}
	if conflict {
		return 1
	}
	return 0
}

// checkTree calls all that a client of a revision finds.
func checkTree(t *testing.T, n *node, rev string) (served int) {
	t.Helper()
	want, _ := n.offers()
	synctest.Test(t, func(t *testing.T) {
		got := map[string]string{}
		c := connectedInProcess(t, n.Server, &ClientOptions{Era: rev})
		if c.Server().Capabilities.Tools != nil {
			callTools(t, c, got)
		}
		if c.Server().Capabilities.Prompts != nil {
			getPrompts(t, c, got)
		}
		if c.Server().Capabilities.Resources != nil {
			readResources(t, c, got)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s in %s: %v, want %v", n.info.Name, rev, got, want)
		}
		_ = c.Close()
	})
	return len(want)
}

func callTools(t *testing.T, c *Client, got map[string]string) {
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Error(err)
	}
	for i := range tools {
		if r, err := c.CallTool(t.Context(), tools[i].Name, nil); err != nil || r.IsError {
			t.Errorf("%s: %+v, %v", tools[i].Name, r, err)
		} else {
			got["tool "+tools[i].Name] = textOf(r)
		}
	}
}

func getPrompts(t *testing.T, c *Client, got map[string]string) {
	prompts, err := c.Prompts(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, p := range prompts {
		if r, err := c.Prompt(t.Context(), p.Name, nil); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		} else {
			got["prompt "+p.Name] = r.Description
		}
	}
}

func readResources(t *testing.T, c *Client, got map[string]string) {
	resources, err := c.Resources(t.Context())
	if err != nil {
		t.Error(err)
	}
	for i := range resources {
		if r, err := c.Read(t.Context(), resources[i].URI); err != nil || len(r.Contents) != 1 {
			t.Errorf("%s: %v", resources[i].URI, err)
		} else {
			got["resource "+resources[i].URI] = r.Contents[0].Text
		}
	}
	templates, err := c.Templates(t.Context())
	if err != nil {
		t.Error(err)
	}
	for i := range templates {
		uri := templates[i].URITemplate[:2] + templates[i].URITemplate[3:4] // any value
		r, err := c.Read(t.Context(), uri)
		if err != nil || len(r.Contents) != 1 {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		got["template "+templates[i].URITemplate] = r.Contents[0].Text
	}
}

// A mounted server that uses all that a server can use works as one that is served alone.
func TestMountWorks(t *testing.T) {
	for _, rev := range era.Revisions() {
		t.Run(rev.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testMountWorks(t, rev.Name) })
		})
	}
}

func testMountWorks(t *testing.T, rev string) {
	var order, logged, progress, updated, changed counted
	note := func(who string) func(Handler) Handler {
		return before(func(r *Request) {
			if r.Method == spec.MethodToolsCall {
				order.add(who + " " + r.Name + ";")
			}
		})
	}
	inner := NewServer("inner", "1", &ServerOptions{
		Complete: func(_ context.Context, p *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
			return &spec.CompleteResult{
				Completion: spec.Completion{Values: []string{p.Ref.Name + p.Ref.URI}},
			}, nil
		},
		Visible: func(_ context.Context, _, name string) bool { return name != "secret" },
	})
	inner.Use(note("inner"))
	ask := Tool{Name: "ask", Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional}}
	inner.AddTool(ask, func(ctx context.Context, _ jsonrpc.Raw) (*ToolResult, error) {
		_ = Log(ctx, "error", "l", "logged")
		_ = Progress(ctx, 1, 2, "half")
		a, err := Elicit[struct {
			Name string `json:"name"`
		}](ctx, "Who?")
		if err != nil {
			return nil, err
		}
		n, err := Once(ctx, "n", func() (int, error) { order.add("once;"); return 7, nil })
		return &ToolResult{Content: []Content{Text(fmt.Sprint(a.Name, n, RequestFrom(ctx).Name))}}, err
	})
	node := &node{Server: inner}
	node.add("tool", "secret", "s")
	node.add("prompt", "greet", "p")
	node.add("template", "y:{v}", "t")

	middle, outer := NewServer("middle", "1", nil), NewServer("outer", "1", nil)
	outer.Use(note("outer"))
	outer.Mount("m", middle)
	middle.Mount("i", inner)
	c := connectedInProcess(t, outer, &ClientOptions{
		Era: rev, LogLevel: "info",
		Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{Action: "accept", Content: jsonrpc.Raw(`{"name":"Ann"}`)}, nil
		},
		OnLog:             func(*spec.LoggingMessageNotificationParams) { logged.add("x") },
		OnResourceUpdated: func(uri string) { updated.add(uri) },
		OnListChanged:     func(kind string) { changed.add(kind) },
	})
	ctx := OnProgress(t.Context(), func(p spec.ProgressNotificationParams) { progress.add(p.Message) })

	asks := era.Lookup(rev).Elicitation
	r, err := c.CallTool(ctx, "m__i__ask", nil)
	if err != nil || asks && textOf(r) != "Ann7ask" || !asks && !r.IsError {
		t.Errorf("ask: %+v, %v", r, err)
	}
	if got := strings.Join(order.all, ""); !strings.HasPrefix(got, "outer m__i__ask;inner ask;") ||
		asks && strings.Count(got, "once;") != 1 {
		t.Errorf("the order is %s", got)
	}
	synctest.Wait()
	if len(logged.all) == 0 {
		t.Error("nothing was logged")
	}
	if len(progress.all) == 0 {
		t.Error("there was no progress")
	}
	if _, err := c.CallTool(ctx, "m__i__secret", nil); err == nil {
		t.Error("what is not visible was called")
	}
	for want, ref := range map[string]spec.CompleteReference{
		"greet": {Type: spec.RefPrompt, Name: "m__i__greet"},
		"y:{v}": {Type: spec.RefResource, URI: "y:{v}"},
	} {
		got, err := c.Complete(t.Context(),
			&spec.CompleteRequestParams{Ref: ref, Argument: spec.CompleteArgument{Name: "v", Value: "a"}})
		if err != nil || len(got.Completion.Values) != 1 || got.Completion.Values[0] != want {
			t.Errorf("complete %s: %+v, %v", want, got, err)
		}
	}
	listening, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Listen(listening,
			spec.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"y:1"}})
	}()
	settle()
	inner.ResourceUpdated("y:1")
	node.add("tool", "late", "now")
	settle()
	stop()
	<-done
	if updated.count("y:1") == 0 || changed.count("tools") == 0 {
		t.Errorf("updated %v, changed %v", updated.all, changed.all)
	}
	if r, err := c.CallTool(ctx, "m__i__late", nil); err != nil || textOf(r) != "now" {
		t.Errorf("late: %+v, %v", r, err)
	}
}

// A task of a mounted tool is one of the server that the client is connected to.
func TestMountTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := NewServer("outer", "1", &ServerOptions{TaskAfter: -1})
		t.Cleanup(outer.Close)
		outer.Mount("t", taskServer(t, spec.TaskOptional, nil, sleepMinute))
		id := startModern(t, outer, `{"name":"t__work"}`).Result.TaskID
		settle()
		if r := sendTask(t, outer, "tasks/get", id, ""); r.Result.Status != "working" {
			t.Errorf("working: %s", r.raw)
		}
		settle()
		sleep := taskServer(t, spec.TaskOptional, nil, sleepMinute)
		if sleep.Mount("o", NewServer("x", "1", nil)); keptTasks(outer) != 1 || keptTasks(sleep) != 0 {
			t.Error("the task is kept elsewhere")
		}
		if r := sendTask(t, outer, "tasks/cancel", id, ""); r.Error != nil {
			t.Errorf("cancel: %s", r.raw)
		}
	})
}

// The rounds of a call are bound to what the client sends: a state is of no use for another tool.
func TestMountSealsStates(t *testing.T) {
	outer := NewServer("outer", "1", nil)
	outer.Mount("a", askServer(t, askEverything, nil))
	b := askServer(t, askEverything, nil)
	outer.Mount("b", b)
	r := sendModern(t, outer, canAll, "tools/call", `{"name":"a__ask"}`)
	if r.Result.RequestState == "" {
		t.Fatalf("nothing is asked: %s", r.raw)
	}
	other := sendModern(t, outer, canAll, "tools/call",
		fmt.Sprintf(`{"name":"b__ask","requestState":%q}`, r.Result.RequestState))
	if other.Error == nil || other.Error.Code != jsonrpc.InvalidParams {
		t.Errorf("the state of another tool: %s", other.raw)
	}
	if r, rounds := sendRounds(t, outer, "tools/call", `{"name":"b__ask"}`,
		humanAnswers); r.Error != nil || r.Result.IsError || rounds < 2 {
		t.Errorf("%d rounds: %s", rounds, r.raw)
	}
}

// The policy of the outer server holds for what is mounted.
func TestMountPolicy(t *testing.T) {
	var seen counted
	watch := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
			seen.add(r.Method)
			return next.ServeRPC(ctx, r)
		})
	}
	inner := calculator(&ServerOptions{CacheTTL: 1e9, CacheScope: spec.CachePublic})
	outer := NewServer("outer", "1", &ServerOptions{
		RPC: &farcall.Options{Interceptors: []farcall.Interceptor{watch}}, Arguments: Strict,
		CacheTTL: 9e9, CacheScope: spec.CachePublic,
		Visible: func(_ context.Context, _, name string) bool { return name != "h__add" },
	})
	outer.Mount("c", inner)
	if r := sendModern(t, outer, `{}`, "tools/list", `{}`); *r.Result.TTLMS != 1000 ||
		!strings.Contains(r.raw, `"cacheScope":"public"`) {
		t.Errorf("the list: %s", r.raw)
	}
	outer.Mount("h", calculator(nil))
	if r := sendModern(t, outer, `{}`, "tools/list", `{}`); *r.Result.TTLMS != 0 ||
		!strings.Contains(r.raw, `"cacheScope":"private"`) || strings.Contains(r.raw, "h__add") {
		t.Errorf("the list: %s", r.raw)
	}
	if r := sendModern(t, outer, `{}`, "tools/call",
		`{"name":"c__add","arguments":{"a":"1","b":2}}`); !r.Result.IsError ||
		!strings.Contains(r.text(), "c__add") {
		t.Errorf("strict: %s", r.raw)
	}
	if r := sendModern(t, outer, `{}`, "tools/call",
		`{"name":"h__add","arguments":{"a":1,"b":2}}`); r.Error == nil {
		t.Errorf("hidden: %s", r.raw)
	}
	if n := seen.count("tools/call"); n != 2 {
		t.Errorf("the interceptor saw %v", seen.all)
	}
	a, b := NewServer("a", "1", nil), NewServer("b", "1", nil)
	a.Mount("b", b)
	intercepted := NewServer("x", "1",
		&ServerOptions{RPC: &farcall.Options{Interceptors: []farcall.Interceptor{watch}}})
	for want, f := range map[string]func(){
		`the server "x" has interceptors`: func() { outer.Mount("x", intercepted) },
		"already":                         func() { outer.Mount("again", inner) },
		"mounted in itself":               func() { b.Mount("x", a) },
		"the prefix":                      func() { outer.Mount("a__b", NewServer("x", "1", nil)) },
		"is nil":                          func() { outer.Mount("a", nil) },
		"more than 128": func() {
			outer.Mount(strings.Repeat("a", 127), calculator(nil))
		},
		`"p__add" of the server "calc", mounted in the server "x"`: func() {
			(&node{Server: intercepted}).add("tool", "p__add", "")
			intercepted.Mount("p", calculator(nil))
		},
		"zero value": func() { outer.Mount("z", &Server{}) },
		`of the server "calc", mounted in the server "outer" as "c"`: func() {
			(&node{Server: outer}).add("tool", "c__add", "")
		},
	} {
		if text := panics(f); !strings.Contains(text, want) {
			t.Errorf("%q: the panic is %q", want, text)
		}
	}
}

func BenchmarkMount(b *testing.B) {
	outer := NewServer("outer", "1", nil)
	outer.Mount("c", calculator(nil))
	for name, s := range map[string]*Server{"mounted": outer, "alone": calculator(nil)} {
		b.Run(name, func(b *testing.B) {
			tool := map[string]string{"mounted": "c__add", "alone": "add"}[name]
			r := modernRequest("tools/call", fmt.Sprintf(`"name":%q,"arguments":{"a":1,"b":2}`, tool))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.ServeRPC(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
