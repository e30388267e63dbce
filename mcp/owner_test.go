package mcp

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// someOwners are owners of calls that stand alone, of every kind.
func someOwners() []owner.Key {
	return []owner.Key{
		owner.Principal("key", "user", "", "x"), owner.Principal("key", "agent", "", "x"),
		owner.Principal("mtls", "user", "", "x"),
		owner.Connection("1", "192.0.2.1"), owner.Connection("2", "192.0.2.1"), owner.Connection("3", ""),
		owner.Address("192.0.2.1"), owner.Address("198.51.100.7"),
	}
}

// Two owners of every pair: neither sees the other's tasks and rounds; one fills the table of
// tasks, and the other still has room.
func TestOwnersOfTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, one := range someOwners() {
			for _, other := range someOwners() {
				if one == other {
					continue
				}
				s := taskServer(t, spec.TaskRequired, &ServerOptions{MaxTasks: 100}, sleepMinute)
				r := sendModernAs(t, s, one, canAll, spec.MethodToolsCall, `{"name":"work"}`)
				id := r.Result.TaskID
				for _, method := range []string{
					spec.MethodTasksGet, spec.MethodTasksCancel,
					spec.MethodTasksUpdate,
				} {
					if r := sendModernAs(t, s, other, canAll, method,
						fmt.Sprintf(`{"taskId":%q,"inputResponses":{}}`, id)); r.text() != "error -32602" {
						t.Errorf("%v does %s with a task of %v: %s", other, method, one, r.raw)
					}
				}
				for n := 0; ; n++ {
					r := sendModernAs(t, s, one, canAll, spec.MethodToolsCall, `{"name":"work"}`)
					if r.Error != nil && r.Error.Code == jsonrpc.Overloaded {
						break
					}
					if n > 100 {
						t.Fatalf("%v is not bounded: %s", one, r.raw)
					}
				}
				if r := sendModernAs(t, s, other, canAll, spec.MethodToolsCall,
					`{"name":"work"}`); r.Result.TaskID == "" {
					t.Errorf("%v has filled the table, and %v has no room: %s", one, other, r.raw)
				}
				if r := sendModernAs(t, s, one, canAll, spec.MethodTasksGet,
					fmt.Sprintf(`{"taskId":%q}`, id)); r.Result.Status != spec.TaskWorking {
					t.Errorf("%v does not find its own task: %s", one, r.raw)
				}
			}
		}
	})
}

func TestOwnersOfRounds(t *testing.T) {
	for _, one := range someOwners() {
		for _, other := range someOwners() {
			s := askServer(t, func(ctx context.Context) (string, error) {
				form, err := Elicit[askForm](ctx, "Who?")
				return fmt.Sprint(form), err
			}, nil)
			r := sendModernAs(t, s, one, canAll, spec.MethodToolsCall, `{"name":"ask"}`)
			if r.Result.RequestState == "" {
				t.Fatalf("no question: %s", r.raw)
			}
			again := fmt.Sprintf(`{"name":"ask","requestState":%q,"inputResponses":{}}`,
				r.Result.RequestState)
			got := sendModernAs(t, s, other, canAll, spec.MethodToolsCall, again)
			if refused := got.Error != nil &&
				got.Error.Code == jsonrpc.InvalidParams; refused != (one != other) {
				t.Errorf("%v goes on with what %v began: %s", other, one, got.raw)
			}
		}
	}
}

// An address may be that of several callers: its tasks are not listed.
func TestAddressHasNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskRequired, nil, sleepMinute)
		for _, tt := range []struct {
			o    owner.Key
			want int
		}{{owner.Address("192.0.2.1"), 0}, {owner.Connection("1", ""), 1}, {owner.Named("ada"), 1}} {
			sendModernAs(t, s, tt.o, canAll, spec.MethodToolsCall, `{"name":"work"}`)
			if got := s.tasks.after(0, tt.o, 10); len(got) != tt.want {
				t.Errorf("%v lists %d tasks", tt.o, len(got))
			}
		}
	})
}
