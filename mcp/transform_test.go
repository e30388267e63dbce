package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const searchSchema = `{"type":"object","properties":{"q":{"type":"string","description":"query",` +
	`"x-mcp-header":"Q"},` +
	`"limit":{"type":"integer","maximum":100},"key":{"$ref":"#/$defs/key"},"deep":true},` +
	`"required":["q","key"],"$defs":{"key":{"type":"string"}}}`

// searchServer has a tool that answers with its arguments.
func searchServer() *Server {
	s := NewServer("search", "1", nil)
	s.AddTool(Tool{Name: "search", Description: "d", InputSchema: jsonrpc.Raw(searchSchema)},
		func(_ context.Context, arguments jsonrpc.Raw) (*ToolResult, error) {
			return &ToolResult{Content: []Content{Text(string(arguments))}}, nil
		})
	return s
}

var searchForm = Transform{
	Name: "find", Title: "Find", Description: "Find it", Arguments: map[string]Argument{
		"q":     {Name: "query", Description: "what to find"},
		"limit": {Default: 10},
		"key":   {Fixed: "secret"},
		"deep":  {Hidden: true},
	},
}

const foundSchema = `{"type":"object","$defs":{"key":{"type":"string"}},` +
	`"properties":{"query":{"type":"string","x-mcp-header":"Q","description":"what to find"},` +
	`"limit":{"type":"integer","maximum":100,"default":10}},"required":["query"]}`

// A transformed tool is the same in a server, in one that it is mounted in, and when that
// transforms it, in every revision.
func TestTransform(t *testing.T) {
	own := searchServer()
	own.Transform("search", searchForm)
	outer := NewServer("outer", "1", nil)
	outer.Mount("o", own)
	over := NewServer("over", "1", nil)
	over.Mount("s", searchServer())
	over.Transform("s__search", searchForm)
	twice := NewServer("twice", "1", nil)
	half := searchServer()
	half.Transform("search",
		Transform{
			Name: "half", Arguments: map[string]Argument{"q": {Name: "text"}, "key": {Fixed: "secret"}},
		})
	twice.Mount("", half)
	rest := searchForm
	rest.Arguments = map[string]Argument{
		"text":  {Name: "query", Description: "what to find"},
		"limit": {Default: 10}, "deep": {Hidden: true},
	}
	twice.Transform("half", rest)
	for name, s := range map[string]*Server{
		"find": own, "o__find": outer, " find": over,
		"find ": twice,
	} {
		for _, rev := range era.Revisions() {
			t.Run(s.info.Name+" "+rev.Name, func(t *testing.T) {
				testTransform(t, s, strings.TrimSpace(name), rev.Name)
			})
		}
	}
}

func testTransform(t *testing.T, s *Server, name, rev string) {
	c := connected(t, s, &ClientOptions{Era: rev})
	tools, err := c.Tools(t.Context())
	if err != nil || len(tools) != 1 || tools[0].Name != name || tools[0].Description != "Find it" {
		t.Fatalf("listed: %+v, %v", tools, err)
	}
	if era.Lookup(rev) == era.Latest() {
		wantJSON(t, "the schema", string(tools[0].InputSchema), foundSchema)
	}
	for arguments, want := range map[string]string{
		`{"query":"x"}`:                    `{"q":"x","key":"secret","limit":10}`,
		`{"query":"x","limit":3,"more":1}`: `{"q":"x","limit":3,"more":1,"key":"secret"}`,
		`{"query":"x","limit":"3"}`:        `{"q":"x","limit":3,"key":"secret"}`, // lenient
		`{}`:                               name + ": the argument",
		`{"query":"x","limit":"many"}`:     name + ": limit",
		`{"query":"x","limit":101}`:        name + ": limit",
		`{"query":"x","key":"mine"}`:       name + `: there is no argument "key"`,
		`{"query":"x","deep":1}`:           name + `: there is no argument "deep"`,
		`{"query":"x","q":"y"}`:            name + `: there is no argument "q"`,
	} {
		r, err := c.CallTool(t.Context(), name, jsonrpc.Raw(arguments))
		if err != nil {
			t.Errorf("%s: %v", arguments, err)
			continue
		}
		if refused := want[0] != '{'; refused != r.IsError ||
			refused && !strings.Contains(textOf(r), strings.Fields(want)[0]) {
			t.Errorf("%s: %q, want %q", arguments, textOf(r), want)
		} else if !refused {
			wantJSON(t, arguments, textOf(r), want)
		}
		if strings.Contains(want, "there is no") && !strings.Contains(textOf(r), want) {
			t.Errorf("%s: %q, want %q", arguments, textOf(r), want)
		}
	}
	for _, other := range []string{"search", "s__search", "half", "o__search"} {
		if _, err := c.CallTool(t.Context(), other, jsonrpc.Raw(`{"q":"x","key":"k"}`)); err == nil {
			t.Errorf("%s can be called", other)
		}
	}
}

