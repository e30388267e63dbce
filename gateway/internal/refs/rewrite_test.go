package refs

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// TestDown has, for each place of the table, a message with a reference in it.
func TestDown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		part   Part
		method string
		in     string
		out    string // "": in
	}{
		{
			Result, "tools/list",
			`{"tools":[{"name":"x","title":"x","_meta":{"ui":{"resourceUri":"ui://g/v"},` +
				`"ui/resourceUri":"ui://g/v"}},{"name":"y"}]}`,
			`{"tools":[{"name":"a__x","title":"x","_meta":{"ui":{"resourceUri":"ui://a+/g/v"},` +
				`"ui/resourceUri":"ui://a+/g/v"}},{"name":"a__y"}]}`,
		},
		{
			Result, "tools/call",
			`{"content":[{"type":"text","text":"file:///x"},{"type":"resource_link","uri":"file:///x",` +
				`"name":"n"}]}`,
			`{"content":[{"type":"text","text":"file:///x"},{"type":"resource_link","uri":"a+file:///x",` +
				`"name":"n"}]}`,
		},
		{
			Result, "tools/call",
			`{"content":[{"resource":{"uri":"ui:\/\/x","text":"t"},"type":"resource"}]}`,
			`{"content":[{"resource":{"uri":"ui://a+/x","text":"t"},"type":"resource"}]}`,
		},
		{
			Result, "tools/call",
			`{"content":[],"structuredContent":{"uri":"file:///x","_meta":{"ui":{"resourceUri":"ui://x"}}}}`,
			"",
		},
		{
			Result, "tools/call",
			`{"content":[],"_meta":{"openai/outputTemplate":"ui://x",` +
				`"io.modelcontextprotocol/related-task":{"taskId":"1"}}}`,
			`{"content":[],"_meta":{"openai/outputTemplate":"ui://a+/x",` +
				`"io.modelcontextprotocol/related-task":{"taskId":"1"}}}`,
		},
		{
			Result, "tools/call", `{ "content" : [ { "\u0075ri" : "f:x" } ] }`,
			`{ "content" : [ { "\u0075ri" : "a+f:x" } ] }`,
		},
		{
			Result, "tools/call",
			`{"resultType":"input_required","inputRequests":{"k":{"method":"sampling/createMessage",` +
				`"params":{"messages":[{"role":"user",` +
				`"content":[{"type":"tool_result","toolUseId":"uri","content":[{"type":"resource_link",` +
				`"uri":"f:1"}]},{"type":"tool_use","name":"n","input":{"uri":"f:2"}}]}]}}},"requestState":"s"}`,
			`{"resultType":"input_required","inputRequests":{"k":{"method":"sampling/createMessage",` +
				`"params":{"messages":[{"role":"user",` +
				`"content":[{"type":"tool_result","toolUseId":"uri","content":[{"type":"resource_link",` +
				`"uri":"a+f:1"}]},{"type":"tool_use","name":"n","input":{"uri":"f:2"}}]}]}}},` +
				`"requestState":"s"}`,
		},
		{
			Result, "tools/call", `{"_meta":{"ui":{"domain":"x","csp":{"connectDomains":["https://x"]},` +
				`"resourceUri":"ui://x"}}}`,
			`{"_meta":{"ui":{"csp":{"connectDomains":["https://x"]},"resourceUri":"ui://a+/x"}}}`,
		},
		{
			Result, "tools/call",
			`{"_meta":{"ui":{"prefersBorder":true , "domain":"x" , "visibility":["app"]}}}`,
			`{"_meta":{"ui":{"prefersBorder":true  , "visibility":["app"]}}}`,
		},
		{Result, "tools/call", `{"_meta":{"ui":{"domain":"x"}}}`, `{"_meta":{"ui":{}}}`},
		{
			Result, "tools/call",
			`{"_meta":{"ui":{"domain":{"a":[1]},"domain":1,"x":2,"domain":3,"domain":4,"y":5}}}`,
			`{"_meta":{"ui":{"x":2,"y":5}}}`,
		},
		{
			Result, "prompts/list", `{"prompts":[{"name":"p"}],"nextCursor":"c"}`,
			`{"prompts":[{"name":"a__p"}],"nextCursor":"c"}`,
		},
		{
			Result, "prompts/get",
			`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"f:1"}}}]}`,
			`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a+f:1"}}}]}`,
		},
		{
			Result, "resources/list", `{"resources":[{"uri":"f:1","name":"f:1"},{"uri":"https://x"}]}`,
			`{"resources":[{"uri":"a+f:1","name":"f:1"},{"uri":"https://x"}]}`,
		},
		{
			Result, "resources/templates/list", `{"resourceTemplates":[{"uriTemplate":"{+u}"}]}`,
			`{"resourceTemplates":[{"uriTemplate":"a+{+u}"}]}`,
		},
		{
			Result, "resources/read",
			`{"contents":[{"uri":"f:1","text":"uri"},{"uri":"f:1/sub","_meta":{"ui":{"domain":"d"}}}]}`,
			`{"contents":[{"uri":"a+f:1","text":"uri"},{"uri":"a+f:1/sub","_meta":{"ui":{}}}]}`,
		},
		{ErrorData, "resources/read", `{"uri":"f:1"}`, `{"uri":"a+f:1"}`},
		{
			ErrorData, "tools/call",
			`{"uri":"f:1","elicitations":[{"elicitationId":"e","url":"https://x"}]}`,
			`{"uri":"f:1","elicitations":[{"elicitationId":"a+e","url":"https://x"}]}`,
		},
		{Params, "notifications/resources/updated", `{"uri":"f:1/sub"}`, `{"uri":"a+f:1/sub"}`},
		{Params, "notifications/message", `{"logger":"l","data":{"uri":"f:1"}}`, ""},
		{
			Params, "elicitation/create", `{"mode":"url","elicitationId":"e","url":"https://x"}`,
			`{"mode":"url","elicitationId":"a+e","url":"https://x"}`,
		},
		{
			Params, "notifications/elicitation/complete", `{"elicitationId":"e"}`,
			`{"elicitationId":"a+e"}`,
		},
		{
			Params, "sampling/createMessage",
			`{"messages":[{"content":{"type":"tool_result","content":[{"uri":"f:1"}]}}],` +
				`"tools":[{"name":"t"}]}`,
			`{"messages":[{"content":{"type":"tool_result","content":[{"uri":"a+f:1"}]}}],` +
				`"tools":[{"name":"t"}]}`,
		},
		{
			Result, "tasks/get", `{"taskId":"t","result":{"content":[{"uri":"f:1"}]}}`,
			`{"taskId":"t","result":{"content":[{"uri":"a+f:1"}]}}`,
		},
		{
			Result, "skills/list",
			`{"skills":[{"uri":"skill://g/SKILL.md","resources":[{"uri":"skill://g/x","digest":"d"}],` +
				`"frontmatter":{"uri":"f:1"}},{"resources":"dynamic"}]}`,
			`{"skills":[{"uri":"skill://a+/g/SKILL.md","resources":[{"uri":"skill://a+/g/x",` +
				`"digest":"d"}],"frontmatter":{"uri":"f:1"}},{"resources":"dynamic"}]}`,
		},
		{Result, "vendor/x", `{"uri":"f:1","content":[{"uri":"f:1"}]}`, ""},
		{
			Result, "tools/call",
			`{"content":[{"uri":1,"resource":"f:1","content":{"uri":"f:1"}}],"_meta":[]}`, "",
		},
		{Result, "tools/call", `[]`, ""},
		{Result, "tools/call", `{"content":[{"uri":"f:1"}`, ""}, // not JSON: stays as it is
		{Result, "tools/call", ``, ""},
	} {
		want := test.out
		if want == "" {
			want = test.in
		}
		got := string(server("a").Down(test.part, test.method, jsonrpc.Raw(test.in)))
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", test.method, got, want)
		}
	}
}

