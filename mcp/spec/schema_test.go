package spec_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/mcptest"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
)

// lacking has the fields that a revision does not have, by revision: "Field" of any
// type, or "Type.Field".
var lacking = map[string][]string{
	modern: {
		"CallToolRequestParams.Task", "CreateMessageRequestParams.Task", "ElicitRequestParams.Task",
		"CreateMessageRequestParams.Meta", "ElicitRequestParams.Meta", "ElicitResult.Meta",
		"ListRootsResult.Meta",
		"ElicitRequestParams.ElicitationID", "Tool.Execution", "RootsCapability.ListChanged", "Tasks",
		"TaskIDs", // of the extension
	},
	legacy: {
		"ResultType", "TTLMS", "CacheScope", "InputResponses", "RequestState", "Extensions", "TaskIDs",
	},
}

// filler makes values in which every field is set that a revision has.
type filler struct {
	revision string
	made     map[string]bool // the types of the values that were made
}

// texts has the values of strings, by field, that must not be just any.
var texts = map[string]string{
	"URI": "file:///a/b", "URL": "https://example.com/x", "URITemplate": "file:///{path}",
	"WebsiteURL": "https://example.com",
	"Src":        "https://example.com/icon.png", "Theme": "dark", "Role": spec.RoleUser,
	"Level":      spec.LogNotice,
	"CacheScope": spec.CachePrivate, "IncludeContext": spec.ContextNone,
	"ToolChoice.Mode": spec.ToolChoiceAuto,
	"Action":          spec.ElicitAccept, "TaskSupport": spec.TaskOptional, "Status": spec.TaskWorking,
	"ProtocolVersion": modern, "CreatedAt": "2026-01-02T03:04:05Z",
	"LastUpdatedAt": "2026-01-02T03:04:05Z",
	"LastModified":  "2026-01-02T03:04:05Z", "Audience": spec.RoleAssistant,
}

// raws has the values of raw members, by field, that must not be just any.
var raws = map[string]string{
	"InputSchema":     `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`,
	"OutputSchema":    `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object"}`,
	"RequestedSchema": `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`,
	"ProgressToken":   `"p1"`,
	"InputResponses":  `{"action":"decline"}`,
	"Content":         `{"a":"x","b":2,"c":true,"d":["y"]}`,
}

var blocks = []spec.Content{
	{Type: spec.TypeText, Text: "a\"b\u2028"},
	{Type: spec.TypeImage, Data: []byte{0, 255, 1}, MIMEType: "image/png"},
	{Type: spec.TypeAudio, Data: []byte{}, MIMEType: "audio/wav"},
	{Type: spec.TypeResourceLink},
	{Type: spec.TypeResource, Resource: &spec.ResourceContents{Text: "x"}},
	{Type: spec.TypeResource, Resource: &spec.ResourceContents{Blob: []byte("xyz")}},
}

var sampled = append(blocks[:3:3],
	spec.Content{Type: spec.TypeToolUse, ID: "1", Name: "n", Input: jsonrpc.Raw(`{"a":1}`)},
	spec.Content{
		Type: spec.TypeToolResult, ToolUseID: "1", IsError: true, Content: blocks[:1],
		StructuredContent: jsonrpc.Raw(`{"b":2}`),
	})

func (f *filler) fill(v reflect.Value, typeName, field string) {
	switch into := v.Addr().Interface().(type) {
	case *spec.Meta:
		*into = f.meta()
		return
	case *jsonrpc.Raw:
		*into = jsonrpc.Raw(`{"a":1}`)
		if raw, ok := raws[field]; ok {
			*into = jsonrpc.Raw(raw)
		}
		return
	case *[]byte:
		*into = []byte("xyz")
		return
	case *jsonrpc.ID:
		*into = jsonrpc.StringID("r1")
		return
	case *spec.Content:
		*into = f.block(blocks[0])
		return
	case *[]spec.Content:
		list := blocks
		if typeName == "SamplingMessage" || typeName == "CreateMessageResult" {
			list = sampled
		}
		for _, block := range list {
			*into = append(*into, f.block(block))
		}
		return
	case *spec.InputRequest:
		*into = spec.InputRequest{Method: spec.MethodElicitationCreate, Params: jsonrpc.Raw(
			`{"mode":"url","message":"m","url":"https://example.com"}`)}
		return
	}
	f.kind(v, typeName, field)
}