// What surrounds a tool may ask, as the tool may, and what both ask is asked once.
func TestTransformWrap(t *testing.T) {
	for _, rev := range era.Revisions() {
		if !rev.Elicitation {
			continue
		}
		for _, where := range []string{"own", "mounted", "task"} {
			t.Run(where+" "+rev.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testTransformWrap(t, where, rev.Name) })
			})
		}
	}
}

func testTransformWrap(t *testing.T, where, rev string) {
	var ran counted
	ask := func(ctx context.Context, message string) (string, error) {
		a, err := Elicit[struct {
			Text string `json:"text"`
		}](ctx, message)
		return a.Text, err
	}
	s := NewServer("s", "1", &ServerOptions{TaskAfter: -1})
	defer s.Close()
	tool := Tool{Name: "work"}
	if where == "task" {
		tool.Execution = &spec.ToolExecution{TaskSupport: spec.TaskOptional}
	}
	s.AddTool(tool, func(ctx context.Context, arguments jsonrpc.Raw) (*ToolResult, error) {
		a, err := ask(ctx, "inner?")
		if err != nil {
			return nil, err
		}
		if ran.add("x"); a == "fail" {
			return nil, errOfHandler
		}
		return &ToolResult{Content: []Content{Text(a + string(arguments))}}, nil
	})
	name := "work"
	if where == "mounted" {
		inner := s
		name, s = "m__work", NewServer("outer", "1", nil)
		s.Mount("m", inner)
	}
	s.Transform(name, Transform{Name: "safe", Wrap: func(next ToolHandler) ToolHandler {
		return func(ctx context.Context, _ jsonrpc.Raw) (*ToolResult, error) {
			a, err := ask(ctx, "outer?")
			if err != nil {
				return nil, err
			}
			r, err := next(context.WithValue(ctx, valueKey{}, 1), jsonrpc.Raw(`{"a":1}`))
			if errors.Is(err, errOfHandler) {
				return nil, fmt.Errorf("wrapped: %w", err)
			}
			if err == nil {
				r.Content = append(r.Content, Text(a))
			}
			return r, err
		}
	}})
	answer := "in"
	c := connectedInProcess(t, s, &ClientOptions{
		Era: rev, Tasks: where == "task",
		Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			text := answer
			if p.Message == "outer?" {
				text = "out"
			}
			return &spec.ElicitResult{
				Action: "accept", Content: jsonrpc.Raw(fmt.Sprintf(`{"text":%q}`, text)),
			}, nil
		},
	})
	if r, err := c.CallTool(t.Context(), "safe", nil); err != nil || textOf(r) != "in{\"a\":1}\nout" {
		t.Errorf("%+v, %v", r, err)
	}
	answer = "fail"
	if r, err := c.CallTool(t.Context(), "safe", nil); err != nil || !r.IsError ||
		textOf(r) != "wrapped: the handler failed" {
		t.Errorf("%+v, %v", r, err)
	}
	if len(ran.all) != 2 {
		t.Errorf("the tool ran %d times", len(ran.all))
	}
	_ = c.Close()
}

