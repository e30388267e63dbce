package era

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/farcall-dev/farcall/internal/mcptest"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// defs says which type of the schema a message is. Before 2025-11-25 the params
// of a request have no separate type, but the request has.
var defs = map[message]string{
	{Params, "initialize"}:                             "InitializeRequest",
	{Params, "tools/call"}:                             "CallToolRequest",
	{Params, "prompts/get"}:                            "GetPromptRequest",
	{Params, "resources/read"}:                         "ReadResourceRequest",
	{Params, "completion/complete"}:                    "CompleteRequest",
	{Params, "sampling/createMessage"}:                 "CreateMessageRequest",
	{Params, "elicitation/create"}:                     "ElicitRequest",
	{Result, "initialize"}:                             "InitializeResult",
	{Result, "tools/list"}:                             "ListToolsResult",
	{Result, "tools/call"}:                             "CallToolResult",
	{Result, "prompts/list"}:                           "ListPromptsResult",
	{Result, "prompts/get"}:                            "GetPromptResult",
	{Result, "resources/list"}:                         "ListResourcesResult",
	{Result, "resources/templates/list"}:               "ListResourceTemplatesResult",
	{Result, "resources/read"}:                         "ReadResourceResult",
	{Result, "completion/complete"}:                    "CompleteResult",
	{Result, "sampling/createMessage"}:                 "CreateMessageResult",
	{Result, "elicitation/create"}:                     "ElicitResult",
	{Result, "roots/list"}:                             "ListRootsResult",
	{Notification, "notifications/progress"}:           "ProgressNotification",
	{Notification, "notifications/cancelled"}:          "CancelledNotification",
	{Notification, "notifications/message"}:            "LoggingMessageNotification",
	{Notification, "notifications/tools/list_changed"}: "ToolListChangedNotification",
	{Notification, "notifications/resources/updated"}:  "ResourceUpdatedNotification",
}

// check validates one message, strictly or not.
type check func(tb testing.TB, def string, raw []byte)

func (c check) message(tb testing.TB, r *Revision, m message, raw []byte) {
	tb.Helper()
	def := defs[m]
	if m.kind == Result {
		c(tb, def, raw)
		return
	}
	if LatestLegacy() == r || !r.Handshake {
		if def == "ToolListChangedNotification" {
			def = "Notification"
		}
		c(tb, def+"Params", raw)
		return
	}
	if m.kind == Params { // of _meta only the base type of all requests speaks
		raw, _ = drop("_meta").do(raw)
	}
	c(tb, def, []byte(`{"method":"`+m.method+`","params":`+string(raw)+`}`))
}