func TestUp(t *testing.T) {
	t.Parallel()
	for _, test := range [][3]string{
		{
			"tools/call",
			`{"name":"a__x","arguments":{"a":["a+f:1",{"b":"ui://a+/x"},"see a+f:1","b+f:1","a+b"],` +
				`"a+f:1":1}}`,
			`{"name":"x","arguments":{"a":["f:1",{"b":"ui://x"},"see a+f:1","b+f:1","a+b"],"a+f:1":1}}`,
		},
		{
			"tools/call",
			`{"name":"b__x","inputResponses":{"k":{"role":"assistant","content":{"type":"resource",` +
				`"resource":{"uri":"a+f:1"}}}}}`,
			`{"name":"b__x","inputResponses":{"k":{"role":"assistant","content":{"type":"resource",` +
				`"resource":{"uri":"f:1"}}}}}`,
		},
		{
			"tools/call", `{"inputResponses":{"k":{"content":{"uri":"a+f:1"},"action":"accept"}}}`,
			`{"inputResponses":{"k":{"content":{"uri":"a+f:1"},"action":"accept"}}}`,
		},
		{"resources/read", `{"uri":"ui://a+/x"}`, `{"uri":"ui://x"}`},
		{
			"completion/complete",
			`{"ref":{"type":"ref/resource","uri":"a+f:{x}"},"argument":{"name":"x","value":"1"},` +
				`"context":{"arguments":{"y":"a+f:2"}}}`,
			`{"ref":{"type":"ref/resource","uri":"f:{x}"},"argument":{"name":"x","value":"1"},` +
				`"context":{"arguments":{"y":"f:2"}}}`,
		},
		{
			"subscriptions/listen", `{"notifications":{"resourceSubscriptions":["a+f:1","b+f:1"]}}`,
			`{"notifications":{"resourceSubscriptions":["f:1","b+f:1"]}}`,
		},
		{"roots/list", `{}`, `{}`},
	} {
		if got := string(server("a").Up(Params, test[0], jsonrpc.Raw(test[1]))); got != test[2] {
			t.Errorf("%s:\n got %s\nwant %s", test[0], got, test[2])
		}
	}
	roots := `{"roots":[{"uri":"a+file:///home"}]}`
	if got := string(server("a").Up(Result, "roots/list", jsonrpc.Raw(roots))); got != roots {
		t.Errorf("the client's roots are changed: %s", got)
	}
	opaque := &Server{Name: "a", Label: "a", Opaque: true}
	args := `{"arguments":{"u":"a+f:1"}}`
	if got := string(opaque.Up(Params, "tools/call", jsonrpc.Raw(args))); got != args {
		t.Errorf("opaque arguments are changed: %s", got)
	}
}

