package spec

import "github.com/farcall-dev/farcall/jsonrpc"

// The states of a task, of both generations.
const (
	TaskWorking       = "working"
	TaskInputRequired = "input_required"
	TaskCompleted     = "completed"
	TaskFailed        = "failed"
	TaskCancelled     = "cancelled"
)

// TaskEnded reports whether a task in this state changes no more.
func TaskEnded(status string) bool {
	return status == TaskCompleted || status == TaskFailed || status == TaskCancelled
}

// Task is the state of a task of the extension io.modelcontextprotocol/tasks.
type Task struct {
	TaskID         string `json:"taskId"`
	Status         string `json:"status"`
	StatusMessage  string `json:"statusMessage,omitzero"`
	CreatedAt      string `json:"createdAt"`     // ISO 8601
	LastUpdatedAt  string `json:"lastUpdatedAt"` // ISO 8601
	TTLMS          *int64 `json:"ttlMs"`         // since CreatedAt; nil: without end
	PollIntervalMS *int64 `json:"pollIntervalMs,omitzero"`
}

// DetailedTask is a task with what belongs to its state.
type DetailedTask struct {
	Task
	InputRequests map[string]InputRequest `json:"inputRequests,omitzero"` // of TaskInputRequired
	Result        jsonrpc.Raw             `json:"result,omitzero"`        // of TaskCompleted
	Error         *jsonrpc.Error          `json:"error,omitzero"`         // of TaskFailed
}

// CreateTaskResult is the answer of a server that goes on with a request as a
// task.
type CreateTaskResult struct {
	Meta       Meta   `json:"_meta,omitzero"`
	ResultType string `json:"resultType,omitzero"` // ResultTask
	Task
}

// GetTaskResult is the result of tasks/get.
type GetTaskResult struct {
	Meta       Meta   `json:"_meta,omitzero"`
	ResultType string `json:"resultType,omitzero"` // ResultComplete
	DetailedTask
}

// TaskParams are the params of tasks/get and tasks/cancel, and of the legacy
// tasks/result.
type TaskParams struct {
	Meta   Meta   `json:"_meta,omitzero"`
	TaskID string `json:"taskId"`
}

// UpdateTaskParams are the params of tasks/update: what a task asked for.
type UpdateTaskParams struct {
	Meta           Meta                   `json:"_meta,omitzero"`
	TaskID         string                 `json:"taskId"`
	InputResponses map[string]jsonrpc.Raw `json:"inputResponses"`
}

// TaskStatusNotificationParams are the params of notifications/tasks.
type TaskStatusNotificationParams struct {
	Meta Meta `json:"_meta,omitzero"`
	DetailedTask
}
