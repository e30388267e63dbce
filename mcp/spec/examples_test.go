package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/mcptest"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type (
	resourceUpdated = spec.ResourceUpdatedNotificationParams
	acknowledged    = spec.SubscriptionsAcknowledgedNotificationParams

	request[P any] struct {
		JSONRPC string     `json:"jsonrpc"`
		ID      jsonrpc.ID `json:"id"`
		Method  string     `json:"method"`
		Params  P          `json:"params"`
	}
	notification[P any] struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  P      `json:"params,omitzero"`
	}
	response[R any] struct {
		JSONRPC string     `json:"jsonrpc"`
		ID      jsonrpc.ID `json:"id"`
		Result  R          `json:"result"`
	}
	failure[D any] struct {
		JSONRPC string     `json:"jsonrpc"`
		ID      jsonrpc.ID `json:"id,omitzero"`
		Error   struct {
			Code    jsonrpc.Code `json:"code"`
			Message string       `json:"message"`
			Data    D            `json:"data,omitzero"`
		} `json:"error"`
	}
	// inputRequest is an InputRequest with its params taken apart. One example
	// still has the id that such requests had as messages.
	inputRequest[P any] struct {
		ID     jsonrpc.ID `json:"id,omitzero"`
		Method string     `json:"method"`
		Params P          `json:"params,omitzero"`
	}
)

func made[T any]() any { return new(T) }

// exampleTypes has the Go type of each directory of examples.
var exampleTypes = map[string]func() any{
	"AudioContent":                          made[spec.Content],
	"BlobResourceContents":                  made[spec.ResourceContents],
	"BooleanSchema":                         made[spec.PrimitiveSchemaDefinition],
	"CallToolRequest":                       made[request[spec.CallToolRequestParams]],
	"CallToolRequestParams":                 made[spec.CallToolRequestParams],
	"CallToolResult":                        made[spec.CallToolResult],
	"CallToolResultResponse":                made[response[spec.CallToolResult]],
	"CancelledNotification":                 made[notification[spec.CancelledNotificationParams]],
	"CancelledNotificationParams":           made[spec.CancelledNotificationParams],
	"ClientCapabilities":                    made[spec.ClientCapabilities],
	"CompleteRequest":                       made[request[spec.CompleteRequestParams]],
	"CompleteRequestParams":                 made[spec.CompleteRequestParams],
	"CompleteResult":                        made[spec.CompleteResult],
	"CompleteResultResponse":                made[response[spec.CompleteResult]],
	"CreateMessageRequest":                  made[inputRequest[spec.CreateMessageRequestParams]],
	"CreateMessageRequestParams":            made[spec.CreateMessageRequestParams],
	"CreateMessageResult":                   made[spec.CreateMessageResult],
	"DiscoverRequest":                       made[request[spec.RequestParams]],
	"DiscoverResult":                        made[spec.DiscoverResult],
	"DiscoverResultResponse":                made[response[spec.DiscoverResult]],
	"ElicitRequest":                         made[inputRequest[spec.ElicitRequestParams]],
	"ElicitRequestFormParams":               made[spec.ElicitRequestParams],
	"ElicitRequestURLParams":                made[spec.ElicitRequestParams],
	"ElicitResult":                          made[spec.ElicitResult],
	"EmbeddedResource":                      made[spec.Content],
	"GetPromptRequest":                      made[request[spec.GetPromptRequestParams]],
	"GetPromptRequestParams":                made[spec.GetPromptRequestParams],
	"GetPromptResult":                       made[spec.GetPromptResult],
	"GetPromptResultResponse":               made[response[spec.GetPromptResult]],
	"HeaderMismatchError":                   made[failure[jsonrpc.Raw]],
	"ImageContent":                          made[spec.Content],
	"InputRequests":                         made[map[string]spec.InputRequest],
	"InputRequiredResult":                   made[spec.InputRequiredResult],
	"InputResponses":                        made[map[string]jsonrpc.Raw],
	"InternalError":                         made[jsonrpc.Error],
	"InvalidParamsError":                    made[jsonrpc.Error],
	"ListPromptsRequest":                    made[request[spec.PaginatedRequestParams]],
	"ListPromptsResult":                     made[spec.ListPromptsResult],
	"ListPromptsResultResponse":             made[response[spec.ListPromptsResult]],
	"ListResourceTemplatesRequest":          made[request[spec.PaginatedRequestParams]],
	"ListResourceTemplatesResult":           made[spec.ListResourceTemplatesResult],
	"ListResourceTemplatesResultResponse":   made[response[spec.ListResourceTemplatesResult]],
	"ListResourcesRequest":                  made[request[spec.PaginatedRequestParams]],
	"ListResourcesResult":                   made[spec.ListResourcesResult],
	"ListResourcesResultResponse":           made[response[spec.ListResourcesResult]],
	"ListRootsRequest":                      made[inputRequest[spec.RequestParams]],
	"ListRootsResult":                       made[spec.ListRootsResult],
	"ListToolsRequest":                      made[request[spec.PaginatedRequestParams]],
	"ListToolsResult":                       made[spec.ListToolsResult],
	"ListToolsResultResponse":               made[response[spec.ListToolsResult]],
	"LoggingMessageNotification":            made[notification[spec.LoggingMessageNotificationParams]],
	"LoggingMessageNotificationParams":      made[spec.LoggingMessageNotificationParams],
	"MethodNotFoundError":                   made[jsonrpc.Error],
	"MissingRequiredClientCapabilityError":  made[failure[spec.MissingRequiredClientCapabilityData]],
	"ModelPreferences":                      made[spec.ModelPreferences],
	"NumberSchema":                          made[spec.PrimitiveSchemaDefinition],
	"PaginatedRequestParams":                made[spec.PaginatedRequestParams],
	"ParseError":                            made[jsonrpc.Error],
	"ProgressNotification":                  made[notification[spec.ProgressNotificationParams]],
	"ProgressNotificationParams":            made[spec.ProgressNotificationParams],
	"PromptListChangedNotification":         made[notification[spec.NotificationParams]],
	"ReadResourceRequest":                   made[request[spec.ReadResourceRequestParams]],
	"ReadResourceResult":                    made[spec.ReadResourceResult],
	"ReadResourceResultResponse":            made[response[spec.ReadResourceResult]],
	"Resource":                              made[spec.Resource],
	"ResourceLink":                          made[spec.Content],
	"ResourceListChangedNotification":       made[notification[spec.NotificationParams]],
	"ResourceUpdatedNotification":           made[notification[resourceUpdated]],
	"ResourceUpdatedNotificationParams":     made[spec.ResourceUpdatedNotificationParams],
	"Root":                                  made[spec.Root],
	"SamplingMessage":                       made[spec.SamplingMessage],
	"ServerCapabilities":                    made[spec.ServerCapabilities],
	"StringSchema":                          made[spec.PrimitiveSchemaDefinition],
	"SubscriptionsAcknowledgedNotification": made[notification[acknowledged]],
	"SubscriptionsListenRequest":            made[request[spec.SubscriptionsListenRequestParams]],
	"SubscriptionsListenResult":             made[spec.SubscriptionsListenResult],
	"SubscriptionsListenResultResponse":     made[response[spec.SubscriptionsListenResult]],
	"TextContent":                           made[spec.Content],
	"TextResourceContents":                  made[spec.ResourceContents],
	"TitledMultiSelectEnumSchema":           made[spec.PrimitiveSchemaDefinition],
	"TitledSingleSelectEnumSchema":          made[spec.PrimitiveSchemaDefinition],
	"Tool":                                  made[spec.Tool],
	"ToolListChangedNotification":           made[notification[spec.NotificationParams]],
	"ToolResultContent":                     made[spec.Content],
	"ToolUseContent":                        made[spec.Content],
	"UnsupportedProtocolVersionError":       made[failure[spec.UnsupportedProtocolVersionData]],
	"UntitledMultiSelectEnumSchema":         made[spec.PrimitiveSchemaDefinition],
	"UntitledSingleSelectEnumSchema":        made[spec.PrimitiveSchemaDefinition],
}

