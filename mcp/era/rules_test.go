package era

import (
	"errors"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// ruleCases has a case or more for each rule. A want that begins with "!" is
// part of an error.
var ruleCases = []struct {
	kind             Kind
	method, from, to string
	in, want         string
}{
	// 2026-07-28 -> 2025-11-25
	{
		Params, "server/discover", "2026-07-28", "2025-11-25", `{}`,
		`!server/discover: MCP 2025-11-25 has no such method`,
	},
	{Params, "subscriptions/listen", "2026-07-28", "2024-11-05", `{}`, `!MCP 2024-11-05`},
	{Params, "tasks/update", "2026-07-28", "2025-11-25", `{}`, `!tasks/update`},
	{
		Notification, "notifications/subscriptions/acknowledged", "2026-07-28", "2025-11-25", `{}`,
		`!no such method`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-11-25", `{"resultType":"complete","content":[]}`,
		`{"content":[]}`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-11-25",
		`{ "content" : [ ] , "resultType" : "complete" }`, `{ "content" : [ ] }`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-11-25", `{"a":1,"resultType":"complete","b":1.0}`,
		`{"a":1,"b":1.0}`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-11-25", `{"\u0072esultType":"complete","b":1}`,
		`{"b":1}`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-11-25",
		`{"resultType":"input_required","requestState":"x"}`, `!has no result of type "input_required"`,
	},
	{
		Result, "custom/thing", "2026-07-28", "2025-11-25",
		`{"resultType":"complete","icons":[{}],"_meta":{"io.modelcontextprotocol/serverInfo":{},"x":1}}`,
		`{"icons":[{}],"_meta":{"x":1}}`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-11-25",
		`{"resultType":"task","taskId":"t","status":"working","createdAt":"c","lastUpdatedAt":"l",` +
			`"ttlMs":60,"pollIntervalMs":5,"_meta":{"x":1}}`,
		`{"task":{"taskId":"t","status":"working","createdAt":"c","lastUpdatedAt":"l","ttl":60,` +
			`"pollInterval":5},"_meta":{"x":1}}`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-06-18",
		`{"resultType":"task","taskId":"t","status":"working"}`, `!has no tasks`,
	},
	{
		Result, "tasks/get", "2026-07-28", "2025-11-25",
		`{"resultType":"complete","taskId":"t","status":"completed","ttlMs":null,` +
			`"result":{"content":[]}}`,
		`{"taskId":"t","status":"completed","ttl":null}`,
	},
	{
		Result, "tasks/list", "2026-07-28", "2025-11-25", `{"tasks":[{"taskId":"t","ttlMs":1}]}`,
		`{"tasks":[{"taskId":"t","ttl":1}]}`,
	},
	{
		Notification, "notifications/tasks/status", "2026-07-28", "2025-11-25",
		`{"taskId":"t","ttlMs":1,"error":{}}`, `{"taskId":"t","ttl":1}`,
	},
	{
		Params, "tools/call", "2026-07-28", "2025-11-25",
		`{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol\/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"debug",` +
			`"progressToken":7},"arguments":{"b":1e400}}`,
		`{"name":"a","_meta":{"progressToken":7},"arguments":{"b":1e400}}`,
	},
	{
		Params, "x/y", "2026-07-28", "2025-11-25",
		`{"_meta":{"io.modelcontextprotocol/clientInfo":{}},"z":1}`, `{"z":1}`,
	},
	{
		Params, "tools/call", "2026-07-28", "2025-11-25", `{"_meta":{},"name":"a"}`,
		`{"_meta":{},"name":"a"}`,
	},
	{
		Notification, "notifications/tools/list_changed", "2026-07-28", "2025-11-25",
		`{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`, `{}`,
	},
	{
		Params, "tools/call", "2026-07-28", "2025-11-25", `{"name":"a","requestState":"s"}`,
		`!ask the server again`,
	},
	{
		Params, "resources/read", "2026-07-28", "2025-11-25", `{"uri":"a","inputResponses":{}}`,
		`!ask the server again`,
	},
	{
		Result, "tools/list", "2026-07-28", "2025-11-25",
		`{"tools":[],"ttlMs":5,"cacheScope":"public","resultType":"complete"}`, `{"tools":[]}`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-11-25", `{"content":[],"structuredContent":[1,"a"]}`,
		`{"content":[{"type":"text","text":"[1,\"a\"]"}]}`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-11-25", `{"structuredContent":null}`,
		`{"content":[{"type":"text","text":"null"}]}`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-11-25",
		`{"content":[{"type":"text","text":"7"}],"structuredContent":7}`,
		`{"content":[{"type":"text","text":"7"}]}`,
	},
	{
		Result, "tools/call", "2026-07-28", "2025-11-25", `{"content":[],"structuredContent":{"a":1}}`,
		`{"content":[],"structuredContent":{"a":1}}`,
	},
	{
		Params, "sampling/createMessage", "2026-07-28", "2025-11-25",
		`{"messages":[{"role":"user","content":[{"type":"tool_result","toolUseId":"i","content":[],` +
			`"structuredContent":1}]}]}`,
		`{"messages":[{"role":"user","content":[{"type":"tool_result","toolUseId":"i",` +
			`"content":[{"type":"text","text":"1"}]}]}]}`,
	},
	{
		Result, "tools/list", "2026-07-28", "2025-11-25",
		`{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"x":true,"y":false,` +
			`"z":{}}},"outputSchema":{"type":"array"}},{"name":"b","outputSchema":{"type":"object",` +
			`"properties":{"x":true}}},{"name":"c","outputSchema":{"$ref":"#"}}]}`,
		`{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"x":{},"y":{"not":{}},` +
			`"z":{}}}},{"name":"b","outputSchema":{"type":"object","properties":{"x":{}}}},{"name":"c"}]}`,
	},
	{
		Result, "initialize", "2026-07-28", "2025-11-25",
		`{"capabilities":{"tools":{},"extensions":{"a/b":{}}}}`, `{"capabilities":{"tools":{}}}`,
	},
	{
		Params, "initialize", "2026-07-28", "2025-11-25",
		`{"capabilities":{"extensions":{"a/b":{},"io.modelcontextprotocol/tasks":{}}}}`,
		`{"capabilities":{"extensions":{"a/b":{}}}}`,
	},
	{
		Params, "elicitation/create", "2026-07-28", "2025-11-25",
		`{"mode":"url","message":"m","url":"https://a.example"}`,
		`{"mode":"url","message":"m","url":"https://a.example",` +
			`"elicitationId":"0f99c5abedabd9ed06155ca6ea310aae"}`,
	},
	{
		Params, "elicitation/create", "2026-07-28", "2025-11-25", `{"mode":"url","elicitationId":"mine"}`,
		`{"mode":"url","elicitationId":"mine"}`,
	},

	// 2025-11-25 -> 2026-07-28
	{
		Result, "tools/call", "2025-11-25", "2026-07-28", `{"content":[]}`,
		`{"content":[],"resultType":"complete"}`,
	},
	{Result, "tools/call", "2025-11-25", "2026-07-28", `{}`, `{"resultType":"complete"}`},
	{
		Result, "tools/list", "2024-11-05", "2026-07-28", `{"tools":[]}`,
		`{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`,
	},
	{
		Result, "tools/call", "2025-11-25", "2026-07-28",
		`{"task":{"taskId":"t","status":"working","ttl":60,"pollInterval":5},"_meta":{"x":1}}`,
		`{"taskId":"t","status":"working","ttlMs":60,"pollIntervalMs":5,"_meta":{"x":1},` +
			`"resultType":"task"}`,
	},
	{
		Result, "tasks/get", "2025-11-25", "2026-07-28", `{"taskId":"t","ttl":1}`,
		`{"taskId":"t","ttlMs":1,"resultType":"complete"}`,
	},
	{
		Result, "elicitation/create", "2025-11-25", "2026-07-28", `{"action":"cancel"}`,
		`{"action":"cancel"}`,
	},
	{Result, "custom/thing", "2025-11-25", "2026-07-28", `{"a":1}`, `{"a":1}`},
	{Params, "ping", "2025-11-25", "2026-07-28", `{}`, `{}`},

	// 2025-11-25 -> 2025-06-18
	{
		Params, "tasks/get", "2025-11-25", "2025-06-18", `{}`,
		`!tasks/get: MCP 2025-06-18 has no such method`,
	},
	{Notification, "notifications/tasks/status", "2025-11-25", "2025-06-18", `{}`, `!no such method`},
	{
		Notification, "notifications/elicitation/complete", "2026-07-28", "2025-06-18", `{}`,
		`!no such method`,
	},
	{
		Result, "tools/list", "2025-11-25", "2025-06-18",
		`{"tools":[{"icons":[{"src":"a"}],"name":"a","execution":{"taskSupport":"optional"}},` +
			`{"name":"b"}]}`, `{"tools":[{"name":"a"},{"name":"b"}]}`,
	},
	{
		Result, "prompts/list", "2025-11-25", "2025-06-18", `{"prompts":[{"name":"a","icons":[]}]}`,
		`{"prompts":[{"name":"a"}]}`,
	},
	{
		Result, "resources/list", "2025-11-25", "2025-06-18", `{"resources":[{"name":"a","icons":[]}]}`,
		`{"resources":[{"name":"a"}]}`,
	},
	{
		Result, "resources/templates/list", "2025-11-25", "2025-06-18",
		`{"resourceTemplates":[{"name":"a","icons":[]}]}`, `{"resourceTemplates":[{"name":"a"}]}`,
	},
	{
		Result, "tools/call", "2025-11-25", "2025-06-18",
		`{"content":[{"type":"resource_link","icons":[]},{"type":"new","icons":[]}]}`,
		`{"content":[{"type":"resource_link"},{"type":"new","icons":[]}]}`,
	},
	{
		Params, "initialize", "2025-11-25", "2025-06-18",
		`{"clientInfo":{"name":"n","description":"d","websiteUrl":"w","icons":[],"title":"t"}}`,
		`{"clientInfo":{"name":"n","title":"t"}}`,
	},
	{
		Params, "tools/call", "2025-11-25", "2025-06-18",
		`{"name":"a","task":{"ttl":1},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}`,
		`{"name":"a"}`,
	},
	{
		Params, "initialize", "2025-11-25", "2025-06-18",
		`{"capabilities":{"tasks":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},` +
			`"url":{}}}}`, `{"capabilities":{"sampling":{},"elicitation":{}}}`,
	},
	{
		Params, "initialize", "2025-11-25", "2025-06-18",
		`{"capabilities":{"elicitation":{"url":{}},"roots":{}}}`, `{"capabilities":{"roots":{}}}`,
	},
	{
		Params, "sampling/createMessage", "2025-11-25", "2025-06-18",
		`{"toolChoice":{"mode":"required"},"tools":[]}`, `!toolChoice`,
	},
	{
		Params, "sampling/createMessage", "2025-11-25", "2025-06-18",
		`{"tools":[{"name":"a"}],"toolChoice":{"mode":"auto"},"maxTokens":1,"messages":[` +
			`{"role":"user","content":{"type":"text","text":"q"},"_meta":{}},` +
			`{"role":"assistant","content":[{"type":"text","text":"let me see"},{"type":"tool_use",` +
			`"id":"c1","name":"a","input":{"b":1}}]},` +
			`{"role":"user","content":[{"type":"tool_result","toolUseId":"c1","content":[{"type":"text",` +
			`"text":"rain"},{"type":"image","data":"AAAA","mimeType":"image/png"}]}]},` +
			`{"role":"user","content":[]}]}`,
		`{"maxTokens":1,"messages":[` +
			`{"role":"user","content":{"type":"text","text":"q"}},` +
			`{"role":"assistant","content":{"type":"text","text":"let me see"}},{"role":"assistant",` +
			`"content":{"type":"text","text":"[tool call c1: a {\"b\":1}]"}},` +
			`{"role":"user","content":{"type":"text","text":"[result of tool call c1]\nrain\n[image: ` +
			`image/png, 3 bytes]"}},` +
			`{"role":"user","content":{"type":"text","text":""}}]}`,
	},
	{
		Result, "sampling/createMessage", "2025-11-25", "2025-06-18",
		`{"model":"m","content":[{"type":"image","data":"","mimeType":"i"}]}`,
		`{"model":"m","content":{"type":"image","data":"","mimeType":"i"}}`,
	},
	{
		Result, "sampling/createMessage", "2025-11-25", "2025-06-18",
		`{"content":[{"type":"text","text":"a"},{"type":"tool_use","id":"1","name":"n","input":{}}]}`,
		`{"content":{"type":"text","text":"a\n[tool call 1: n {}]"}}`,
	},
	{
		Params, "elicitation/create", "2025-11-25", "2025-06-18", `{"mode":"url","url":"u"}`,
		`!has no elicitation but with forms, and the mode is "url"`,
	},
	{
		Params, "elicitation/create", "2025-11-25", "2025-06-18",
		`{"mode":"form","message":"m","requestedSchema":{"$schema":"s","type":"object","properties":{` +
			`"a":{"type":"string","oneOf":[{"const":"x","title":"X"},{"const":"y"}],"default":"x"},` +
			`"b":{"type":"boolean","default":true},"n":{"type":"number","default":1.0},` +
			`"c":{"type":"array","items":{"type":"string","enum":["p"]}},"d":{"type":"string",` +
			`"enum":["p"],"enumNames":["P"]}},"required":["a"]}}`,
		`{"message":"m","requestedSchema":{"type":"object","properties":{` +
			`"a":{"type":"string","enum":["x","y"],"enumNames":["X","y"]},` +
			`"b":{"type":"boolean","default":true},"n":{"type":"number"},` +
			`"d":{"type":"string","enum":["p"],"enumNames":["P"]}},"required":["a"]}}`,
	},
	{
		Params, "elicitation/create", "2025-11-25", "2025-06-18",
		`{"requestedSchema":{"properties":{"c":{"type":"array"}},"required":["c"]}}`,
		`!several may be chosen, and "c" is required`,
	},

	// 2025-06-18 -> 2025-03-26
	{
		Params, "elicitation/create", "2025-06-18", "2025-03-26", `{}`,
		`!elicitation/create: MCP 2025-03-26 has no such method`,
	},
	{
		Result, "tools/call", "2025-06-18", "2025-03-26",
		`{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1}}`,
		`{"content":[{"type":"text","text":"x"}]}`,
	},
	{
		Result, "tools/call", "2025-06-18", "2025-03-26",
		`{"content":[],"structuredContent":{"a":1},"isError":false}`,
		`{"isError":false,"content":[{"type":"text","text":"{\"a\":1}"}]}`,
	},
	{
		Result, "tools/call", "2025-06-18", "2025-03-26",
		`{"content":[{"type":"resource_link","uri":"file:///r","name":"r","title":"Report",` +
			`"description":"of may","annotations":{"priority":1,"lastModified":"l"},"_meta":{}},` +
			`{"type":"resource_link","uri":"u"}]}`,
		`{"content":[{"type":"text","text":"Report <file:///r>: of may","annotations":{"priority":1}},` +
			`{"type":"text","text":"u"}]}`,
	},
	{
		Result, "tools/list", "2025-06-18", "2025-03-26",
		`{"tools":[{"name":"a","title":"A","outputSchema":{},"_meta":{}},{"name":"b","title":"B",` +
			`"annotations":{"readOnlyHint":true}},{"name":"c","title":"C",` +
			`"annotations":{"title":"other"}}]}`,
		`{"tools":[{"name":"a","_meta":{},"annotations":{"title":"A"}},{"name":"b",` +
			`"annotations":{"readOnlyHint":true,"title":"B"}},{"name":"c",` +
			`"annotations":{"title":"other"}}]}`,
	},
	{
		Result, "prompts/list", "2025-06-18", "2025-03-26",
		`{"prompts":[{"name":"a","title":"A","arguments":[{"name":"x","title":"X"}]}]}`,
		`{"prompts":[{"name":"a","arguments":[{"name":"x"}]}]}`,
	},
	{
		Result, "resources/list", "2025-06-18", "2025-03-26",
		`{"resources":[{"uri":"u","title":"A","_meta":{}, "annotations":{"lastModified":"l"}}],` +
			`"_meta":{}}`, `{"resources":[{"uri":"u","_meta":{}, "annotations":{}}],"_meta":{}}`,
	},
	{
		Result, "resources/templates/list", "2025-06-18", "2025-03-26",
		`{"resourceTemplates":[{"title":"A","name":"n"}]}`, `{"resourceTemplates":[{"name":"n"}]}`,
	},
	{
		Result, "resources/read", "2025-06-18", "2025-03-26",
		`{"contents":[{"uri":"u","text":"t","_meta":{}}]}`,
		`{"contents":[{"uri":"u","text":"t","_meta":{}}]}`,
	},
	{
		Result, "prompts/get", "2025-06-18", "2025-03-26",
		`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"u","_meta":{},` +
			`"text":"t"},"_meta":{}}}]}`,
		`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"u","_meta":{},` +
			`"text":"t"},"_meta":{}}}]}`,
	},
	{
		Result, "roots/list", "2025-06-18", "2025-03-26", `{"roots":[{"uri":"u","_meta":{}}]}`,
		`{"roots":[{"uri":"u"}]}`,
	},
	{
		Params, "completion/complete", "2025-06-18", "2025-03-26",
		`{"ref":{"type":"ref/prompt","name":"p","title":"P"},"argument":{},"context":{}}`,
		`{"ref":{"type":"ref/prompt","name":"p"},"argument":{}}`,
	},
	{
		Params, "initialize", "2025-06-18", "2025-03-26",
		`{"capabilities":{"elicitation":{}},"clientInfo":{"title":"t"}}`,
		`{"capabilities":{},"clientInfo":{}}`,
	},

	// 2025-03-26 -> 2024-11-05
	{
		Result, "tools/call", "2025-03-26", "2024-11-05",
		`{"content":[{"type":"audio","data":"AAAAAA==","mimeType":"audio/wav",` +
			`"annotations":{"priority":1}}]}`,
		`{"content":[{"type":"text","text":"[audio: audio/wav, 4 bytes]",` +
			`"annotations":{"priority":1}}]}`,
	},
	{
		Result, "tools/call", "2025-03-26", "2024-11-05",
		`{"content":[{"\u0074ype":"a\u0075dio","data":"","mimeType":"m"}]}`,
		`{"content":[{"type":"text","text":"[audio: m, 0 bytes]"}]}`,
	},
	{
		Params, "sampling/createMessage", "2025-03-26", "2024-11-05",
		`{"messages":[{"role":"user","content":{"type":"audio","data":"AAAA","mimeType":"m"}}]}`,
		`{"messages":[{"role":"user","content":{"type":"text","text":"[audio: m, 3 bytes]"}}]}`,
	},
	{
		Result, "sampling/createMessage", "2025-03-26", "2024-11-05",
		`{"content":{"type":"audio","data":"AAAA","mimeType":"m"}}`,
		`{"content":{"type":"text","text":"[audio: m, 3 bytes]"}}`,
	},
	{
		Result, "tools/list", "2025-03-26", "2024-11-05",
		`{"tools":[{"name":"a","annotations":{"title":"A"}}]}`, `{"tools":[{"name":"a"}]}`,
	},
	{
		Notification, "notifications/progress", "2026-07-28", "2024-11-05",
		`{"progressToken":1,"progress":0.5,"message":"half"}`, `{"progressToken":1,"progress":0.5}`,
	},
	{
		Result, "initialize", "2025-03-26", "2024-11-05",
		`{"capabilities":{"completions":{},"tools":{}}}`, `{"capabilities":{"tools":{}}}`,
	},

	// What is not valid, or not what is expected, is left alone.
	{
		Result, "tools/call", "2026-07-28", "2024-11-05", `{"resultType":"complete","content`,
		`{"resultType":"complete","content`,
	},
	{Result, "tools/call", "2026-07-28", "2024-11-05", `"resultType"`, `"resultType"`},
	{Result, "tools/call", "2025-11-25", "2026-07-28", `[]`, `[]`},
	{Result, "tools/call", "2025-11-25", "2026-07-28", `{"a":`, `{"a":`},
	{
		Result, "tools/call", "2026-07-28", "2024-11-05",
		`{"content":[7,null,"audio",{"type":7},[{"type":"audio"}]]}`,
		`{"content":[7,null,"audio",{"type":7},[{"type":"audio"}]]}`,
	},
	{Params, "tools/call", "2026-07-28", "2024-11-05", ``, ``},
}

func TestRules(t *testing.T) {
	for _, test := range ruleCases {
		in := jsonrpc.Raw(test.in)
		got, err := Translate(test.kind, test.method, in, Lookup(test.from), Lookup(test.to))
		where := test.method + " " + test.from + " -> " + test.to + ": " + test.in
		if string(in) != test.in {
			t.Errorf("%s: the input has changed: %s", where, in)
		}
		if want, refused := strings.CutPrefix(test.want, "!"); refused {
			var e *jsonrpc.Error
			if !errors.As(err, &e) || !strings.Contains(e.Message, want) || got != nil {
				t.Errorf("%s\n got %s, %v\nwant an error with %s", where, got, err, want)
			}
			continue
		}
		if err != nil || string(got) != test.want {
			t.Errorf("%s\n got %s, %v\nwant %s", where, got, err, test.want)
		}
		if test.want == test.in && len(in) > 0 && &got[0] != &in[0] {
			t.Errorf("%s: nothing was to be changed, but it is a copy", where)
		}
	}
}

func TestRefusalCodes(t *testing.T) {
	for _, test := range []struct {
		kind   Kind
		method string
		raw    string
		want   jsonrpc.Code
	}{
		{Params, "elicitation/create", `{}`, jsonrpc.MethodNotFound},
		{Params, "tools/call", `{"requestState":""}`, jsonrpc.InvalidParams},
		{Result, "tools/call", `{"resultType":"input_required"}`, jsonrpc.InternalError},
	} {
		_, err := Translate(test.kind, test.method, jsonrpc.Raw(test.raw), Latest(), Lookup("2024-11-05"))
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.method, err, test.want)
		}
	}
}