func (f *filler) kind(v reflect.Value, typeName, field string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
		if s, ok := texts[typeName+"."+field]; ok {
			v.SetString(s)
		} else if s, ok := texts[field]; ok {
			v.SetString(s)
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Interface: // a capability's settings
		v.Set(reflect.ValueOf(map[string]any{"a": "b"}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), typeName, field)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i), typeName, field)
		}
	case reflect.Map:
		elem := reflect.New(v.Type().Elem()).Elem()
		f.fill(elem, typeName, field)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("example.com/x"), elem)
	case reflect.Struct:
		f.members(v)
	default:
		panic("no value for " + v.Type().String())
	}
}

func (f *filler) members(v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.IsExported() && !f.lacks(v.Type().Name(), field.Name) {
			f.fill(v.Field(i), v.Type().Name(), field.Name)
		}
	}
	f.made[v.Type().Name()] = true
	switch v := v.Addr().Interface().(type) { // one type, but each side has its own requests
	case *spec.ClientCapabilities:
		if v.Tasks != nil {
			v.Tasks.Requests.Tools = nil
		}
	case *spec.ServerCapabilities:
		if v.Tasks != nil {
			v.Tasks.Requests.Sampling, v.Tasks.Requests.Elicitation = nil, nil
		}
	}
}

func (f *filler) lacks(typeName, field string) bool {
	for _, name := range lacking[f.revision] {
		if name == field || name == typeName+"."+field {
			return true
		}
	}
	return false
}

// meta returns a _meta that is right everywhere.
func (f *filler) meta() spec.Meta {
	m := spec.Meta{"example.com/a": "b", spec.MetaProgressToken: "p1", spec.MetaSubscriptionID: "s1"}
	if f.revision == modern {
		m[spec.MetaProtocolVersion] = modern
		m[spec.MetaClientCapabilities] = map[string]any{"roots": map[string]any{}}
		m[spec.MetaClientInfo] = map[string]any{"name": "c", "version": "1"}
		m[spec.MetaServerInfo] = map[string]any{"name": "s", "version": "1"}
		m[spec.MetaLogLevel] = spec.LogInfo
	}
	return m
}

// block returns a block with what all blocks of its type may have.
func (f *filler) block(c spec.Content) spec.Content {
	c.Meta = f.meta()
	if c.Type != spec.TypeToolUse && c.Type != spec.TypeToolResult {
		c.Annotations = new(spec.Annotations)
		f.fill(reflect.ValueOf(c.Annotations).Elem(), "", "")
	}
	if c.Type == spec.TypeResourceLink {
		c.URI, c.Name, c.Title, c.Description, c.MIMEType = "file:///a", "n", "t", "d", "text/plain"
		c.Size, c.Icons = new(int64), []spec.Icon{{Src: "data:image/png;base64,"}}
	}
	if c.Resource != nil {
		r := *c.Resource
		r.URI, r.MIMEType, r.Meta = "file:///a", "text/plain", f.meta()
		c.Resource = &r
	}
	return c
}

// A schemaRow is a Go type and a def that its values are to be of.
type schemaRow struct {
	def  string
	make func() any
	edit func(v any) // for unions
	open bool        // the def cannot be checked strictly
}

func edit[T any](f func(*T)) func(any) {
	return func(v any) { f(v.(*T)) }
}