// A Transform stays when its tool is added again, and goes on as the tool does.
func TestTransformStays(t *testing.T) {
	s := searchServer()
	inner := NewServer("inner", "1", nil)
	n := &node{Server: inner}
	n.add("tool", "t", "1")
	s.Mount("i", inner)
	s.Transform("i__t", Transform{Name: "short"})
	s.Transform("search", Transform{Name: "find"})
	n.add("tool", "t", "2")
	if r := sendModern(t, s, `{}`, "tools/call", `{"name":"short"}`); r.text() != "2" {
		t.Errorf("replaced: %s", r.raw)
	}
	if text := panics(func() {
		(&node{Server: s}).add("tool", "find", "")
	}); !strings.Contains(text, `"find"`) {
		t.Errorf("the name of a transformed tool: %q", text)
	}
	if text := panics(func() {
		s.Transform("search", Transform{Name: "short"})
	}); !strings.Contains(text, `"short"`) {
		t.Errorf("the name of another tool: %q", text)
	}
	if got := listed(t, s, "tools/list", "tools", "name"); got != "find short" {
		t.Errorf("listed %q", got)
	}
	s.Transform("search", Transform{})
	n.remove("tool", "t")
	if got := listed(t, s, "tools/list", "tools", "name"); got != "search" {
		t.Errorf("listed %q", got)
	}
	s.RemoveTool("search")
	if got := listed(t, s, "tools/list", "tools", "name"); got != "" {
		t.Errorf("listed %q", got)
	}
}

func TestTransformMistakes(t *testing.T) {
	nothing := jsonrpc.Raw(`{"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]}]}`)
	for want, c := range map[string]struct {
		Transform
		schema jsonrpc.Raw
	}{
		`no argument "x"`: {Transform: Transform{Arguments: map[string]Argument{"x": {}}}},
		`"q" is required`: {
			Transform: Transform{Arguments: map[string]Argument{"q": {Hidden: true}}},
		},
		`would both be "limit"`: {
			Transform: Transform{Arguments: map[string]Argument{"q": {Name: "limit"}}},
		},
		"101 does not fit": {
			Transform: Transform{Arguments: map[string]Argument{"limit": {Default: 101}}},
		},
		"1 does not fit": {
			Transform: Transform{Arguments: map[string]Argument{"key": {Fixed: 1}}},
		},
		"both a Fixed": {
			Transform: Transform{Arguments: map[string]Argument{"q": {Fixed: "a", Default: "b"}}},
		},
		"is hidden, and has": {
			Transform: Transform{Arguments: map[string]Argument{"limit": {Hidden: true, Name: "l"}}},
		},
		"has anyOf": {
			Transform: Transform{Arguments: map[string]Argument{"a": {Hidden: true}}}, schema: nothing,
		},
		`tool name "a b"`: {Transform: Transform{Name: "a b"}},
		"Wrap returned no": {Transform: Transform{Wrap: func(ToolHandler) ToolHandler {
			return nil
		}}},
		"json": {
			Transform: Transform{Arguments: map[string]Argument{"q": {Fixed: func() {}}}},
		},
	} {
		s := searchServer()
		if c.schema != nil {
			s.AddTool(Tool{Name: "search", InputSchema: c.schema},
				func(context.Context, jsonrpc.Raw) (*ToolResult, error) { return nil, nil })
		}
		if text := panics(func() { s.Transform("search", c.Transform) }); !strings.Contains(text, want) {
			t.Errorf("%q: the panic is %q", want, text)
		}
		if got := listed(t, s, "tools/list", "tools", "name"); got != "search" {
			t.Errorf("%q: listed %q", want, got)
		}
	}
	if text := panics(func() {
		searchServer().Transform("other", Transform{})
	}); !strings.Contains(text, `no tool "other"`) {
		t.Errorf("the panic is %q", text)
	}
}

// Whatever arguments a caller gives, the tool gets no value for a fixed argument but the fixed one.
func FuzzTransformArguments(f *testing.F) {
	for _, seed := range []string{
		`{"query":"x"}`, `{"key":"a"}`, `{"q":1,"query":2}`,
		`{"\u006bey":1}`, `{"limit":null}`,
	} {
		f.Add([]byte(seed))
	}
	_, apply, err := searchForm.Apply(Tool{InputSchema: jsonrpc.Raw(searchSchema)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, given []byte) {
		if jsonrpc.Valid(given) != nil || given[0] != '{' {
			t.Skip()
		}
		out, err := apply(given)
		if err != nil {
			return
		}
		if jsonrpc.Valid(out) != nil || strings.Count(string(out), `"secret"`) < 1 ||
			string(scan.Member(out, "key")) != `"secret"` {
			t.Errorf("%s became %s", given, out)
		}
	})
}