func TestDownItem(t *testing.T) {
	t.Parallel()
	got := string(server("a").DownItem("tools/list",
		jsonrpc.Raw(`{"name":"x","_meta":{"ui":{"resourceUri":"ui://v"}}}`)))
	if want := `{"name":"a__x","_meta":{"ui":{"resourceUri":"ui://a+/v"}}}`; got != want {
		t.Errorf("got %s", got)
	}
}

// TestDeep: a shape that contains itself ends.
func TestDeep(t *testing.T) {
	t.Parallel()
	in := strings.Repeat(`{"content":[`, 5000) + `{"uri":"f:1"}` + strings.Repeat(`]}`, 5000)
	if got := string(server("a").Down(Result, "tools/call", jsonrpc.Raw(in))); got != in {
		t.Error("what is deeper than any message is rewritten")
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add("tools/call",
		[]byte(`{"content":[{"type":"resource_link","uri":"ui://x"}],"_meta":{"ui":{"domain":"x",`+
			`"resourceUri":"ui://x"}}}`))
	f.Add("tools/list", []byte(`{"tools":[{"name":"x\n"}]}`))
	f.Add("tools/call",
		[]byte(`{"content":[{"uri":"\ud800","\u0075ri":"ui:\/\/"}],`+
			`"inputRequests":{"":{"params":{"messages":[{"content":[]}]}}}}`))
	f.Add("resources/read", []byte(`{"contents":[{"uri":"a+f:1"},{"uri":"https://x"}]}`))
	f.Add("tasks/get", []byte(`{"result":{"content":[{"content":[{"uri":"f"}]}]}}`))
	f.Fuzz(func(t *testing.T, method string, in []byte) {
		before := string(in)
		_, fault := scan.Text(in, 512)
		a, b := server("a"), server("b")
		for _, part := range []Part{Params, Result, ErrorData} {
			down, up := a.Down(part, method, in), a.Up(part, method, in)
			if string(in) != before {
				t.Fatal("the message is changed")
			}
			if fault != scan.OK {
				continue // must only not panic
			}
			for _, out := range []jsonrpc.Raw{down, up} {
				if _, f := scan.Text(out, 512); f != scan.OK {
					t.Fatalf("%s of %s is not JSON: %s", method, in, out)
				}
			}
			// What is qualified is not b's, whatever a sent.
			if again := b.Up(part, method, down); part == Params && string(again) != string(down) &&
				string(b.Up(part, method, in)) == before {
				t.Fatalf("%s is taken for b's: %s", down, again)
			}
		}
	})
}

// answer is one with as many links.
func answer(links int) jsonrpc.Raw {
	block := `{"type":"resource_link","uri":"file:///home/user/project/main.go","name":"main.go",` +
		`"mimeType":"text/plain"},`
	return jsonrpc.Raw(`{"resultType":"complete","content":[` + strings.Repeat(block, links) +
		`{"type":"text","text":"` + strings.Repeat("All is well. ", 20) + `"}]}`)
}

func BenchmarkDown(b *testing.B) {
	s := server("files")
	for _, size := range []struct {
		name string
		in   jsonrpc.Raw
	}{
		{"none", answer(0)},
		{"ten", answer(10)},
		{
			"page",
			jsonrpc.Raw(
				`{"contents":[{"uri":"ui://x","text":"` + strings.Repeat("<p>x</p>", 50_000) + `"}]}`),
		},
	} {
		b.Run(size.name, func(b *testing.B) {
			b.SetBytes(int64(len(size.in)))
			b.ReportAllocs()
			for b.Loop() {
				s.Down(Result, "tools/call", size.in)
			}
		})
	}
}

func TestAllocations(t *testing.T) {
	s, none, ten := server("files"), answer(0), answer(10)
	s.Down(Result, "tools/call", none)
	if n := testing.AllocsPerRun(100, func() { s.Down(Result, "tools/call", none) }); n > 0 {
		t.Errorf("%v allocations without a reference", n)
	}
	if n := testing.AllocsPerRun(100, func() { s.Down(Result, "tools/call", ten) }); n > 1 {
		t.Errorf("%v allocations for ten references", n)
	}
}
