package mcp

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp/spec"
)

func library(o *ServerOptions) *Server {
	s := NewServer("calc", "1.0", o)
	s.AddResource(Resource{URI: "test://text", Name: "text", MIMEType: "text/plain"},
		func(_ context.Context, uri string) ([]ResourceContents, error) {
			return []ResourceContents{
				{Text: "hello " + uri}, {URI: "test://other", MIMEType: "image/png", Blob: []byte{}},
			}, nil
		})
	s.AddResource(Resource{URI: "test://gone", Name: "gone"},
		func(context.Context, string) ([]ResourceContents, error) {
			return nil, fmt.Errorf("wrapped: %w", ErrNotFound)
		})
	s.AddResource(Resource{URI: "test://broken", Name: "broken"},
		func(context.Context, string) ([]ResourceContents, error) {
			return nil, fmt.Errorf("private: %s", "secret")
		})
	s.AddTemplate(ResourceTemplate{
		URITemplate: "test://item/{id}{?lang}", Name: "item", MIMEType: "text/plain",
	}, func(_ context.Context, uri string, vars Vars) ([]ResourceContents, error) {
		if vars.Get("id") == "0" {
			return nil, fs.ErrNotExist
		}
		return []ResourceContents{
			{Text: fmt.Sprint(vars.Get("id"), "/", vars.Get("lang"), len(vars.values))},
		}, nil
	})
	s.AddTemplate(ResourceTemplate{URITemplate: "test://item/{+rest}", Name: "rest"},
		func(context.Context, string, Vars) ([]ResourceContents, error) {
			return []ResourceContents{{Text: "rest"}}, nil
		})
	s.AddPrompt(Prompt{
		Name: "greet", Description: "Greets",
		Arguments: []spec.PromptArgument{{Name: "who", Required: true}, {Name: "how"}},
	},
		func(_ context.Context, args map[string]string) (*PromptResult, error) {
			return &PromptResult{
				Description: "d", Messages: []PromptMessage{{Role: "user", Content: Text("hi " + args["who"])}},
			}, nil
		})
	s.AddPrompt(Prompt{Name: "none"}, func(context.Context, map[string]string) (*PromptResult, error) {
		return nil, nil
	})
	return s
}

func TestResources(t *testing.T) {
	const prefix = `{"resultType":"complete",` + serverMeta + `,"ttlMs":0,"cacheScope":"private",`
	read := func(uri string) string { return fmt.Sprintf(`"uri":%q`, uri) }
	notFound := func(uri string) string {
		return `{"code":-32602,"message":"Resource not found","data":{"uri":"` + uri + `"}}`
	}
	for _, tt := range []struct{ method, members, want string }{
		{
			"resources/list", ``,
			prefix +
				`"resources":[{"uri":"test://text","name":"text","mimeType":"text/plain"},` +
				`{"uri":"test://gone","name":"gone"},{"uri":"test://broken","name":"broken"}]}`,
		},
		{
			"resources/templates/list", ``,
			prefix +
				`"resourceTemplates":[{"uriTemplate":"test://item/{id}{?lang}","name":"item",` +
				`"mimeType":"text/plain"},{"uriTemplate":"test://item/{+rest}","name":"rest"}]}`,
		},
		{
			"resources/read", read("test://text"),
			prefix +
				`"contents":[{"uri":"test://text","mimeType":"text/plain","text":"hello test://text"},` +
				`{"uri":"test://other","mimeType":"image/png","blob":""}]}`,
		},
		{
			"resources/read", read("test://item/7?lang=en"),
			prefix + `"contents":[{"uri":"test://item/7?lang=en","mimeType":"text/plain","text":"7/en2"}]}`,
		},
		{
			"resources/read", read("test://item/7"),
			prefix + `"contents":[{"uri":"test://item/7","mimeType":"text/plain","text":"7/1"}]}`,
		},
		{
			"resources/read", read("test://item/a/b"),
			prefix + `"contents":[{"uri":"test://item/a/b","text":"rest"}]}`,
		},
		{"resources/read", read("test://nowhere"), notFound("test://nowhere")},
		{"resources/read", read("test://gone"), notFound("test://gone")},
		{"resources/read", read("test://item/0"), notFound("test://item/0")},
		{"resources/read", read("test://broken"), `{"code":-32603,"message":"Internal error"}`},
		{
			"resources/read", ``,
			`{"code":-32602,"message":"Invalid params: params must have a member \"uri\", a string"}`,
		},
		{
			"resources/read", `"uri":7`,
			`{"code":-32602,"message":"Invalid params: the member \"uri\" of params must be a string"}`,
		},
	} {
		got := exchange(t, library(nil), modernFrame("1", tt.method, tt.members))[0]
		key := "result"
		if strings.HasPrefix(tt.want, `{"code"`) {
			key = "error"
		}
		wantJSON(t, tt.method+" "+tt.members, got, `{"jsonrpc":"2.0","id":1,"`+key+`":`+tt.want+`}`)
	}
}

