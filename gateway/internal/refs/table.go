package refs

// A kind says what a text in a message is, and so what is done with it.
type kind uint8

const (
	kindNone     kind = iota // undecided: left alone
	kindName                 // of a tool, a prompt or a group: NAME__x
	kindURI                  // or a URI template: LABEL+x and ui://LABEL+/x
	kindID                   // an id that is unique at one server only: LABEL+x
	kindArgument             // anything that a caller gives to a tool: a URI is stripped, at any depth
	kindOwn                  // the gateway's own in each hop: cursors, tokens, task ids. Left alone here
	kindKept                 // no reference to anything of the server, or none that may be changed
	kindDropped              // true of the server's own address only: removed for the client
)

// A shape is its own table, which many messages contain.
type shape uint8

const (
	shapeNone     shape = iota
	shapeContent        // a content block
	shapeContents       // the contents of a resource
	shapeMeta           // _meta of what a server sends
	shapeMetaUp         // _meta of what a client sends
	shapeQuestion       // the params of what a server asks a client
	shapeAnswer         // the result of that
	shapeTask           // a task with what has become of it
	shapes
)

// A direction says who sends a message.
type direction uint8

const (
	toClient direction = iota
	toServer
	bothWays
)

// revisions is a set of revisions, the oldest in the lowest bit.
type revisions uint8

const (
	all       revisions = 0b11111
	fromThird revisions = 0b11100 // 2025-06-18 and later
	from4th   revisions = 0b11000 // 2025-11-25 and later
	only4th   revisions = 0b01000
	upTo4th   revisions = 0b01111
	newest    revisions = 0b10000
)

// A row is one place, or several that are alike. A path begins with the part of the message:
// params, result, error.data, or with nothing in the table of a shape; a member with dots in its
// name is in quotes. "[]" stands for the elements of an array, "[?]" for those or the value itself,
// "*" for any member. The method "*" is any.
type row struct {
	revs   revisions
	method string
	dir    direction
	path   string
	kind   kind
	shape  shape
}

// table has every place in the messages of MCP and its extensions where something of a server is
// named. A place that no row has holds no reference. A test holds it to the schemas of all
// revisions.
var table = []row{
	// Lists and calls.
	{all, "tools/list", toClient, "result.tools[].name", kindName, 0},
	{all, "tools/list", toClient, "result.tools[]._meta", 0, shapeMeta},
	{all, "tools/call", toServer, "params.name", kindName, 0},
	{all, "tools/call", toServer, "params.arguments", kindArgument, 0},
	{all, "tools/call", toClient, "result.content[]", 0, shapeContent},
	{fromThird, "tools/call", toClient, "result.structuredContent", kindKept, 0}, // bound by the tool's outputSchema
	{all, "prompts/list", toClient, "result.prompts[].name", kindName, 0},
	{all, "prompts/list", toClient, "result.prompts[]._meta", 0, shapeMeta},
	{all, "prompts/get", toServer, "params.name", kindName, 0},
	{all, "prompts/get", toServer, "params.arguments", kindArgument, 0},
	{all, "prompts/get", toClient, "result.messages[].content[?]", 0, shapeContent},
	{all, "resources/list", toClient, "result.resources[].uri", kindURI, 0},
	{all, "resources/list", toClient, "result.resources[]._meta", 0, shapeMeta},
	{all, "resources/templates/list", toClient, "result.resourceTemplates[].uriTemplate", kindURI, 0},
	{all, "resources/templates/list", toClient, "result.resourceTemplates[]._meta", 0, shapeMeta},
	{all, "resources/read", toServer, "params.uri", kindURI, 0},
	{all, "resources/read", toClient, "result.contents[]", 0, shapeContents},
	{all, "resources/read", toClient, "error.data.uri", kindURI, 0},
	{upTo4th, "resources/subscribe", toServer, "params.uri", kindURI, 0},
	{upTo4th, "resources/unsubscribe", toServer, "params.uri", kindURI, 0},
	{all, "notifications/resources/updated", toClient, "params.uri", kindURI, 0},
	{all, "completion/complete", toServer, "params.ref.name", kindName, 0},
	{all, "completion/complete", toServer, "params.ref.uri", kindURI, 0},
	{all, "completion/complete", toServer, "params.argument.value", kindArgument, 0},
	{all, "completion/complete", toServer, "params.argument.name", kindKept, 0}, // of an argument
	{fromThird, "completion/complete", toServer, "params.context.arguments", kindArgument, 0},
	{all, "*", bothWays, "params.cursor", kindOwn, 0},
	{all, "*", bothWays, "result.nextCursor", kindOwn, 0},

	// Subscriptions, progress, cancellation.
	{newest, "subscriptions/listen", toServer, "params.notifications.resourceSubscriptions[]", kindURI, 0},
	{newest, "subscriptions/listen", toServer, "params.notifications.taskIds[]", kindOwn, 0},
	{newest, "notifications/subscriptions/acknowledged", toClient, "params.notifications.resourceSubscriptions[]", kindURI, 0},
	{newest, "notifications/subscriptions/acknowledged", toClient, "params.notifications.taskIds[]", kindOwn, 0},
	{all, "notifications/progress", bothWays, "params.progressToken", kindOwn, 0},
	{all, "notifications/cancelled", bothWays, "params.requestId", kindOwn, 0},
	{all, "*", toClient, "params._meta", 0, shapeMeta},
	{all, "*", toClient, "result._meta", 0, shapeMeta},
	{all, "*", toServer, "params._meta", 0, shapeMetaUp},
	{all, "*", toServer, "result._meta", 0, shapeMetaUp},

	// What servers ask of clients, as requests and as parts of a result.
	{all, "sampling/createMessage", toClient, "params", 0, shapeQuestion},
	{all, "sampling/createMessage", toServer, "result", 0, shapeAnswer},
	{all, "roots/list", toServer, "result.roots[].uri", kindKept, 0}, // the client's
	{from4th, "elicitation/create", toClient, "params.url", kindKept, 0},
	{only4th, "elicitation/create", toClient, "params.elicitationId", kindID, 0},
	{only4th, "notifications/elicitation/complete", toClient, "params.elicitationId", kindID, 0},
	{only4th, "*", toClient, "error.data.elicitations[]", 0, shapeQuestion},
	{newest, "*", toClient, "result.inputRequests.*.params", 0, shapeQuestion},
	{newest, "*", toServer, "params.inputResponses.*", 0, shapeAnswer},
	{newest, "*", toClient, "result.requestState", kindOwn, 0},
	{newest, "*", toServer, "params.requestState", kindOwn, 0},

	// Tasks. Their ids are the gateway's; what they hold is the server's.
	{only4th, "*", toClient, "result.task.taskId", kindOwn, 0},
	{all, "*", bothWays, "params.taskId", kindOwn, 0},
	{only4th, "tasks/list", bothWays, "result.tasks[].taskId", kindOwn, 0},
	{from4th, "*", bothWays, "result.taskId", kindOwn, 0},
	{only4th, "tasks/result", toClient, "result.content[]", 0, shapeContent},
	{newest, "tasks/get", toClient, "result", 0, shapeTask},
	{newest, "notifications/tasks", toClient, "params", 0, shapeTask},

	// Skills.
	{newest, "skills/list", toClient, "result.skills[].uri", kindURI, 0},
	{newest, "skills/list", toClient, "result.skills[].resources[].uri", kindURI, 0},
	{newest, "skills/list", toClient, "result.skills[]._meta", 0, shapeMeta},
	{newest, "skills/get", toServer, "params.uri", kindURI, 0},
	{newest, "skills/get", toClient, "result.skill.uri", kindURI, 0},
	{newest, "skills/get", toClient, "result.skill.resources[].uri", kindURI, 0},
	{newest, "skills/get", toClient, "result.skill._meta", 0, shapeMeta},
	{newest, "skills/get", toClient, "error.data.uri", kindURI, 0},
	{newest, "resources/directory/read", toServer, "params.uri", kindURI, 0},
	{newest, "resources/directory/read", toClient, "result.resources[].uri", kindURI, 0},
	{newest, "resources/directory/read", toClient, "result.resources[]._meta", 0, shapeMeta},
	{newest, "resources/directory/read", toClient, "error.data.uri", kindURI, 0},

	// Groups (experimental).
	{newest, "groups/list", toClient, "result.groups[].name", kindName, 0},
}