var common = []schemaRow{
	{def: "Implementation", make: made[spec.Implementation]},
	{def: "Icon", make: made[spec.Icon]},
	{def: "Annotations", make: made[spec.Annotations]},
	{def: "ClientCapabilities", make: made[spec.ClientCapabilities]},
	{def: "ServerCapabilities", make: made[spec.ServerCapabilities]},
	{def: "PaginatedRequestParams", make: made[spec.PaginatedRequestParams]},
	{def: "RequestParams", make: made[spec.RequestParams]},
	{def: "NotificationParams", make: made[spec.NotificationParams]},

	{def: "Tool", make: made[spec.Tool]},
	{def: "ToolAnnotations", make: made[spec.ToolAnnotations]},
	{def: "ListToolsResult", make: made[spec.ListToolsResult]},
	{def: "CallToolRequestParams", make: made[spec.CallToolRequestParams]},
	{def: "CallToolResult", make: made[spec.CallToolResult]},

	{def: "Resource", make: made[spec.Resource]},
	{def: "ResourceTemplate", make: made[spec.ResourceTemplate]},
	{def: "ListResourcesResult", make: made[spec.ListResourcesResult]},
	{def: "ListResourceTemplatesResult", make: made[spec.ListResourceTemplatesResult]},
	{def: "ReadResourceRequestParams", make: made[spec.ReadResourceRequestParams]},
	{
		def: "ReadResourceResult", make: made[spec.ReadResourceResult],
		edit: edit(func(r *spec.ReadResourceResult) {
			r.Contents[0].Blob = nil
			r.Contents[1].Text = ""
		}),
	},

	{def: "Prompt", make: made[spec.Prompt]},
	{def: "PromptArgument", make: made[spec.PromptArgument]},
	{def: "PromptMessage", make: made[spec.PromptMessage]},
	{def: "ListPromptsResult", make: made[spec.ListPromptsResult]},
	{def: "GetPromptRequestParams", make: made[spec.GetPromptRequestParams]},
	{def: "GetPromptResult", make: made[spec.GetPromptResult]},

	{
		def: "CompleteRequestParams", make: made[spec.CompleteRequestParams],
		edit: edit(func(p *spec.CompleteRequestParams) {
			p.Ref = spec.CompleteReference{Type: spec.RefPrompt, Name: "n", Title: "t"}
		}),
	},
	{
		def: "CompleteRequestParams", make: made[spec.CompleteRequestParams],
		edit: edit(func(p *spec.CompleteRequestParams) {
			p.Ref = spec.CompleteReference{Type: spec.RefResource, URI: "file:///{a}"}
		}),
	},
	{def: "CompleteResult", make: made[spec.CompleteResult]},

	{
		def: "ElicitRequestParams", make: made[spec.ElicitRequestParams],
		edit: edit(func(p *spec.ElicitRequestParams) {
			p.Mode, p.URL, p.ElicitationID = spec.ElicitForm, "", ""
		}),
	},
	{
		def: "ElicitRequestParams", make: made[spec.ElicitRequestParams],
		edit: edit(func(p *spec.ElicitRequestParams) {
			p.Mode, p.RequestedSchema = spec.ElicitURL, nil
		}),
	},
	{def: "ElicitResult", make: made[spec.ElicitResult]},

	{def: "CreateMessageRequestParams", make: made[spec.CreateMessageRequestParams]},
	{def: "CreateMessageResult", make: made[spec.CreateMessageResult]},
	{def: "SamplingMessage", make: made[spec.SamplingMessage]},
	{def: "ModelPreferences", make: made[spec.ModelPreferences]},

	{def: "Root", make: made[spec.Root]},
	{def: "ListRootsResult", make: made[spec.ListRootsResult]},

	{def: "CancelledNotificationParams", make: made[spec.CancelledNotificationParams]},
	{def: "ProgressNotificationParams", make: made[spec.ProgressNotificationParams]},
	{def: "LoggingMessageNotificationParams", make: made[spec.LoggingMessageNotificationParams]},
	{def: "ResourceUpdatedNotificationParams", make: made[spec.ResourceUpdatedNotificationParams]},
}

