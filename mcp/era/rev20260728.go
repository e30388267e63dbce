package era

import (
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

var rev20260728 = &Revision{
	Name: spec.Revision20260728,

	RequestMeta:           true,
	InputRounds:           true,
	ResultTypes:           true,
	CacheHints:            true,
	ListenStream:          true,
	MirroredHeaders:       true,
	ReservedCodes:         true,
	StreamableHTTP:        true,
	VersionHeader:         true,
	MetaLogLevel:          true,
	ProgressMessage:       true,
	CompletionsCapability: true,
	CompletionContext:     true,
	Extensions:            true,
	Audio:                 true,
	ResourceLinks:         true,
	ToolAnnotations:       true,
	StructuredContent:     true,
	OutputSchema:          true,
	AnyStructured:         true,
	Titles:                true,
	Icons:                 true,
	Elicitation:           true,
	ElicitationURL:        true,
	ElicitationDefaults:   true,
	ElicitationEnums:      true,
	SamplingTools:         true,
	TasksExtension:        true,

	ResourceNotFound:   jsonrpc.InvalidParams,
	UnsupportedVersion: -32022,
}

// step20260728: stateless.
var step20260728 = step{
	down: toward([]string{
		"server/discover", "subscriptions/listen", "tasks/update",
		"notifications/subscriptions/acknowledged", "notifications/tasks",
	},
		rule{"A result of type `task` becomes a `task` object. A task has `ttl` and `pollInterval` for " +
			"`ttlMs` and `pollIntervalMs`; its result, its error and its questions are dropped: they are " +
			"asked for with tasks/result.", edits{
			{messages(Result, "tools/call"), when("resultType", wrapTask)},
			{task, legacyTask},
		}},
		rule{"A result loses its `resultType` when that is `complete`, and is refused when it is " +
			"anything else, such as `input_required`.", edits{
			{every(Result), member("resultType", edit{do: dropComplete})},
		}},
		rule{"`_meta` loses the protocol's keys: `protocolVersion`, `clientInfo`, `clientCapabilities` " +
			"and `logLevel` of a request, `serverInfo` of a result, `subscriptionId` of both a result and " +
			"a notification.", edits{
			{every(Params), dropMeta("protocolVersion", "clientInfo", "clientCapabilities", "logLevel")},
			{every(Result), dropMeta("serverInfo", "subscriptionId")},
			{every(Notification), dropMeta("subscriptionId")},
		}},
		rule{"A request with `inputResponses` or `requestState` is refused.", edits{
			{retried, all(
				member("inputResponses",
					refused("has no answers to a server's questions in a request: ask the server again")),
				member("requestState", refused("has no state in a request: ask the server again")),
			)},
		}},
		rule{
			"Lists and resources lose the cache hints `ttlMs` and `cacheScope`.",
			edits{{cacheable, drop("ttlMs", "cacheScope")}},
		},
		rule{"`structuredContent` that is no object is dropped. It is written into a text when there " +
			"is no other content.", edits{
			{toolResult, unstructure(notObject)},
			{content, ofType("tool_result", unstructure(notObject))},
		}},
		rule{"An `outputSchema` with a type that is not `object` is dropped. A property with a schema " +
			"that is `true` or `false` becomes an object.", edits{
			{tool, all(
				member("outputSchema", edit{do: objectSchema}),
				path(values(booleanSchema), "outputSchema", "properties"),
				path(values(booleanSchema), "inputSchema", "properties"),
			)},
		}},
		rule{"Capabilities of a server lose `extensions`. Those of a client lose the extension of " +
			"tasks, which has another form; the others stay, as SEP-2133 has them in `initialize`, too, " +
			"and servers offer MCP Apps only to who declares them.", edits{
			{serverCan, drop("extensions")},
			{clientCan, when("extensions", path(drop(spec.ExtensionTasks), "extensions").do)},
		}},
		rule{"Elicitation that asks the user to visit an address gets an `elicitationId`, made from " +
			"its params.", edits{
			{elicitation, when("url", identify)},
		}},
	),
	up: toward(nil,
		rule{"A result of tools/call that has a `task` object becomes one of type `task`. A task has " +
			"`ttlMs` and `pollIntervalMs` for `ttl` and `pollInterval`.", edits{
			{messages(Result, "tools/call"), when("taskId", unwrapTask)},
			{task, modernTask},
		}},
		rule{
			"A result of a method that both have gets the `resultType` `complete`.",
			edits{{answers, add("resultType", `"complete"`)}},
		},
		rule{"Lists and resources get the cache hints `ttlMs` 0 and `cacheScope` private: do " +
			"not keep them.", edits{
			{cacheable, all(add("ttlMs", "0"), add("cacheScope", `"private"`))},
		}},
	),
}
