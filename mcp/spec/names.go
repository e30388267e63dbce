package spec

import "slices"

// The revisions, for options that take the name of one. Package era says what is in which.
const (
	Revision20241105 = "2024-11-05"
	Revision20250326 = "2025-03-26"
	Revision20250618 = "2025-06-18"
	Revision20251125 = "2025-11-25"
	Revision20260728 = "2026-07-28"
)

// The methods. A constant is named as its method is written.
const (
	MethodServerDiscover         = "server/discover"
	MethodToolsList              = "tools/list"
	MethodToolsCall              = "tools/call"
	MethodResourcesList          = "resources/list"
	MethodResourcesTemplatesList = "resources/templates/list"
	MethodResourcesRead          = "resources/read"
	MethodPromptsList            = "prompts/list"
	MethodPromptsGet             = "prompts/get"
	MethodCompletionComplete     = "completion/complete"
	MethodSubscriptionsListen    = "subscriptions/listen"
)

// The methods of what a server asks of its client: an InputRequest, and a separate
// request in legacy revisions.
const (
	MethodElicitationCreate     = "elicitation/create"
	MethodSamplingCreateMessage = "sampling/createMessage"
	MethodRootsList             = "roots/list"
)

// The methods of tasks. The extension has get, update and cancel.
const (
	MethodTasksGet    = "tasks/get"
	MethodTasksUpdate = "tasks/update" // not of legacy tasks
	MethodTasksCancel = "tasks/cancel"
	MethodTasksResult = "tasks/result" // legacy
	MethodTasksList   = "tasks/list"   // legacy
)

// The methods of legacy revisions.
const (
	MethodInitialize           = "initialize"
	MethodPing                 = "ping"
	MethodLoggingSetLevel      = "logging/setLevel"
	MethodResourcesSubscribe   = "resources/subscribe"
	MethodResourcesUnsubscribe = "resources/unsubscribe"
)

// The notifications.
const (
	NotificationCancelled                 = "notifications/cancelled"
	NotificationProgress                  = "notifications/progress"
	NotificationMessage                   = "notifications/message"
	NotificationToolsListChanged          = "notifications/tools/list_changed"
	NotificationPromptsListChanged        = "notifications/prompts/list_changed"
	NotificationResourcesListChanged      = "notifications/resources/list_changed"
	NotificationResourcesUpdated          = "notifications/resources/updated"
	NotificationSubscriptionsAcknowledged = "notifications/subscriptions/acknowledged"
	NotificationTasks                     = "notifications/tasks" // of the tasks extension
)

// The notifications of legacy revisions.
const (
	NotificationInitialized         = "notifications/initialized"
	NotificationRootsListChanged    = "notifications/roots/list_changed"
	NotificationTasksStatus         = "notifications/tasks/status"
	NotificationElicitationComplete = "notifications/elicitation/complete"
)

// IsMethod reports whether MCP, or its tasks extension, defines a method or notification in some
// revision.
func IsMethod(method string) bool {
	switch method {
	case MethodServerDiscover, MethodToolsList, MethodToolsCall, MethodResourcesList,
		MethodResourcesTemplatesList, MethodResourcesRead,
		MethodPromptsList, MethodPromptsGet, MethodCompletionComplete, MethodSubscriptionsListen,
		MethodElicitationCreate, MethodSamplingCreateMessage, MethodRootsList,
		MethodTasksGet, MethodTasksUpdate, MethodTasksCancel, MethodTasksResult, MethodTasksList,
		MethodInitialize, MethodPing, MethodLoggingSetLevel, MethodResourcesSubscribe,
		MethodResourcesUnsubscribe,
		NotificationCancelled, NotificationProgress, NotificationMessage, NotificationToolsListChanged,
		NotificationPromptsListChanged,
		NotificationResourcesListChanged, NotificationResourcesUpdated,
		NotificationSubscriptionsAcknowledged, NotificationTasks,
		NotificationInitialized, NotificationRootsListChanged, NotificationTasksStatus,
		NotificationElicitationComplete:
		return true
	}
	return false
}

// The keys of _meta that the protocol defines (2026-07-28, basic, "_meta").
const (
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"
	MetaProgressToken      = "progressToken"
)

// The keys of _meta that carry a trace (basic, "OpenTelemetry Trace Context").
const (
	MetaTraceParent = "traceparent"
	MetaTraceState  = "tracestate"
	MetaBaggage     = "baggage"
)

// The keys of _meta that legacy tasks define.
const (
	MetaRelatedTask            = "io.modelcontextprotocol/related-task"
	MetaModelImmediateResponse = "io.modelcontextprotocol/model-immediate-response"
)

// The extensions.
const (
	ExtensionTasks = "io.modelcontextprotocol/tasks"
)

// The values of resultType. A result without one is complete.
const (
	ResultComplete      = "complete"
	ResultInputRequired = "input_required"
	ResultTask          = "task" // of the tasks extension
)

// The values of cacheScope.
const (
	CachePublic  = "public"
	CachePrivate = "private"
)

// The roles.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// The levels of logging, of RFC 5424.
const (
	LogDebug     = "debug"
	LogInfo      = "info"
	LogNotice    = "notice"
	LogWarning   = "warning"
	LogError     = "error"
	LogCritical  = "critical"
	LogAlert     = "alert"
	LogEmergency = "emergency"
)

// LogLevels returns the levels of logging, the least severe first.
func LogLevels() []string {
	return []string{
		LogDebug, LogInfo, LogNotice, LogWarning, LogError, LogCritical, LogAlert,
		LogEmergency,
	}
}

// LogSeverity returns how severe a level is, 0 for the least, and -1 when there
// is no such level.
func LogSeverity(level string) int { return slices.Index(LogLevels(), level) }