var schemaRows = map[string][]schemaRow{
	modern: append([]schemaRow{
		{
			def: "RequestMetaObject", make: made[spec.RequestMetaObject],
			edit: edit(func(m *spec.RequestMetaObject) {
				m.LogLevel = spec.LogAlert
			}),
		},
		{def: "ResultMetaObject", make: made[spec.ResultMetaObject]},
		{def: "SubscriptionsListenResultMetaObject", make: made[spec.ResultMetaObject]},
		{def: "NotificationMetaObject", make: made[spec.NotificationMetaObject]},
		{def: "InputResponseRequestParams", make: made[spec.InputResponseRequestParams]},
		{def: "Result", make: made[spec.Result]},
		{def: "InputRequiredResult", make: made[spec.InputRequiredResult]},
		{def: "DiscoverResult", make: made[spec.DiscoverResult]},
		{def: "SubscriptionFilter", make: made[spec.SubscriptionFilter]},
		{def: "SubscriptionsListenRequestParams", make: made[spec.SubscriptionsListenRequestParams]},
		{def: "SubscriptionsListenResult", make: made[spec.SubscriptionsListenResult]},
		{
			def:  "SubscriptionsAcknowledgedNotificationParams",
			make: made[spec.SubscriptionsAcknowledgedNotificationParams],
		},
		{
			def: "UnsupportedProtocolVersionError", open: true,
			make: made[failure[spec.UnsupportedProtocolVersionData]],
			edit: edit(func(f *failure[spec.UnsupportedProtocolVersionData]) {
				f.JSONRPC, f.Error.Code = "2.0", spec.UnsupportedProtocolVersion
			}),
		},
		{
			def: "MissingRequiredClientCapabilityError", open: true,
			make: made[failure[spec.MissingRequiredClientCapabilityData]],
			edit: edit(func(f *failure[spec.MissingRequiredClientCapabilityData]) {
				f.JSONRPC, f.Error.Code = "2.0", spec.MissingRequiredClientCapability
			}),
		},
	}, common...),
	legacy: append([]schemaRow{
		{def: "InitializeRequestParams", make: made[spec.InitializeParams]},
		{def: "InitializeResult", make: made[spec.InitializeResult]},
		{def: "SetLevelRequestParams", make: made[spec.SetLevelParams]},
		{def: "SubscribeRequestParams", make: made[spec.SubscribeParams]},
		{def: "UnsubscribeRequestParams", make: made[spec.SubscribeParams]},
		{def: "ToolExecution", make: made[spec.ToolExecution]},
		{def: "TaskMetadata", make: made[spec.TaskMetadata]},
		{def: "RelatedTaskMetadata", make: made[spec.RelatedTaskMetadata]},
		{def: "Task", make: made[spec.LegacyTask]},
		{def: "CreateTaskResult", make: made[spec.LegacyCreateTaskResult]},
		{def: "GetTaskResult", make: made[spec.LegacyTaskResult], open: true},
		{def: "CancelTaskResult", make: made[spec.LegacyTaskResult], open: true},
		{def: "ListTasksResult", make: made[spec.ListTasksResult]},
		{
			def: "TaskStatusNotificationParams", make: made[spec.LegacyTaskStatusNotificationParams],
			open: true,
		},
		{
			def: "GetTaskRequest", open: true, make: made[request[spec.TaskParams]],
			edit: edit(func(r *request[spec.TaskParams]) {
				r.JSONRPC, r.Method = "2.0", spec.MethodTasksGet
			}),
		},
		{
			def: "ElicitationCompleteNotification", open: true,
			make: made[notification[spec.ElicitationCompleteNotificationParams]],
			edit: edit(func(n *notification[spec.ElicitationCompleteNotificationParams]) {
				n.JSONRPC, n.Method = "2.0", spec.NotificationElicitationComplete
			}),
		},
		{
			def: "URLElicitationRequiredError", open: true,
			make: made[failure[spec.URLElicitationRequiredData]],
			edit: edit(func(f *failure[spec.URLElicitationRequiredData]) {
				f.JSONRPC, f.Error.Code = "2.0", spec.URLElicitationRequired
				for i := range f.Error.Data.Elicitations {
					f.Error.Data.Elicitations[i].Mode = spec.ElicitURL
				}
			}),
		},
	}, common...),
}

