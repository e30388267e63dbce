package mcp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// resumingRelay is a fakeRelay with tasks that go on without it.
type resumingRelay struct {
	*fakeRelay
	resume func(ctx context.Context, state string) (string, error)
}

func (r *resumingRelay) ResumeTask(
	ctx context.Context, _ *era.Revision, state []byte,
) (jsonrpc.Raw, *era.Revision, error) {
	text, err := r.resume(ctx, string(state))
	return jsonrpc.Raw(fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":%q}]}`,
		text)), era.Latest(), err
}

// TestRelayTaskIsResumed follows a task over three servers on one store: the first is closed, the
// second one cannot reach the task at once, and the third one finds its end.
func TestRelayTaskIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, ann := store.New(nil), owner.Named("ann")
		resumed := 0
		serve := func(resume func(ctx context.Context) (string, error)) *Server {
			f := &resumingRelay{taskRelay(spec.TaskOptional, func(ctx context.Context) (string, error) {
				if err := relay.KeepTask(ctx, make([]byte, 5000)); err == nil {
					t.Error("a state of 5000 bytes is kept")
				}
				if err := errors.Join(relay.KeepTask(ctx, []byte("theirs")), StartTask(ctx)); err != nil {
					return "", err
				}
				<-ctx.Done()
				return "", context.Cause(ctx)
			}), func(ctx context.Context, state string) (string, error) {
				resumed++
				if state != "theirs" || relay.TaskOf(ctx) != relay.IsTask || owner.From(ctx) != ann {
					t.Errorf("resumed with %q", state)
				}
				return resume(ctx)
			}}
			s := NewServer("calc", "1.0", &ServerOptions{Relay: f, Tasks: kept})
			t.Cleanup(s.Close)
			return s
		}
		status := func(s *Server, id, want string) wireReply {
			t.Helper()
			synctest.Wait()
			r := getTaskAs(t, s, ann, id)
			synctest.Wait()
			if r.Result.Status != want {
				t.Errorf("want %s: %s", want, r.raw)
			}
			return r
		}
		wait := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}

		first := serve(wait)
		id, cancelled := startAs(t, first, ann), startAs(t, first, ann)
		first.Close()
		away := true
		second := serve(func(ctx context.Context) (string, error) {
			if away {
				return "", fmt.Errorf("%w: it is away", relay.ErrTaskLeft)
			}
			return wait(ctx)
		})
		if r := getTaskAs(t, second, owner.Named("ben"), id); r.Error == nil || resumed != 0 {
			t.Errorf("another owner resumes the task: %s", r.raw)
		}
		status(second, id, spec.TaskWorking)
		status(second, id, spec.TaskWorking)
		if resumed != 2 {
			t.Errorf("a task that is away was resumed %d times by two requests", resumed)
		}
		away = false
		status(second, id, spec.TaskWorking)
		status(second, id, spec.TaskWorking)
		if resumed != 3 {
			t.Errorf("a task that is followed is resumed again: %d", resumed)
		}
		sendModernAs(t, second, ann, canAll, "tasks/cancel", fmt.Sprintf(`{"taskId":%q}`, cancelled))
		status(second, cancelled, spec.TaskCancelled)
		second.Close()

		found := make(chan struct{})
		third := serve(func(context.Context) (string, error) {
			<-found
			return "done", nil
		})
		status(third, id, spec.TaskWorking)
		close(found)
		end := status(third, id, spec.TaskCompleted)
		if end.Result.Result.Content[0].Text != "done" {
			t.Errorf("%s", end.raw)
		}
		status(third, cancelled, spec.TaskCancelled)

		// it resumes nothing
		plain := taskServer(t, spec.TaskOptional, &ServerOptions{Tasks: kept}, sleepMinute)
		if r := status(plain, id, spec.TaskCompleted); r.Result.Result.Content[0].Text != "done" {
			t.Errorf("%s", r.raw)
		}
		<-time.After(2 * time.Hour)
	})
}

