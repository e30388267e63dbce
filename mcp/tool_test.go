package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// callTool calls a tool and returns its result.
func callTool(t *testing.T, s *Server, name, arguments string) string {
	t.Helper()
	got := exchange(t, s,
		modernFrame("1", "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, name, arguments)))
	var m struct {
		Result map[string]json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal([]byte(got[0]), &m); err != nil {
		t.Fatal(err)
	}
	if m.Error != nil {
		return "error " + string(m.Error)
	}
	delete(m.Result, "_meta")
	delete(m.Result, "resultType")
	raw, err := json.Marshal(m.Result)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

type searchIn struct {
	Query string   `json:"query" min:"1" pattern:"^[a-z ]+$" doc:"what to look for"`
	Limit int      `json:"limit" default:"5" min:"1" max:"10"`
	Sort  string   `json:"sort,omitzero" enum:"name,date"`
	Tags  []string `json:"tags,omitzero"`
	Raw   []byte   `json:"raw,omitzero"`
	Tree  *tree    `json:"tree,omitzero"`
}

type tree struct {
	Name     string `json:"name"`
	Children []tree `json:"children,omitzero"`
}

func TestTypedTool(t *testing.T) {
	s := NewServer("calc", "1.0", &ServerOptions{Arguments: Strict})
	AddTool(s, Tool{Name: "search", Description: "Search"},
		func(_ context.Context, in searchIn) (searchIn, error) { return in, nil })
	for _, tt := range []struct{ name, args, want string }{
		{"default", `{"query":"a"}`, `"structuredContent":{"query":"a","limit":5}}`},
		{"null arguments", `null`, `query`},
		{"bytes", `{"query":"a","raw":"aGk="}`, `"raw":"aGk="`},
		{
			"recursion", `{"query":"a","tree":{"name":"x","children":[{"name":"y"}]}}`,
			`"tree":{"name":"x","children":[{"name":"y"}]}`,
		},
		{"missing", `{}`, `query`},
		{"unknown", `{"query":"a","querry":"b"}`, `querry`},
		{"wrong type", `{"query":1}`, `query`},
		{
			"wrong inside", `{"query":"a","tree":{"name":"x","children":[{"name":3}]}}`,
			`tree.children[0].name`,
		},
		{"out of range", `{"query":"a","limit":11}`, `limit`},
		{"pattern", `{"query":"A"}`, `query`},
		{"enum", `{"query":"a","sort":"size"}`, `date`},
		{"whole number", `{"query":"1.0","limit":5.0}`, `query`},
		{"whole number", `{"query":"a","limit":0.5E1}`, `"limit":5`},
		{
			"null for a default", `{"query":"a","limit":null}`,
			`"structuredContent":{"query":"a","limit":5}}`,
		},
		{
			"null for absent", `{"query":"a","sort":null,"tags":null,"tree":{"name":"x","children":null}}`,
			`"tree":{"name":"x"}`,
		},
		{"null for what is required", `{"query":null}`, `query`},
		{"null inside", `{"query":"a","tags":[null]}`, `tags`},
		{"overflow", `{"query":"a","limit":1e400}`, `limit`},
	} {
		got := callTool(t, s, "search", tt.args)
		if isError := strings.Contains(got, `"isError":true`); !strings.Contains(got, tt.want) ||
			isError == strings.Contains(got, "structuredContent") {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// Every revision wants "type":"object" at the root of an input schema.
func TestToolSchemaRoot(t *testing.T) {
	add := func(schema string) (listed string, refused any) {
		s := NewServer("calc", "1.0", nil)
		defer func() { refused = recover() }()
		s.AddTool(Tool{Name: "t", InputSchema: jsonrpc.Raw(schema)},
			func(context.Context, jsonrpc.Raw) (*ToolResult, error) {
				return nil, nil
			})
		return result(t, exchange(t, s, modernFrame("1", "tools/list", ""))[0]), nil
	}
	for schema, want := range map[string]string{
		`{}`:                   `"inputSchema":{"type":"object"}`,
		`{"properties":{}}`:    `"inputSchema":{"type":"object","properties":{}}`,
		` { "type":"object" }`: `"type":"object"`,
	} {
		if got, refused := add(schema); refused != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v %s", schema, refused, got)
		}
	}
	for _, schema := range []string{`true`, `{"type":"string"}`, `{"type":["object","null"]}`, `[]`} {
		if got, refused := add(schema); refused == nil {
			t.Errorf("%s: accepted: %s", schema, got)
		}
	}
}

// The code of the legacy era for "visit this first" is MCP's own since.
func TestURLRequiredCode(t *testing.T) {
	s := NewServer("calc", "1.0", nil)
	AddTool(s, Tool{Name: "pay"}, func(context.Context, struct{}) (string, error) {
		return "", &jsonrpc.Error{
			Code: spec.URLElicitationRequired, Message: "visit",
			Data: jsonrpc.Raw(`{"elicitations":[]}`),
		}
	})
	if got := callTool(t, s, "pay", `{}`); strings.Contains(got, "-32042") {
		t.Error("modern:", got)
	}
	c := newHTTPClient(s)
	c.begin(legacyName)
	if got := c.send(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay"}}`); !strings.Contains(
		string(got), "-32042") {
		t.Errorf("legacy: %s", got)
	}
}

// A request that is not one is no failure of the tool.
func TestToolArgumentsNoObject(t *testing.T) {
	s := calculator(nil)
	for _, arguments := range []string{`[]`, `"{}"`, `7`} {
		if got := callTool(t, s, "add", arguments); !strings.Contains(got, `"code":-32602`) {
			t.Errorf("%s: %s", arguments, got)
		}
	}
}

func TestToolSchema(t *testing.T) {
	s := NewServer("calc", "1.0", nil)
	AddTool(s, Tool{Name: "search", Description: "Search", Title: "T"},
		func(_ context.Context, in searchIn) ([]addOut, error) { return nil, nil })
	got := result(t, exchange(t, s, modernFrame("1", "tools/list", ""))[0])
	for _, want := range []string{
		`"title":"T"`, `"additionalProperties":false`,
		`"raw":{"type":"string","contentEncoding":"base64"`, `"tags":{"type":"array"`,
		`"default":5`, `"minimum":1`, `"maximum":10`, `"enum":["name","date"]`, `"pattern":"^[a-z ]+$"`,
		`"$ref":"#/$defs/tree"`,
		`"outputSchema":{"type":"array"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if strings.Contains(got, `["null"`) || strings.Contains(got, `"null"]`) {
		t.Error("a list of types:", got)
	}
}

func TestToolResults(t *testing.T) {
	type empty struct{}
	s := NewServer("calc", "1.0", nil)
	outcome := map[string]string{}
	check := func(name, want string) { outcome[name] = want }

	AddTool(s, Tool{Name: "string"}, func(context.Context, empty) (string, error) {
		return `a "b"`, nil
	})
	check("string", `{"content":[{"text":"a \"b\"","type":"text"}]}`)
	AddTool(s, Tool{Name: "content"}, func(context.Context, empty) (Content, error) {
		return Image([]byte("hi"), "image/png"), nil
	})
	check("content", `{"content":[{"data":"aGk=","mimeType":"image/png","type":"image"}]}`)
	AddTool(s, Tool{Name: "contents"}, func(context.Context, empty) ([]Content, error) {
		return []Content{
			Text("t"), Audio([]byte("hi"), "audio/wav"), Link(Resource{URI: "a:b", Name: "n"}),
			Embed(ResourceContents{URI: "a:b", Text: "x"}),
		}, nil
	})
	check("contents",
		`{"content":[{"type":"text","text":"t"},{"type":"audio","data":"aGk=","mimeType":"audio/wav"},
		{"type":"resource_link","uri":"a:b","name":"n"},{"type":"resource","resource":{"uri":"a:b","text":"x"}}]}`)
	AddTool(s, Tool{Name: "nothing"}, func(context.Context, empty) (empty, error) {
		return empty{}, nil
	})
	check("nothing", `{"content":[{"type":"text","text":"{}"}],"structuredContent":{}}`)
	AddTool(s, Tool{Name: "void"}, func(context.Context, struct{}) (struct{}, error) {
		return struct{}{}, nil
	})
	check("void", `{"content":[]}`)
	AddTool(s, Tool{Name: "full"}, func(context.Context, empty) (*ToolResult, error) {
		return &ToolResult{Content: []Content{Text("x")}, IsError: true, Meta: map[string]any{"a": 1}},
			nil
	})
	check("full", `{"content":[{"type":"text","text":"x"}],"isError":true}`)
	AddTool(s, Tool{Name: "full_nil"}, func(context.Context, empty) (*ToolResult, error) {
		return nil, nil
	})
	check("full_nil", `{"content":[]}`)
	AddTool(s, Tool{Name: "nil_pointer"}, func(context.Context, empty) (*addOut, error) {
		return nil, nil
	})
	check("nil_pointer",
		`{"content":[{"type":"text","text":"{\"sum\":0}"}],"structuredContent":{"sum":0}}`)
	AddTool(s, Tool{Name: "nil_slice"}, func(context.Context, empty) ([]int, error) {
		return nil, nil
	})
	check("nil_slice", `{"content":[{"type":"text","text":"[]"}],"structuredContent":[]}`)
	AddTool(s, Tool{Name: "nil_map"}, func(context.Context, empty) (map[string]int, error) {
		return nil, nil
	})
	check("nil_map", `{"content":[{"type":"text","text":"{}"}],"structuredContent":{}}`)
	AddTool(s, Tool{Name: "nil_any"}, func(context.Context, empty) (any, error) { return nil, nil })
	check("nil_any", `{"content":[]}`)
	AddTool(s, Tool{Name: "number"}, func(context.Context, empty) (float64, error) { return 1.5, nil })
	check("number", `{"content":[{"type":"text","text":"1.5"}],"structuredContent":1.5}`)
	AddTool(s, Tool{Name: "error"}, func(context.Context, empty) (addOut, error) {
		return addOut{}, errors.New("the disk is full")
	})
	check("error", `{"content":[{"type":"text","text":"the disk is full"}],"isError":true}`)
	AddTool(s, Tool{Name: "raw"}, func(_ context.Context, in jsonrpc.Raw) (jsonrpc.Raw, error) {
		return in, nil
	})
	check("raw", `{"content":[{"type":"text","text":"{}"}],"structuredContent":{}}`)
	s.AddTool(Tool{Name: "given", InputSchema: jsonrpc.Raw(`{"type":"object"}`)},
		func(context.Context, jsonrpc.Raw) (*ToolResult, error) { return nil, nil })
	check("given", `{"content":[]}`)

	for name, want := range outcome {
		wantJSON(t, name, callTool(t, s, name, "{}"), want)
	}
}

func TestToolProtocolError(t *testing.T) {
	s := NewServer("calc", "1.0", nil)
	AddTool(s, Tool{Name: "quota"}, func(context.Context, struct{}) (string, error) {
		return "", fmt.Errorf("wrapped: %w", jsonrpc.Errorf(-31050, "slow down"))
	})
	if got := callTool(t, s, "quota", "{}"); got != `error {"code":-31050,"message":"slow down"}` {
		t.Error(got)
	}
}

func TestOutputValidation(t *testing.T) {
	type limited struct {
		N int `json:"n" max:"3"`
	}
	tool := Tool{Name: "given", OutputSchema: jsonrpc.Raw(`{"type":"object","required":["n"]}`)}
	for _, skip := range []bool{false, true} {
		s := NewServer("calc", "1.0", &ServerOptions{SkipOutputValidation: skip})
		AddTool(s, Tool{Name: "limited"}, func(_ context.Context, in struct{ N int }) (limited, error) {
			return limited{in.N}, nil
		})
		s.AddTool(tool, func(_ context.Context, args jsonrpc.Raw) (*ToolResult, error) {
			return &ToolResult{StructuredContent: args}, nil
		})
		s.AddTool(Tool{Name: "none", OutputSchema: tool.OutputSchema},
			func(context.Context, jsonrpc.Raw) (*ToolResult, error) { return nil, nil })
		for _, tt := range []struct {
			name, args string
			ok         bool
		}{
			{"limited", `{"N":3}`, true},
			{"limited", `{"N":4}`, false},
			{"given", `{"n":1}`, true},
			{"given", `{"m":1}`, false},
			{"none", `{}`, false},
		} {
			got := callTool(t, s, tt.name, tt.args)
			if refused := strings.HasPrefix(got,
				`error {"code":-32603,"message":"Internal error: the result of the tool `+tt.name); refused ==
				(tt.ok || skip) {
				t.Errorf("skip %v: %s(%s): %s", skip, tt.name, tt.args, got)
			}
		}
	}
}

func TestToolsChange(t *testing.T) {
	s := calculator(nil)
	AddTool(s, Tool{Name: "b"}, add)
	AddTool(s, Tool{Name: "a"}, add)
	AddTool(s, Tool{Name: "add", Description: "replaced"}, add) // keeps its place
	s.RemoveTool("b")
	s.RemoveTool("b")
	if got := listed(t, s, "tools/list", "tools", "name"); got != "add a" {
		t.Error(got)
	}
	s.RemoveTool("add")
	s.RemoveTool("a")
	if got := listed(t, s, "tools/list", "tools", "name"); got != "" {
		t.Error("a server that had tools still lists them:", got)
	}
	if got := callTool(t, s, "add", `{"a":1,"b":2}`); !strings.Contains(got, "Unknown tool") {
		t.Error(got)
	}
}

// listed returns all pages of a list: a member of each element.
func listed(t *testing.T, s *Server, method, list, member string) string {
	t.Helper()
	var names []string
	cursor := ""
	for range 100 {
		got := result(t, exchange(t, s, modernFrame("1", method, cursor))[0])
		var page map[string]json.RawMessage
		var items []map[string]any
		if err := json.Unmarshal([]byte(got), &page); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(page[list], &items); err != nil {
			t.Fatal(got, err)
		}
		for _, it := range items {
			names = append(names, fmt.Sprint(it[member]))
		}
		if page["nextCursor"] == nil {
			return strings.Join(names, " ")
		}
		cursor = `"cursor":` + string(page["nextCursor"])
	}
	t.Fatal("the list does not end")
	return ""
}

func TestVisible(t *testing.T) {
	s := calculator(
		&ServerOptions{PageSize: 1, Visible: func(_ context.Context, kind, name string) bool {
			return !strings.Contains(name, "secret")
		}})
	for _, name := range []string{"secret1", "open1", "secret2", "open2", "secret3"} {
		AddTool(s, Tool{Name: name}, add)
		s.AddPrompt(Prompt{Name: name}, func(context.Context, map[string]string) (*PromptResult, error) {
			return nil, nil
		})
		s.AddResource(Resource{URI: "x:" + name, Name: name},
			func(context.Context, string) ([]ResourceContents, error) { return nil, nil })
		s.AddTemplate(ResourceTemplate{URITemplate: name + ":{x}", Name: name},
			func(context.Context, string, Vars) ([]ResourceContents, error) { return nil, nil })
	}
	for _, tt := range [][4]string{
		{"tools/list", "tools", "name", "add open1 open2"},
		{"prompts/list", "prompts", "name", "open1 open2"},
		{"resources/list", "resources", "uri", "x:open1 x:open2"},
		{"resources/templates/list", "resourceTemplates", "uriTemplate", "open1:{x} open2:{x}"},
	} {
		if got := listed(t, s, tt[0], tt[1], tt[2]); got != tt[3] {
			t.Errorf("%s: %s", tt[0], got)
		}
	}
	if got := callTool(t, s, "secret1",
		`{"a":1,"b":2}`); got != `error {"code":-32602,"message":"Unknown tool: secret1"}` {
		t.Error(got)
	}
	for _, frame := range []string{
		modernFrame("1", "prompts/get", `"name":"secret1"`),
		modernFrame("1", "resources/read", `"uri":"x:secret1"`),
		modernFrame("1", "resources/read", `"uri":"secret1:x"`),
	} {
		if got := exchange(t, s, frame)[0]; !strings.Contains(got, "-32602") {
			t.Error(got)
		}
	}
}

func TestPages(t *testing.T) {
	s := NewServer("s", "1", &ServerOptions{PageSize: 2})
	for i := range 5 {
		AddTool(s, Tool{Name: fmt.Sprintf("t%d", i)}, add)
	}
	s.AddPrompt(Prompt{Name: "p"}, func(context.Context, map[string]string) (*PromptResult, error) {
		return nil, nil
	})
	if got := listed(t, s, "tools/list", "tools", "name"); got != "t0 t1 t2 t3 t4" {
		t.Error(got)
	}
	// A cursor outlives the tool that it stands for.
	var page struct{ NextCursor string }
	_ = json.Unmarshal([]byte(result(t, exchange(t, s, modernFrame("1", "tools/list", ""))[0])), &page)
	s.RemoveTool("t1")
	s.RemoveTool("t0")
	got := result(t,
		exchange(t, s, modernFrame("1", "tools/list", fmt.Sprintf(`"cursor":%q`, page.NextCursor)))[0])
	if !strings.Contains(got, `"name":"t2"`) || !strings.Contains(got, `"name":"t3"`) ||
		strings.Contains(got, `"name":"t4"`) {
		t.Error(got)
	}
	for _, frame := range []string{
		modernFrame("1", "prompts/list", fmt.Sprintf(`"cursor":%q`, page.NextCursor)), // of another list
		modernFrame("1", "tools/list", `"cursor":""`),
		modernFrame("1", "tools/list", `"cursor":"garbage"`),
		modernFrame("1", "tools/list", `"cursor":7`),
	} {
		if got := exchange(t, s, frame)[0]; !strings.Contains(got, "-32602") {
			t.Error(frame, got)
		}
	}
	if got := exchange(t, s, modernFrame("1", "tools/list", `"cursor":null`))[0]; !strings.Contains(
		got, `"tools"`) {
		t.Error(got)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(`"`+newCursor("tools", 7)+`"`, uint64(7))
	f.Add(`"AAAAAAA"`, uint64(0))
	f.Fuzz(func(t *testing.T, raw string, n uint64) {
		if jsonrpc.Valid([]byte(raw)) == nil && strings.TrimSpace(raw) == raw {
			_, _ = cursorNumber("tools", jsonrpc.Raw(raw))
		}
		if got, err := cursorNumber("tools", jsonrpc.Raw(`"`+newCursor("tools", n)+`"`)); got != n ||
			err != nil {
			t.Errorf("%d: %d %v", n, got, err)
		}
		if _, err := cursorNumber("prompts", jsonrpc.Raw(`"`+newCursor("tools", n)+`"`)); err == nil {
			t.Error("a cursor of another list is accepted")
		}
	})
}

// TestCancelled cancels a call: its context ends, and there is no answer.
func TestCancelled(t *testing.T) {
	s := calculator(nil)
	ended := make(chan error, 1)
	AddTool(s, Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		// A context derived from it must end as well.
		sub, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		<-sub.Done()
		ended <- sub.Err()
		return "", sub.Err()
	})
	got := exchange(t, s, modernFrame("7", "tools/call", `"name":"wait"`),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"x"}}`)
	if err := <-ended; !errors.Is(err, context.Canceled) || len(got) != 0 {
		t.Error(err, got)
	}
}

type saysNothing struct{}

func (saysNothing) MarshalJSON() ([]byte, error) { return []byte(`{"x":1}`), nil }

// A type that says nothing has no output schema.
func TestNoOutputSchema(t *testing.T) {
	s := NewServer("x", "1", nil)
	AddTool(s, Tool{Name: "a"}, func(context.Context, struct{}) (saysNothing, error) {
		return saysNothing{}, nil
	})
	AddTool(s, Tool{Name: "b"}, func(context.Context, struct{}) (json.RawMessage, error) {
		return json.RawMessage(`{"a":1}`), nil
	})
	got := sendModern(t, s, canNothing, "tools/list", `{}`).raw
	if strings.Contains(got, "outputSchema") {
		t.Error(got)
	}
	if got := callTool(t, s, "b", "{}"); !strings.Contains(got, `"structuredContent":{"a":1}`) {
		t.Error(got)
	}
}

// A client that reads one page sees all tools of a large server.
func TestPageSize(t *testing.T) {
	s := NewServer("x", "1", nil)
	for i := range 1001 {
		AddTool(s, Tool{Name: fmt.Sprint("t", i)}, add)
	}
	if got := sendModern(t, s, canNothing, "tools/list",
		`{}`).raw; strings.Count(got, `"name":"t`) != 1000 || !strings.Contains(got, "nextCursor") {
		t.Error(strings.Count(got, `"name":"t`))
	}
}

// A ToolError keeps its blocks; what wraps one is a text.
func TestToolErrorKeepsItsResult(t *testing.T) {
	type out struct {
		N int `json:"n"`
	}
	s := NewServer("x", "1", nil)
	AddTool(s, Tool{Name: "e"}, func(context.Context, struct{}) (out, error) {
		return out{}, &ToolError{Result: &ToolResult{
			Content: []Content{Text("custom"), Text("two")}, StructuredContent: jsonrpc.Raw(`{"why":1}`),
			Meta: spec.Meta{spec.MetaServerInfo: jsonrpc.Raw(`{"name":"another"}`), "own": jsonrpc.Raw("1")},
		}}
	})
	got := sendModern(t, s, canNothing, "tools/call", `{"name":"e"}`).raw
	for _, want := range []string{
		`"content":[{"type":"text","text":"custom"},{"type":"text","text":"two"}]`, `"isError":true`,
		`"structuredContent":{"why":1}`, `"own":1`,
	} {
		if !strings.Contains(got, want) || strings.Contains(got, "another") {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	AddTool(s, Tool{Name: "none"}, func(context.Context, struct{}) (out, error) {
		return out{}, fmt.Errorf("wrapped: %w",
			&ToolError{Result: &ToolResult{Content: []Content{Text("one")}}})
	})
	if got := callTool(t, s, "none", "{}"); !strings.Contains(got,
		`"text":"wrapped: one"}],"isError":true`) {
		t.Error(got)
	}
}
