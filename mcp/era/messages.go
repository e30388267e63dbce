package era

// message is one part of the calls of a method.
type message struct {
	kind   Kind
	method string
}

// A place is where a thing stands in a message: in makes of an edit of the
// thing one of the whole message.
type place struct {
	message
	in func(edit) edit
}

// A thing is a type of the protocol, which may stand in many messages.
type thing []place

func whole(e edit) edit { return e }

// at leads to a member; each element, when that is an array, is one thing.
func at(names ...string) func(edit) edit {
	return func(e edit) edit { return path(each(e), names...) }
}

// whole messages of the methods.
func messages(kind Kind, methods ...string) *thing {
	var t thing
	for _, method := range methods {
		t = append(t, place{message{kind, method}, whole})
	}
	return &t
}

// every message of that kind, also of methods that the protocol does not define.
func every(kind Kind) *thing { return messages(kind, "") }

// The things. A tools/call result is also the result of tasks/result, which
// answers what the task's own request would have been answered.
var (
	toolResult  = messages(Result, "tools/call", "tasks/result")
	sampling    = messages(Params, "sampling/createMessage")
	elicitation = messages(Params, "elicitation/create")
	augmented   = messages(Params, "tools/call", "sampling/createMessage", "elicitation/create")
	retried     = messages(Params, "tools/call", "prompts/get", "resources/read")
	cacheable   = messages(Result, "tools/list", "prompts/list", "resources/list",
		"resources/templates/list", "resources/read", "server/discover")
	answers = messages(Result, "tools/list", "tools/call", "prompts/list", "prompts/get",
		"resources/list",
		"resources/templates/list", "resources/read", "completion/complete", "tasks/get", "tasks/cancel")

	tool = &thing{
		{message{Result, "tools/list"}, at("tools")},
		{message{Params, "sampling/createMessage"}, at("tools")},
	}
	resource       = &thing{{message{Result, "resources/list"}, at("resources")}}
	template       = &thing{{message{Result, "resources/templates/list"}, at("resourceTemplates")}}
	prompt         = &thing{{message{Result, "prompts/list"}, at("prompts")}}
	root           = &thing{{message{Result, "roots/list"}, at("roots")}}
	reference      = &thing{{message{Params, "completion/complete"}, at("ref")}}
	implementation = &thing{
		{message{Params, "initialize"}, at("clientInfo")},
		{message{Result, "initialize"}, at("serverInfo")},
	}
	clientCan = &thing{{message{Params, "initialize"}, at("capabilities")}}
	serverCan = &thing{{message{Result, "initialize"}, at("capabilities")}}

	// content in all places that are read by a person or a model.
	content = &thing{
		{message{Result, "tools/call"}, at("content")},
		{message{Result, "tasks/result"}, at("content")},
		{message{Result, "prompts/get"}, atMessages},
		{message{Params, "sampling/createMessage"}, atMessages},
		{message{Result, "sampling/createMessage"}, at("content")},
	}
	samplingMessage = &thing{{message{Params, "sampling/createMessage"}, at("messages")}}
	samplingResult  = messages(Result, "sampling/createMessage")

	task = &thing{
		{message{Result, "tasks/get"}, whole},
		{message{Result, "tasks/cancel"}, whole},
		{message{Result, "tasks/list"}, at("tasks")},
		{message{Notification, "notifications/tasks/status"}, whole},
	}
)

func atMessages(e edit) edit { return at("messages")(at("content")(e)) }