// shapeTables has the places of the shapes. Blocks are not told apart by their type, which may come
// last or twice: none has a member of these names that means something else.
var shapeTables = [shapes][]row{
	shapeContent: {
		{path: "uri", kind: kindURI}, // of a resource_link
		{path: "resource", shape: shapeContents},
		{path: "content[]", shape: shapeContent}, // of a tool_result
		{path: "_meta", shape: shapeMeta},
		{path: "name", kind: kindKept}, // of a resource_link, which is a label, or of a tool_use
	},
	shapeContents: {
		{path: "uri", kind: kindURI},
		{path: "_meta", shape: shapeMeta},
	},
	shapeMeta: {
		{path: "ui.resourceUri", kind: kindURI},
		{path: "ui.domain", kind: kindDropped}, // a hash of the server's own address
		{path: "ui/resourceUri", kind: kindURI},
		{path: "openai/outputTemplate", kind: kindURI},
		{path: "'io.modelcontextprotocol/groups'[]", kind: kindName},
		{path: "'io.modelcontextprotocol/related-task'.taskId", kind: kindOwn},
		{path: "'io.modelcontextprotocol/subscriptionId'", kind: kindOwn},
		{path: "'io.modelcontextprotocol/serverInfo'", kind: kindOwn},
		{path: "progressToken", kind: kindOwn},
	},
	shapeMetaUp: {
		{path: "'io.modelcontextprotocol/clientInfo'", kind: kindOwn},
		{path: "'io.modelcontextprotocol/groups'[]", kind: kindName},
		{path: "'io.modelcontextprotocol/related-task'.taskId", kind: kindOwn},
		{path: "progressToken", kind: kindOwn},
	},
	shapeQuestion: {
		{path: "messages[].content[?]", shape: shapeContent}, // of sampling
		{path: "tools[].name", kind: kindKept},               // the request's own
		{path: "elicitationId", kind: kindID},
		{path: "url", kind: kindKept},
		{path: "_meta", shape: shapeMeta},
	},
	shapeAnswer: {
		{path: "content[?]", shape: shapeContent}, // of sampling, see unlessAction
		{path: "roots[].uri", kind: kindKept},     // the client's
		{path: "_meta", shape: shapeMetaUp},
	},
	shapeTask: {
		{path: "taskId", kind: kindOwn},
		{path: "result.content[]", shape: shapeContent},
		{path: "result.messages[].content[?]", shape: shapeContent},
		{path: "result.contents[]", shape: shapeContents},
		{path: "result._meta", shape: shapeMeta},
		{path: "inputRequests.*.params", shape: shapeQuestion},
		{path: "error.data.elicitations[]", shape: shapeQuestion},
		{path: "_meta", shape: shapeMeta},
	},
}

// unlessAction is the member that an answer of elicitation has: its content is what a user has
// entered, which is not content blocks.
const unlessAction = "action"
