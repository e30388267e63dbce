package spec_test

import (
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The examples of the tasks extension, and what its text says a member must be.
func TestTasks(t *testing.T) {
	ttl, poll := int64(3600000), int64(5000)
	task := spec.Task{
		TaskID: "786512e2", Status: spec.TaskWorking,
		CreatedAt: "2025-11-25T10:30:00Z", LastUpdatedAt: "2025-11-25T10:50:00Z", TTLMS: &ttl,
		PollIntervalMS: &poll,
	}
	is := func(status string) spec.Task {
		t := task
		t.Status = status
		return t
	}
	const rest = `"createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:50:00Z",` +
		`"ttlMs":3600000,"pollIntervalMs":5000`
	for name, test := range map[string]struct {
		v    any
		want string
	}{
		"created": {
			&spec.CreateTaskResult{ResultType: spec.ResultTask, Task: task},
			`{"resultType":"task","taskId":"786512e2","status":"working",` + rest + `}`,
		},
		"without end": { // ttlMs is required, and null says unlimited
			&spec.CreateTaskResult{
				ResultType: spec.ResultTask,
				Task:       spec.Task{TaskID: "1", Status: spec.TaskWorking, StatusMessage: "m"},
			},
			`{"resultType":"task","taskId":"1","status":"working","statusMessage":"m","createdAt":"",` +
				`"lastUpdatedAt":"","ttlMs":null}`,
		},
		"input required": {
			&spec.GetTaskResult{ResultType: spec.ResultComplete, DetailedTask: spec.DetailedTask{
				Task: is(spec.TaskInputRequired),
				InputRequests: map[string]spec.InputRequest{
					"name": {Method: spec.MethodElicitationCreate, Params: jsonrpc.Raw(`{"message":"m"}`)},
				},
			}},
			`{"resultType":"complete","taskId":"786512e2","status":"input_required",` + rest +
				`,"inputRequests":{"name":{"method":"elicitation/create","params":{"message":"m"}}}}`,
		},
		"completed": {
			&spec.TaskStatusNotificationParams{DetailedTask: spec.DetailedTask{
				Task: is(spec.TaskCompleted), Result: jsonrpc.Raw(`{"content":[],"isError":false}`),
			}},
			`{"taskId":"786512e2","status":"completed",` + rest +
				`,"result":{"content":[],"isError":false}}`,
		},
		"failed": {
			&spec.GetTaskResult{ResultType: spec.ResultComplete, DetailedTask: spec.DetailedTask{
				Task: is(spec.TaskFailed), Error: &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "m"},
			}},
			`{"resultType":"complete","taskId":"786512e2","status":"failed",` + rest +
				`,"error":{"code":-32603,"message":"m"}}`,
		},
		"update": {
			&spec.UpdateTaskParams{
				TaskID: "1", InputResponses: map[string]jsonrpc.Raw{"name": jsonrpc.Raw(`{"action":"accept"}`)},
			},
			`{"taskId":"1","inputResponses":{"name":{"action":"accept"}}}`,
		},
		"listen": {
			&spec.SubscriptionsListenRequestParams{
				Notifications: spec.SubscriptionFilter{TaskIDs: []string{"1"}},
			},
			`{"notifications":{"taskIds":["1"]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := jsonv2.Append(nil, test.v)
			if err != nil || string(got) != test.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, test.want)
			}
			roundTrip(t, []byte(test.want), test.v)
		})
	}
}

func TestTaskEnded(t *testing.T) {
	for status, want := range map[string]bool{
		spec.TaskWorking: false, spec.TaskInputRequired: false, "": false,
		spec.TaskCompleted: true, spec.TaskFailed: true, spec.TaskCancelled: true,
	} {
		if spec.TaskEnded(status) != want {
			t.Errorf("%q: not %v", status, want)
		}
	}
}

func TestLogSeverity(t *testing.T) {
	if spec.LogSeverity(spec.LogDebug) != 0 || spec.LogSeverity(spec.LogEmergency) != 7 ||
		spec.LogSeverity("loud") != -1 {
		t.Error("levels are out of order")
	}
}