func TestResourceNotFoundLegacy(t *testing.T) {
	for _, revision := range legacyNames {
		got := exchange(t, library(nil), hello(revision),
			legacyFrame("1", "resources/read", `{"uri":"test://nowhere"}`))
		wantJSON(t, revision, got[1],
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"Resource not found",`+
				`"data":{"uri":"test://nowhere"}}}`)
	}
}

func TestPrompts(t *testing.T) {
	const prefix = `{"resultType":"complete",` + serverMeta
	for _, tt := range []struct{ method, members, want string }{
		{
			"prompts/list", ``,
			prefix +
				`,"ttlMs":0,"cacheScope":"private","prompts":[{"name":"greet","description":"Greets",` +
				`"arguments":[{"name":"who","required":true},{"name":"how"}]},{"name":"none"}]}`,
		},
		{
			"prompts/get", `"name":"greet","arguments":{"who":"\u0041"}`,
			prefix +
				`,"description":"d","messages":[{"role":"user","content":{"type":"text","text":"hi A"}}]}`,
		},
		{"prompts/get", `"name":"none"`, prefix + `,"messages":[]}`},
		{"prompts/get", `"name":"none","arguments":null`, prefix + `,"messages":[]}`},
		{
			"prompts/get", `"name":"greet"`,
			`{"code":-32602,"message":"Invalid params: the prompt greet requires the arguments who"}`,
		},
		{
			"prompts/get", `"name":"greet","arguments":{"who":1}`,
			`{"code":-32602,"message":"Invalid params: the argument \"who\" must be a string"}`,
		},
		{
			"prompts/get", `"name":"greet","arguments":[]`,
			`{"code":-32602,"message":"Invalid params: the member \"arguments\" must be an object ` +
				`of strings"}`,
		},
		{"prompts/get", `"name":"x"`, `{"code":-32602,"message":"Invalid params: unknown prompt: x"}`},
	} {
		got := exchange(t, library(nil), modernFrame("1", tt.method, tt.members))[0]
		key := "result"
		if strings.HasPrefix(tt.want, `{"code"`) {
			key = "error"
		}
		wantJSON(t, tt.method+" "+tt.members, got, `{"jsonrpc":"2.0","id":1,"`+key+`":`+tt.want+`}`)
	}
}

func TestComplete(t *testing.T) {
	s := library(
		&ServerOptions{Complete: func(
			_ context.Context, p *spec.CompleteRequestParams,
		) (*spec.CompleteResult, error) {
			switch {
			case p.Argument.Value == "many":
				return &spec.CompleteResult{Completion: spec.Completion{Values: make([]string, 101)}}, nil
			case p.Argument.Value == "none":
				return nil, nil
			case p.Context != nil:
				return &spec.CompleteResult{
					Completion: spec.Completion{Values: []string{p.Context.Arguments["who"]}},
				}, nil
			}
			return &spec.CompleteResult{
				Completion: spec.Completion{Values: []string{p.Ref.Name + p.Ref.URI + p.Argument.Name}},
			}, nil
		}})
	argument := func(value string) string {
		return `"argument":{"name":"how","value":"` + value + `"}`
	}
	for _, tt := range []struct{ members, want string }{
		{
			`"ref":{"type":"ref/prompt","name":"greet"},` + argument(""),
			`"completion":{"values":["greethow"]}`,
		},
		{
			`"ref":{"type":"ref/resource","uri":"test://item/{id}{?lang}"},` + argument(""),
			`"values":["test://item/{id}{?lang}how"]`,
		},
		{
			`"ref":{"type":"ref/resource","uri":"test://text"},` + argument(""),
			`"values":["test://texthow"]`,
		},
		{
			`"ref":{"type":"ref/prompt","name":"greet"},"context":{"arguments":{"who":"Ann"}},` +
				argument(""), `"values":["Ann"]`,
		},
		{`"ref":{"type":"ref/prompt","name":"greet"},` + argument("many"), `"total":101,"hasMore":true`},
		{`"ref":{"type":"ref/prompt","name":"greet"},` + argument("none"), `"completion":{"values":[]}`},
		{`"ref":{"type":"ref/prompt","name":"x"},` + argument(""), `-32602`},
		{`"ref":{"type":"ref/resource","uri":"test://nowhere"},` + argument(""), `-32602`},
		{`"ref":{"type":"ref/tool","name":"x"},` + argument(""), `-32602`},
		{`"ref":{"type":"ref/prompt","name":"greet"}`, `-32602`},
		{``, `-32602`},
	} {
		if got := exchange(t, s,
			modernFrame("1", "completion/complete", tt.members))[0]; !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.members, got, tt.want)
		}
	}
	if got := exchange(t, s, modernFrame("1", "server/discover", ""))[0]; !strings.Contains(got,
		`"completions":{}`) ||
		!strings.Contains(got, `"resources":{"subscribe":true,"listChanged":true}`) {
		t.Error(got)
	}
}

// Variables with several values, which were empty once.
func TestTemplateLists(t *testing.T) {
	s := NewServer("x", "1", nil)
	s.AddTemplate(ResourceTemplate{URITemplate: "repo://{owner}/contents{/path*}{?q*,at}", Name: "x"},
		func(_ context.Context, _ string, vars Vars) ([]ResourceContents, error) {
			return []ResourceContents{
				{
					Text: fmt.Sprint(vars.Get("owner"), "|", vars.Get("path"), "|", vars.List("q"), "|",
						vars.Get("at"), vars.Has("at")),
				},
			}, nil
		})
	for uri, want := range map[string]string{
		"repo://o/contents/a/b":             "o|a/b|[]|false",
		"repo://ö ö/contents":               "ö ö||[]|false",
		"repo://o/contents?at=&q=1&q=2%263": "o||[1 2&3]|true",
	} {
		if got := sendModern(t, s, canNothing, "resources/read",
			fmt.Sprintf(`{"uri":%q}`, uri)); !strings.Contains(got.raw, fmt.Sprintf(`"text":%q`, want)) {
			t.Errorf("%s: %s", uri, got.raw)
		}
	}
}
