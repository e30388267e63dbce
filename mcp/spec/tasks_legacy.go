package spec

// What follows are the tasks of revision 2025-11-25, which the extension
// replaced.

// The values of ToolExecution.TaskSupport.
const (
	TaskForbidden = "forbidden" // the default
	TaskOptional  = "optional"
	TaskRequired  = "required"
)

// ToolExecution says how a tool can be run. Legacy.
type ToolExecution struct {
	TaskSupport string `json:"taskSupport,omitzero"`
}

// TaskMetadata is in the params of a request that is to be run as a task. Legacy.
type TaskMetadata struct {
	TTL *int64 `json:"ttl,omitzero"` // ms
}

// RelatedTaskMetadata is the value of MetaRelatedTask. Legacy.
type RelatedTaskMetadata struct {
	TaskID string `json:"taskId"`
}

// LegacyTask is the state of a task of revision 2025-11-25.
type LegacyTask struct {
	TaskID        string `json:"taskId"`
	Status        string `json:"status"`
	StatusMessage string `json:"statusMessage,omitzero"`
	CreatedAt     string `json:"createdAt"`     // ISO 8601
	LastUpdatedAt string `json:"lastUpdatedAt"` // ISO 8601
	TTL           *int64 `json:"ttl"`           // ms since CreatedAt; nil: without end
	PollInterval  *int64 `json:"pollInterval,omitzero"`
}

// LegacyCreateTaskResult is the answer to a request that runs as a task.
type LegacyCreateTaskResult struct {
	Meta Meta       `json:"_meta,omitzero"`
	Task LegacyTask `json:"task"`
}

// LegacyTaskResult is the result of the legacy tasks/get and tasks/cancel.
type LegacyTaskResult struct {
	Meta Meta `json:"_meta,omitzero"`
	LegacyTask
}

// ListTasksResult is the result of tasks/list. Legacy.
type ListTasksResult struct {
	Meta       Meta         `json:"_meta,omitzero"`
	NextCursor string       `json:"nextCursor,omitzero"`
	Tasks      []LegacyTask `json:"tasks"`
}

// LegacyTaskStatusNotificationParams are the params of
// notifications/tasks/status.
type LegacyTaskStatusNotificationParams struct {
	Meta Meta `json:"_meta,omitzero"`
	LegacyTask
}

// TasksCapability says what of tasks a client or a server knows. Legacy.
type TasksCapability struct {
	List     JSONObject              `json:"list,omitzero"`
	Cancel   JSONObject              `json:"cancel,omitzero"`
	Requests *TaskRequestsCapability `json:"requests,omitzero"`
}

// TaskRequestsCapability says which requests can run as a task: tools/call of a
// server, the others of a client. Legacy.
type TaskRequestsCapability struct {
	Tools       *TaskToolsCapability       `json:"tools,omitzero"`
	Sampling    *TaskSamplingCapability    `json:"sampling,omitzero"`
	Elicitation *TaskElicitationCapability `json:"elicitation,omitzero"`
}

// TaskToolsCapability is part of TaskRequestsCapability. Legacy.
type TaskToolsCapability struct {
	Call JSONObject `json:"call,omitzero"`
}

// TaskSamplingCapability is part of TaskRequestsCapability. Legacy.
type TaskSamplingCapability struct {
	CreateMessage JSONObject `json:"createMessage,omitzero"`
}

// TaskElicitationCapability is part of TaskRequestsCapability. Legacy.
type TaskElicitationCapability struct {
	Create JSONObject `json:"create,omitzero"`
}
