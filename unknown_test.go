package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type keeping struct {
	Name   string                 `json:"name"`
	Nested keepingNested          `json:"nested,omitzero"`
	Rest   map[string]jsonrpc.Raw `json:",embed"`
}

type keepingNested struct {
	A    int            `json:"a"`
	Rest map[string]int `json:",embed"`
}

// A map that is tagged embed keeps the members that its struct does not have.
func TestUnknownKept(t *testing.T) {
	m := farcall.NewMux()
	farcall.Handle(m, "keep", func(_ context.Context, p keeping) (keeping, error) { return p, nil })
	r := farcall.NewResponder(m, nil)
	for _, test := range []struct{ params, want string }{
		{`{"name":"x"}`, `"result":{"name":"x"}`},
		{`{"b":[1.0],"name":"x","a\u0062":null,"_meta":{}}`, `"result":{"name":"x","ab":null,"b":[1.0]}`},
		{`{"name":"x","nested":{"a":1,"b":2.0}}`, `"result":{"name":"x","nested":{"a":1,"b":2}}`},
		{`{"name":"x","b":1,"\u0062":2}`, `"data":{"member":"b","pointer":"/b","reason":"duplicate"}`},
		{
			`{"name":"x","nested":{"a":1,"b":"c"}}`,
			`"data":{"member":"nested","pointer":"/nested/b","reason":"wrong type","expected":"integer",` +
				`"got":"string"}`,
		},
		{
			`{"name":"x","nested":{"a":1,"b":null}}`,
			`"data":{"member":"nested","pointer":"/nested/b","reason":"wrong type","message":"property ` +
				`\"b\": got null, want integer"}`,
		},
		{`["x",{"a":1},2]`, `"data":{"member":2,"pointer":"/2","reason":"extra"}`},
	} {
		got := r.Respond(t.Context(), nil,
			[]byte(`{"jsonrpc":"2.0","id":1,"method":"keep","params":`+test.params+`}`), nil)
		if !strings.Contains(string(got), test.want) {
			t.Errorf("%s: got %s, want %s", test.params, got, test.want)
		}
	}
	for _, method := range m.Methods() {
		if !strings.Contains(string(method.Params), `"additionalProperties":{"type":"integer"}`) {
			t.Errorf("the schema is %s", method.Params)
		}
	}
	type counted struct {
		Rest map[string]int8 `json:",embed"`
	}
	v := counted{map[string]int8{"before": 1}}
	if err := (&farcall.Request{Params: jsonrpc.Raw(`{"a":1,"b":2}`)}).Bind(&v); err != nil ||
		!reflect.DeepEqual(v.Rest, map[string]int8{"a": 1, "b": 2}) {
		t.Errorf("got %v, %v", v.Rest, err)
	}
	if err := (&farcall.Request{Params: jsonrpc.Raw(`{"a":300}`)}).Bind(&v); !errors.Is(err,
		jsonrpc.InvalidParams) {
		t.Errorf("got %v", err)
	}
	for _, bad := range []any{
		&struct {
			Rest map[string]int `json:",unknown"`
		}{},
		&struct {
			Rest map[int]int `json:",embed"`
		}{},
		&struct {
			Rest struct{ A int } `json:",embed"`
		}{},
		&struct {
			Rest map[string]int `json:"rest,embed"`
		}{},
		&struct {
			One map[string]int `json:",embed"`
			Two map[string]int `json:",embed"`
		}{},
	} {
		if err := (&farcall.Request{}).Bind(bad); err == nil || errors.Is(err, jsonrpc.InvalidParams) {
			t.Errorf("%T: got %v", bad, err)
		}
	}
}