// full has messages of the newest revision with everything in them that it has.
var full = map[message]string{
	{
		Params, "initialize",
	}: `{"protocolVersion":"x","clientInfo":` + fullImplementation + `,"capabilities":{
		"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},
		"experimental":{"a":{}},"extensions":{"io.modelcontextprotocol/tasks":{}},"tasks":{"list":{},"requests":{"elicitation":{"create":{}}}}}}`,
	{Result, "initialize"}: `{"protocolVersion":"x","serverInfo":` +
		fullImplementation + `,"instructions":"i","capabilities":{
		"completions":{},"experimental":{},"extensions":{},"logging":{},"prompts":{"listChanged":true},
		"resources":{"subscribe":true,"listChanged":true},"tools":{"listChanged":true},"tasks":{"list":{},"cancel":{}}}}`,
	{
		Params, "tools/call",
	}: `{"name":"a","arguments":{"b":[1.0]},"_meta":` + fullMeta + `,"task":{"ttl":5}}`,
	{
		Params, "completion/complete",
	}: `{"_meta":` + fullMeta + `,"ref":{"type":"ref/prompt","name":"p","title":"P"},
		"argument":{"name":"a","value":"v"},"context":{"arguments":{"b":"c"}}}`,
	{
		Params, "sampling/createMessage",
	}: `{"maxTokens":5,"systemPrompt":"s","temperature":0.5,"tools":[` +
		fullTool + `],"toolChoice":{"mode":"auto"},
		"modelPreferences":{"hints":[{"name":"h"}],"costPriority":1},"task":{"ttl":1},
		"messages":[{"role":"user","content":{"type":"text","text":"t","_meta":{}},"_meta":{}},
		{"role":"user","content":[{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"audio","data":"AAAA","mimeType":"audio/wav"}]},
		{"role":"assistant","content":{"type":"tool_use","id":"1","name":"n","input":{"a":"b"}}},
		{"role":"user","content":[{"type":"tool_result","toolUseId":"1","isError":true,"structuredContent":[1],"content":` + fullContent + `}]}]}`,
	{Params, "elicitation/create"}: `{"mode":"form","message":"m","task":{"ttl":1},"requestedSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","required":["t"],"properties":{
		"s":{"type":"string","title":"S","minLength":1,"maxLength":5,"format":"email","default":"a@b.c"},
		"n":{"type":"integer","minimum":1,"maximum":2,"default":1},"b":{"type":"boolean","default":true},
		"e":{"type":"string","enum":["a"],"default":"a"},"l":{"type":"string","enum":["a"],"enumNames":["A"],"default":"a"},
		"t":{"type":"string","title":"T","description":"d","oneOf":[{"const":"a","title":"A"}],"default":"a"},
		"m":{"type":"array","items":{"type":"string","enum":["a"]},"minItems":1,"default":["a"]},
		"u":{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]},"maxItems":3}}}}`,
	{
		Result,
		"tools/list",
	}: `{"resultType":"complete","ttlMs":5,"cacheScope":"public","nextCursor":"c",` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":` + fullImplementation + `},"tools":[` +
		fullTool + `]}`,
	{
		Result,
		"tools/call",
	}: `{"resultType":"complete","isError":false,"structuredContent":{"a":1},"content":` +
		fullContent + `,"_meta":{"io.modelcontextprotocol/serverInfo":` + fullImplementation + `}}`,
	{
		Result, "prompts/list",
	}: `{"resultType":"complete","ttlMs":5,"cacheScope":"public","prompts":[{"name":"p","title":"P",` +
		`"description":"d","icons":` + fullIcons +
		`,"_meta":{},"arguments":[{"name":"a","title":"A","description":"d","required":true}]}]}`,
	{
		Result,
		"prompts/get",
	}: `{"resultType":"complete","description":"d","messages":[{"role":"user","content":{"type":"audio","data":"AAAA","mimeType":"audio/wav","_meta":{}}},
		{"role":"assistant","content":{"type":"resource_link","uri":"file:///a","name":"a","icons":` +
		fullIcons + `}},
		{"role":"user","content":{"type":"resource","resource":{"uri":"file:///a","text":"t","_meta":{}},"annotations":` + fullAnnotations + `}}]}`,
	{
		Result,
		"resources/list",
	}: `{"resultType":"complete","ttlMs":5,"cacheScope":"public","resources":[{"uri":"file:///a","name":"a","title":"A","description":"d","mimeType":"m","size":5,
		"icons":` + fullIcons + `,"annotations":` + fullAnnotations + `,"_meta":{}}]}`,
	{
		Result,
		"resources/templates/list",
	}: `{"resultType":"complete","ttlMs":5,"cacheScope":"public","resourceTemplates":[{"uriTemplate":"file:///{a}","name":"a","title":"A","description":"d","mimeType":"m",
		"icons":` + fullIcons + `,"annotations":` + fullAnnotations + `,"_meta":{}}]}`,
	{Result, "resources/read"}: `{"resultType":"complete","ttlMs":5,` +
		`"cacheScope":"public","contents":[{"uri":"file:///a","mimeType":"m","text":"t","_meta":{}},` +
		`{"uri":"file:///b","blob":"AAAA","_meta":{}}]}`,
	{Result, "completion/complete"}: `{"resultType":"complete",` +
		`"completion":{"values":["a"],"total":1,"hasMore":false}}`,
	{
		Result,
		"sampling/createMessage",
	}: `{"model":"m","role":"assistant","stopReason":"toolUse",` +
		`"content":[{"type":"text","text":"t"},{"type":"tool_use","id":"1","name":"n","input":{}}]}`,
	{
		Result, "elicitation/create",
	}: `{"action":"accept","content":{"a":"b","c":1,"d":true}}`,
	{
		Result, "roots/list",
	}: `{"roots":[{"uri":"file:///a","name":"a","_meta":{}}]}`,
	{
		Notification, "notifications/progress",
	}: `{"progressToken":1,"progress":0.5,"total":1,"message":"m"}`,
	{Notification, "notifications/message"}: `{"level":"info","logger":"l",` +
		`"data":{"a":1},"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`,
	{
		Notification, "notifications/tools/list_changed",
	}: `{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`,
	{Notification, "notifications/resources/updated"}: `{"uri":"file:///a"}`,
}