// Every example of the specification goes through its Go type and comes out as
// it was.
func TestExamples(t *testing.T) {
	root := filepath.Join(mcptest.Dir(t), "2026-07-28", "examples")
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		made := exampleTypes[dir.Name()]
		if made == nil {
			t.Errorf("examples of %s have no Go type in exampleTypes", dir.Name())
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, dir.Name(), "*.json"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no examples, %v", dir.Name(), err)
		}
		for _, file := range files {
			t.Run(dir.Name()+"/"+filepath.Base(file), func(t *testing.T) {
				in, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				roundTrip(t, in, made())
			})
		}
	}
}

// roundTrip decodes in to v and encodes it again, which must give the same value.
func roundTrip(t *testing.T, in []byte, v any) {
	t.Helper()
	if err := jsonv2.Unmarshal(in, v); err != nil {
		t.Fatal(err)
	}
	out, err := jsonv2.Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	if want, got := parsed(t, in), parsed(t, out); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %s\nwant %s", out, in)
	}
}

// parsed returns a JSON text as a value, without the members that are false and
// mean the same when they are absent.
func parsed(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	dropDefaults(v)
	return v
}

func dropDefaults(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"isError", "hasMore"} {
			if v[name] == false {
				delete(v, name)
			}
		}
		for _, inner := range v {
			dropDefaults(inner)
		}
	case []any:
		for _, inner := range v {
			dropDefaults(inner)
		}
	}
}