// A value in which everything is set is what the schema says, has no member that
// the schema does not name, and is read back as it was.
func TestSchema(t *testing.T) {
	seen := map[string]bool{}
	for revision, rows := range schemaRows {
		strict, plain := mcptest.Strict(t, revision), mcptest.Validator(t, revision)
		for _, row := range rows {
			t.Run(revision+"/"+row.def, func(t *testing.T) {
				f := filler{revision, seen}
				v := row.make()
				f.fill(reflect.ValueOf(v).Elem(), "", "")
				if row.edit != nil {
					row.edit(v)
				}
				raw, err := jsonv2.Append(nil, v)
				if err != nil {
					t.Fatal(err)
				}
				if plain(t, row.def, raw); !row.open && !t.Failed() {
					strict(t, row.def, raw)
				}
				back := row.make()
				if err := jsonv2.Unmarshal(raw, back); err != nil {
					t.Fatal(err)
				}
				again, err := jsonv2.Append(nil, back)
				if err != nil || string(again) != string(raw) {
					t.Errorf("read back as\n%s, %v, want\n%s", again, err, raw)
				}
			})
		}
	}
	for _, name := range structs(t) {
		if !seen[name] && !slices.Contains(elsewhere, name) {
			t.Errorf("no row of schemaRows has a %s in it", name)
		}
	}
}

// elsewhere has the types that the schemas do not have, or that the filler writes
// out; they have their own tests.
var elsewhere = []string{
	"Content", "InputRequest", // written out
	"ElicitSchema", "PrimitiveSchemaDefinition", "EnumOption", "EnumItems", // in the schema of a form
	"Task", "DetailedTask", "CreateTaskResult", "GetTaskResult", "UpdateTaskParams",
	"TaskStatusNotificationParams",
}

// structs returns the names of the package's exported structs.
func structs(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if decl, ok := n.(*ast.TypeSpec); ok && decl.Name.IsExported() {
				if _, ok := decl.Type.(*ast.StructType); ok {
					names = append(names, decl.Name.Name)
				}
			}
			return true
		})
	}
	return names
}

// What is required and empty is written, and as [] where it is an array.
func TestEmpty(t *testing.T) {
	zero := int64(0)
	validate := mcptest.Strict(t, modern)
	for def, v := range map[string]any{
		"CallToolResult": spec.CallToolResult{ResultType: spec.ResultComplete},
		"ListToolsResult": spec.ListToolsResult{
			ResultType: "x", TTLMS: &zero,
			CacheScope: "public",
		},
		"ListResourcesResult": spec.ListResourcesResult{
			ResultType: "x", TTLMS: &zero,
			CacheScope: "public",
		},
		"ListResourceTemplatesResult": spec.ListResourceTemplatesResult{
			ResultType: "x", TTLMS: &zero,
			CacheScope: "public",
		},
		"ListPromptsResult": spec.ListPromptsResult{
			ResultType: "x", TTLMS: &zero,
			CacheScope: "public",
		},
		"ReadResourceResult": spec.ReadResourceResult{
			ResultType: "x", TTLMS: &zero,
			CacheScope: "public",
		},
		"DiscoverResult": spec.DiscoverResult{
			ResultType: "x", TTLMS: &zero,
			CacheScope: "public",
		},
		"GetPromptResult":            spec.GetPromptResult{ResultType: "x"},
		"CompleteResult":             spec.CompleteResult{ResultType: "x"},
		"ListRootsResult":            spec.ListRootsResult{},
		"CreateMessageRequestParams": spec.CreateMessageRequestParams{},
		"SamplingMessage":            spec.SamplingMessage{Role: spec.RoleUser},
		"TextContent":                spec.Content{},
		"ImageContent":               spec.Content{Type: spec.TypeImage},
		"ToolUseContent":             spec.Content{Type: spec.TypeToolUse},
		"ToolResultContent":          spec.Content{Type: spec.TypeToolResult},
	} {
		raw, err := jsonv2.Append(nil, v)
		if err != nil || strings.Contains(string(raw), "null") {
			t.Errorf("%s: got %s, %v", def, raw, err)
		}
		validate(t, def, raw)
	}
}