// relayedBy returns a server of shared tasks that go on at an upstream; follow does so there, until
// the task has ended.
func relayedBy(
	t *testing.T, shared store.Store, follow func(context.Context) (string, error),
) *Server {
	t.Helper()
	f := &resumingRelay{taskRelay(spec.TaskOptional, func(ctx context.Context) (string, error) {
		if err := errors.Join(relay.KeepTask(ctx, []byte("theirs")), StartTask(ctx)); err != nil {
			return "", err
		}
		return follow(ctx)
	}), func(ctx context.Context, _ string) (string, error) { return follow(ctx) }}
	ann := func(context.Context) string { return "ann" }
	s := NewServer("calc", "1.0", &ServerOptions{Relay: f, Shared: shared, Owner: ann})
	t.Cleanup(s.Close)
	return s
}

// A task that no server can follow for a while is resumed by the server that its client asks next,
// also when the one that had it lives. Both may be asked at once.
func TestSharedTaskIsDormant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, ann := store.NewMemory(nil), owner.Named("ann")
		defer kept.Close()
		away, found := true, make(chan struct{})
		follows := map[string]int{}
		follower := func(name string) func(context.Context) (string, error) {
			return func(ctx context.Context) (string, error) {
				if away {
					return "", fmt.Errorf("%w: it is away", relay.ErrTaskLeft)
				}
				follows[name]++
				select {
				case <-found:
					return "done", nil
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}
		}
		a, b := relayedBy(t, kept, follower("a")), relayedBy(t, kept, follower("b"))
		id := startAs(t, a, ann)
		synctest.Wait()
		away = false
		for range 2 {
			if r := getTaskAs(t, b, ann, id); r.Result.Status != spec.TaskWorking {
				t.Errorf("by the other server: %s", r.raw)
			}
			synctest.Wait()
			if r := getTaskAs(t, a, ann, id); r.Result.Status != spec.TaskWorking {
				t.Errorf("by the server that had it: %s", r.raw)
			}
			synctest.Wait()
		}
		if follows["a"] != 0 || follows["b"] != 1 {
			t.Errorf("it is followed %v times", follows)
		}
		close(found)
		synctest.Wait()
		for _, s := range []*Server{a, b} {
			if r := getTaskAs(t, s, ann, id); r.Result.Status != spec.TaskCompleted ||
				r.Result.Result.Content[0].Text != "done" {
				t.Errorf("its end: %s", r.raw)
			}
		}
	})
}

// A server that was silent too long, and lives, learns that another one follows its task: the cause
// says that the task goes on, so that the relay does not cancel it at the upstream.
func TestSharedTaskIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, ann := store.NewMemory(nil), owner.Named("ann")
		defer kept.Close()
		way := &cut{Store: kept}
		causes, found := make(chan error, 1), make(chan struct{})
		a := relayedBy(t, way, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return "", context.Cause(ctx)
		})
		b := relayedBy(t, kept, func(context.Context) (string, error) {
			<-found
			return "done", nil
		})
		id := startAs(t, a, ann)
		way.off.Store(true)
		for range 8 {
			if r := getTaskAs(t, b, ann, id); r.Result.Status != spec.TaskWorking {
				t.Errorf("by the other server: %s", r.raw)
			}
			<-time.After(taskLease / 4)
		}
		way.off.Store(false)
		if r := getTaskAs(t, a, ann, id); r.Result.Status != spec.TaskWorking {
			t.Errorf("by the server that was silent: %s", r.raw)
		}
		if cause := <-causes; !errors.Is(cause, relay.ErrTaskLeft) {
			t.Errorf("it was given up because: %v", cause)
		}
		close(found)
		synctest.Wait()
		if r := getTaskAs(t, a, ann, id); r.Result.Status != spec.TaskCompleted {
			t.Errorf("its end: %s", r.raw)
		}
	})
}
