package era

import (
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

var rev20251125 = &Revision{
	Name: spec.Revision20251125,

	Handshake:             true,
	StreamableHTTP:        true,
	SessionHeader:         true,
	VersionHeader:         true,
	ResumableStreams:      true,
	PollingStreams:        true,
	PingAllowed:           true,
	SetLevel:              true,
	Subscribe:             true,
	RootsChanged:          true,
	ProgressMessage:       true,
	CompletionsCapability: true,
	CompletionContext:     true,
	Audio:                 true,
	ResourceLinks:         true,
	ToolAnnotations:       true,
	StructuredContent:     true,
	OutputSchema:          true,
	Titles:                true,
	Icons:                 true,
	Elicitation:           true,
	ElicitationURL:        true,
	ElicitationComplete:   true,
	ElicitationDefaults:   true,
	ElicitationEnums:      true,
	SamplingTools:         true,
	LegacyTasks:           true,

	ResourceNotFound:       -32002,
	UnsupportedVersion:     jsonrpc.InvalidParams,
	URLElicitationRequired: -32042,
}

// step20251125: icons, richer elicitation, sampling with tools, tasks.
var step20251125 = step{
	down: toward([]string{
		"tasks/get", "tasks/list", "tasks/result", "tasks/cancel",
		"notifications/tasks/status", "notifications/elicitation/complete",
	},
		rule{
			"`icons` of tools, resources, links, templates, prompts and implementations are dropped.",
			edits{
				{tool, drop("icons")},
				{resource, drop("icons")},
				{content, ofType("resource_link", drop("icons"))},
				{template, drop("icons")},
				{prompt, drop("icons")},
				{implementation, drop("icons")},
			},
		},
		rule{"An implementation loses its `description` and its `websiteUrl`.", edits{
			{implementation, drop("description", "websiteUrl")},
		}},
		rule{"Tasks are dropped: a tool's `execution`, a request's `task`, the capability `tasks` and " +
			"the key `related-task` of `_meta`. A result that is a task is refused.", edits{
			{tool, drop("execution")},
			{augmented, drop("task")},
			{clientCan, drop("tasks")},
			{serverCan, drop("tasks")},
			{
				messages(Result, "tools/call", "sampling/createMessage", "elicitation/create"),
				when("task", refuseTask),
			},
			{every(Params), dropMeta("related-task")},
			{every(Result), dropMeta("related-task")},
			{every(Notification), dropMeta("related-task")},
		}},
		rule{"Sampling loses `tools` and `toolChoice`; a request that requires the use of a tool is " +
			"refused. A `tool_use` or a `tool_result` becomes a text.", edits{
			{sampling, all(when("toolChoice", refuseRequiredTool), drop("tools", "toolChoice"))},
			{content, all(
				ofType("tool_use", replaced(toolUseText)),
				ofType("tool_result", replaced(toolResultText)),
			)},
		}},
		rule{"A sampling message with several contents becomes several messages, and a sampling answer " +
			"with several contents one text. A message loses its `_meta`.", edits{
			{samplingMessage, all(drop("_meta"), edit{do: splitMessage})},
			{samplingResult, member("content", edit{do: joinContent})},
		}},
		rule{"Client capabilities: `sampling` loses its members, and so does `elicitation`, which is " +
			"dropped when it is about addresses only.", edits{
			{clientCan, all(
				path(drop("tools", "context"), "sampling"),
				member("elicitation", edit{do: formsOnly}),
			)},
		}},
		rule{"Elicitation that asks the user to visit an address is refused; `mode` is dropped.", edits{
			{elicitation, when("mode", refuseURL)},
		}},
		rule{"Elicitation forms: titled choices become `enum` and `enumNames`; a choice of several is " +
			"dropped when it is optional and refused when it is required; `default` stays only where the " +
			"field is a boolean; `$schema` is dropped.", edits{
			{
				elicitation,
				member("requestedSchema",
					all(drop("$schema"), edit{do: singleChoices}, path(values(plainField), "properties"))),
			},
		}},
	),
	up: toward(nil),
}