const (
	fullIcons = `[{"src":"https://a.example/i.png","mimeType":"image/png",` +
		`"sizes":["48x48"],"theme":"dark"}]`
	fullAnnotations    = `{"audience":["user"],"priority":0.5,"lastModified":"2025-01-12T15:00:58Z"}`
	fullImplementation = `{"name":"n","title":"t","version":"1","description":"d",` +
		`"websiteUrl":"https://a.example","icons":` + fullIcons + `}`
	fullMeta = `{"progressToken":"p",` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":` +
		fullImplementation + `,
		"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info"}`
	fullTool = `{"name":"a","title":"A","description":"d","icons":` +
		fullIcons + `,"_meta":{},"execution":{"taskSupport":"optional"},
		"annotations":{"title":"T","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false},
		"inputSchema":{"type":"object","properties":{"x":{"type":"string"},"y":true},"required":["x"]},"outputSchema":{"type":"object","properties":{"z":false}}},
		{"name":"b","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}`
	fullContent = `[{"type":"text","text":"t","annotations":` + fullAnnotations + `,"_meta":{}},
		{"type":"image","data":"AAAA","mimeType":"image/png","annotations":` +
		fullAnnotations + `,"_meta":{}},
		{"type":"audio","data":"AAAA","mimeType":"audio/wav","annotations":` +
		fullAnnotations + `,"_meta":{}},
		{"type":"resource_link","uri":"file:///a","name":"a","title":"A","description":"d","mimeType":"m","size":5,"icons":` + fullIcons + `,"annotations":` + fullAnnotations + `,"_meta":{}},
		{"type":"resource","resource":{"uri":"file:///a","text":"t","mimeType":"m","_meta":{}},"annotations":` + fullAnnotations + `,"_meta":{}},
		{"type":"resource","resource":{"uri":"file:///a","blob":"AAAA","_meta":{}}}]`
)

// TestDownIsValid takes what the newest revision has to every other one, where
// nothing may be left that its schema does not know.
func TestDownIsValid(t *testing.T) {
	for _, to := range Revisions() {
		if !to.Handshake {
			continue
		}
		t.Run(to.Name, func(t *testing.T) {
			strict := check(mcptest.Strict(t, to.Name))
			for m, text := range full {
				got, err := Translate(m.kind, m.method, jsonrpc.Raw(text), Latest(), to)
				if m.method == "elicitation/create" && !to.Elicitation {
					if m.kind == Params && !errors.Is(err, jsonrpc.MethodNotFound) {
						t.Errorf("elicitation in %s: %s, %v", to.Name, got, err)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", m.method, err)
					continue
				}
				strict.message(t, to, m, got)
			}
		})
	}
}

// TestUpIsValid takes what each older revision has to the newest, and back:
// nothing is lost on the way.
func TestUpIsValid(t *testing.T) {
	loose := check(mcptest.Validator(t, Latest().Name))
	for _, from := range Revisions() {
		if !from.Handshake {
			continue
		}
		for m, text := range full {
			old, err := Translate(m.kind, m.method, jsonrpc.Raw(text), Latest(), from)
			if err != nil {
				continue // TestDownIsValid looks at it
			}
			up, err := Translate(m.kind, m.method, old, from, Latest())
			if err != nil {
				t.Errorf("%s from %s: %v", m.method, from.Name, err)
				continue
			}
			if m.method != "initialize" {
				valid := up
				if m.kind == Params && m.method != "sampling/createMessage" &&
					m.method != "elicitation/create" {
					valid, _ = drop("_meta").do(up)
					valid = with(valid, "_meta", jsonrpc.Raw(fullMeta)) // which the sender knows
				}
				loose.message(t, Latest(), m, valid)
			}
			back, err := Translate(m.kind, m.method, up, Latest(), from)
			if err != nil || !bytes.Equal(back, old) {
				t.Errorf("%s from %s and back:\n%s\n%s, %v", m.method, from.Name, old, back, err)
			}
		}
	}
}

// TestExamples takes the specification's own examples to every older revision.
func TestExamples(t *testing.T) {
	dir := filepath.Join(mcptest.Dir(t), Latest().Name, "examples")
	n := 0
	for _, to := range Revisions() {
		if !to.Handshake {
			continue
		}
		strict := check(mcptest.Strict(t, to.Name))
		for m, def := range defs {
			if m.kind != Result {
				def += "Params"
			}
			if def == "ElicitRequestParams" {
				def = "ElicitRequestFormParams"
			}
			files, _ := filepath.Glob(filepath.Join(dir, def, "*.json"))
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				got, err := Translate(m.kind, m.method, text, Latest(), to)
				if err != nil {
					t.Logf("%s to %s: %v", filepath.Base(file), to.Name, err)
					continue
				}
				n++
				if m.method == "elicitation/create" && !to.Elicitation {
					continue // an answer to a question that was never asked
				}
				if !json.Valid(got) {
					t.Fatalf("%s: %s", file, got)
				}
				strict.message(t, to, m, got)
			}
		}
	}
	if n < 80 {
		t.Errorf("only %d examples found", n)
	}
	t.Log(n, "examples translated")
}
