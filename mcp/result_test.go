package mcp

import (
	"context"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp/spec"
)

func resultServer() *Server {
	type out struct {
		N int `json:"n" max:"9"`
	}
	s := NewServer("calc", "1.0", nil)
	AddTool(s, Tool{Name: "all"}, func(_ context.Context, in addIn) (Result[out], error) {
		return Result[out]{
			out{in.A},
			[]Content{Text("short"), Text("and sweet")},
			spec.Meta{"example.com/label": "x"},
		}, nil
	})
	AddTool(s, Tool{Name: "text"}, func(context.Context, struct{}) (*Result[*out], error) {
		return &Result[*out]{Structured: &out{2}}, nil
	})
	AddTool(s, Tool{Name: "nil"}, func(context.Context, struct{}) (*Result[*out], error) {
		return nil, nil
	})
	AddTool(s, Tool{Name: "quiet"}, func(context.Context, struct{}) (Result[string], error) {
		return Result[string]{"s", []Content{}, nil}, nil
	})
	AddTool(s, Tool{Name: "any"}, func(context.Context, struct{}) (Result[any], error) {
		return Result[any]{Content: []Content{Text("c")}}, nil
	})
	AddTool(s, Tool{Name: "none"}, func(context.Context, struct{}) (Result[struct{}], error) {
		return Result[struct{}]{Content: []Content{Text("c")}}, nil
	})
	return s
}

// A tool returns structured content, content and _meta of its choice, and its schema is that of the
// type.
func TestResult(t *testing.T) {
	s := resultServer()
	for _, test := range []struct{ tool, arguments, want string }{
		{
			"all", `{"a":1,"b":0}`,
			`{"content":[{"type":"text","text":"short"},{"type":"text","text":"and sweet"}],` +
				`"structuredContent":{"n":1}}`,
		},
		{"all", `{"a":10,"b":0}`, `does not fit its output schema`},
		{"text", `{}`, `{"content":[{"type":"text","text":"{\"n\":2}"}],"structuredContent":{"n":2}}`},
		{"nil", `{}`, `{"content":[{"type":"text","text":"{\"n\":0}"}],"structuredContent":{"n":0}}`},
		{"quiet", `{}`, `{"content":[],"structuredContent":"s"}`},
		{"any", `{}`, `{"content":[{"type":"text","text":"c"}]}`},
		{"none", `{}`, `{"content":[{"type":"text","text":"c"}]}`},
	} {
		if got := callTool(t, s, test.tool, test.arguments); !strings.Contains(got, test.want) {
			t.Errorf("%s: got %s, want %s", test.tool, got, test.want)
		}
	}
	for name, want := range map[string]string{
		"all":   `{"type":"object","properties":{"n":{"type":"integer","maximum":9}},"required":["n"]}`,
		"quiet": `{"type":"string"}`, "any": "", "none": "",
	} {
		if tool, _ := s.tools.get([]byte(name)); string(tool.spec.OutputSchema) != want {
			t.Errorf("%s: the output schema is %s", name, tool.spec.OutputSchema)
		}
	}
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "has content twice") {
			t.Errorf("got %q", text)
		}
	}()
	AddTool(s, Tool{Name: "twice"}, func(context.Context, struct{}) (Result[Content], error) {
		return Result[Content]{}, nil
	})
}

// CallTool returns all of a result, in every revision as far as that has it.
func TestResultOfCall(t *testing.T) {
	for _, revision := range []string{modernName, legacyName, "2024-11-05"} {
		c := connected(t, resultServer(), &ClientOptions{Era: revision})
		type out struct{ N *int }
		r, err := CallTool[Result[map[string]int]](t.Context(), c, "all", addIn{A: 3})
		if err != nil || len(r.Content) != 2 || r.Content[1].Text != "and sweet" ||
			r.Meta["example.com/label"] != "x" {
			t.Errorf("%s: %+v, %v", revision, r, err)
		}
		if structured := revision != "2024-11-05"; (r.Structured["n"] == 3) != structured {
			t.Errorf("%s: %v", revision, r.Structured)
		}
		if r, err := CallTool[*Result[map[string]int]](t.Context(), c, "text", nil); err != nil ||
			r.Structured["n"] != 2 {
			t.Errorf("%s: %+v, %v", revision, r, err)
		}
		if r, err := CallTool[Result[out]](t.Context(), c, "none", nil); err != nil ||
			r.Structured.N != nil || len(r.Content) != 1 {
			t.Errorf("%s: %+v, %v", revision, r, err)
		}
	}
}