func TestUnknownIgnored(t *testing.T) {
	const call = `{"name":"x","tags":[],"new":1}`
	add := func(m *farcall.Mux, method string) {
		farcall.Handle(m, method, func(_ context.Context, p profile) (string, error) {
			return p.Name, nil
		})
	}
	m := farcall.NewMux()
	add(m, "one")
	add(m, "other")
	m.Handle("bound", farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
		var p profile
		return nil, req.Bind(&p)
	}))
	serve := func(method, params string) error {
		_, err := m.ServeRPC(t.Context(), &farcall.Request{Method: method, Params: jsonrpc.Raw(params)})
		return err
	}
	check := func(want map[string]bool) {
		t.Helper()
		for method, fits := range want {
			if err := serve(method, call); (err == nil) != fits ||
				err != nil && !errors.Is(err, jsonrpc.InvalidParams) {
				t.Errorf("%s: %v", method, err)
			}
		}
	}
	check(map[string]bool{"one": false, "other": false, "bound": false})
	m.IgnoreUnknown("one", "bound")
	check(map[string]bool{"one": true, "other": false, "bound": true})
	group := m.Group("a/").Group("b/")
	add(group, "one")
	add(group, "other")
	group.IgnoreUnknown("one")
	check(map[string]bool{"a/b/one": true, "a/b/other": false})
	group.IgnoreUnknown()
	add(group, "late")
	check(map[string]bool{"a/b/late": true, "a/b/other": true, "other": false})
	m.IgnoreUnknown()
	add(m, "late")
	check(map[string]bool{"one": true, "other": true, "bound": true, "late": true})
	for _, params := range []string{
		`{"name":1,"tags":[]}`, `{"tags":[],"new":1}`, `["x",[],0,1]`,
		`{"name":"x","tags":[null]}`,
	} {
		if err := serve("one", params); !errors.Is(err, jsonrpc.InvalidParams) {
			t.Errorf("%s: %v", params, err)
		}
	}
	if methods := m.Methods(); strings.Contains(string(methods[1].Params),
		`"additionalProperties":false`) {
		t.Errorf("the schema is %s", methods[1].Params)
	}
	defer func() {
		if recover() == nil {
			t.Error("a method that does not exist was taken")
		}
	}()
	m.IgnoreUnknown("none")
}

func ExampleMux_IgnoreUnknown() {
	mux := farcall.NewMux()
	type params struct {
		RootURI string `json:"rootUri"`
	}
	farcall.Handle(mux, "initialize", func(_ context.Context, p params) (string, error) {
		return p.RootURI, nil
	})
	mux.IgnoreUnknown("initialize") // editors send much more than a server needs

	root, err := mux.ServeRPC(context.Background(), &farcall.Request{
		Method: "initialize",
		Params: jsonrpc.Raw(`{"processId":1,"rootUri":"file:///project","trace":"off"}`),
	})
	fmt.Println(root, err)
	// Output: file:///project <nil>
}

// initializeParams is what a small language server wants to know of LSP's initialize.
type initializeParams struct {
	ProcessID    *int    `json:"processId"`
	RootURI      *string `json:"rootUri"`
	Capabilities struct {
		TextDocument struct {
			Completion struct {
				CompletionItem struct {
					SnippetSupport bool `json:"snippetSupport,omitzero"`
				} `json:"completionItem,omitzero"`
			} `json:"completion,omitzero"`
		} `json:"textDocument,omitzero"`
	} `json:"capabilities"`
	WorkspaceFolders []struct {
		URI  string `json:"uri"`
		Name string `json:"name"`
	} `json:"workspaceFolders,omitzero"`
}

// The initialize of an editor binds to a struct of what the server needs (LSP 3.17, Initialize
// Request).
func TestLanguageServerInitialize(t *testing.T) {
	request, err := os.ReadFile("testdata/lsp-initialize.json")
	if err != nil {
		t.Fatal(err)
	}
	var got initializeParams
	m := farcall.NewMux()
	farcall.Handle(m, "initialize",
		func(_ context.Context, p initializeParams) (map[string]any, error) {
			got = p
			return map[string]any{"capabilities": map[string]any{}}, nil
		})
	r := farcall.NewResponder(m, nil)
	if answer := r.Respond(t.Context(), nil, request, nil); !strings.Contains(string(answer),
		`"reason":"unknown"`) {
		t.Errorf("unknown members are taken: %s", answer)
	}
	m.IgnoreUnknown("initialize")
	if answer := r.Respond(t.Context(), nil, request,
		nil); string(answer) != `{"jsonrpc":"2.0","result":{"capabilities":{}},"id":0}` {
		t.Errorf("answered %s", answer)
	}
	if got.ProcessID == nil || *got.ProcessID != 4711 || got.RootURI == nil ||
		!got.Capabilities.TextDocument.Completion.CompletionItem.SnippetSupport ||
		len(got.WorkspaceFolders) != 1 || got.WorkspaceFolders[0].Name != "project" {
		t.Errorf("got %+v", got)
	}
}