func TestUntouched(t *testing.T) {
	raw := jsonrpc.Raw(
		`{"tools":[{"icons":1,"title":2}],"content":[{"type":"audio"}],` +
			`"_meta":{"io.modelcontextprotocol/other":1,"progressToken":1}}`)
	for _, from := range Revisions() {
		for _, to := range Revisions() {
			for _, kind := range []Kind{Params, Result, Notification} {
				got, err := Translate(kind, "acme/custom", raw, from, to)
				if err != nil || string(got) != string(raw) || &got[0] != &raw[0] {
					t.Errorf("%s -> %s: %s, %v", from.Name, to.Name, got, err)
				}
			}
		}
	}
	other := &Revision{Name: "2031-01-01"} // not of the table
	if got, err := Translate(Result, "tools/call", raw, other, Latest()); err != nil ||
		&got[0] != &raw[0] {
		t.Error(got, err)
	}
}

func TestCode(t *testing.T) {
	for _, test := range []struct {
		code     jsonrpc.Code
		data     string
		from, to string
		want     jsonrpc.Code
	}{
		{-32002, "", "2025-11-25", "2026-07-28", -32602},
		{-32002, "", "2024-11-05", "2026-07-28", -32602},
		{-32602, `{"uri":"file:///x"}`, "2026-07-28", "2025-06-18", -32002},
		{-32602, "", "2026-07-28", "2025-06-18", -32602},
		{-32602, `7`, "2026-07-28", "2025-06-18", -32602},
		{-32602, `{"uri":"file:///x"}`, "2025-11-25", "2026-07-28", -32602},
		{-32022, `{"supported":[]}`, "2026-07-28", "2025-11-25", -32602},
		{-32602, `{"supported":[]}`, "2025-11-25", "2026-07-28", -32022},
		{-32020, "", "2026-07-28", "2025-11-25", -32600},
		{-32021, "", "2026-07-28", "2025-11-25", -32600},
		{-32021, "", "2025-11-25", "2026-07-28", -31021}, // a private one
		{-31021, "", "2026-07-28", "2025-11-25", -32021},
		{-32042, "", "2025-11-25", "2026-07-28", -31042},
		{-32042, "", "2025-11-25", "2025-06-18", -32042},
		{-32601, "", "2025-11-25", "2026-07-28", -32601},
		{-32009, "", "2025-11-25", "2026-07-28", -32009},
		{-32002, "", "2025-11-25", "2024-11-05", -32002},
		{42, "", "2026-07-28", "2024-11-05", 42},
	} {
		e := &jsonrpc.Error{Code: test.code, Message: "m", Cause: errors.ErrUnsupported}
		if test.data != "" {
			e.Data = jsonrpc.Raw(test.data)
		}
		got := Code(e, Lookup(test.from), Lookup(test.to))
		if got.Code != test.want || got.Message != "m" || string(got.Data) != test.data ||
			got.Cause == nil {
			t.Errorf("%d %s -> %s: %v, want %d", test.code, test.from, test.to, got, test.want)
		}
		if e.Code != test.code || (got == e) != (test.code == test.want) {
			t.Errorf("%d: the error itself was changed or needlessly copied", test.code)
		}
	}
	if Code(nil, Latest(), LatestLegacy()) != nil {
		t.Error("an error out of none")
	}
}
