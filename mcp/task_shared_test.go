package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// A cut is the way of one server to a shared store, which may be cut.
type cut struct {
	store.Store
	off atomic.Bool
}

func (c *cut) Put(ctx context.Context, r *store.Record) (uint64, error) {
	if c.off.Load() {
		return 0, store.ErrUnavailable
	}
	return c.Store.Put(ctx, r)
}

func (c *cut) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	if c.off.Load() {
		return nil, store.ErrUnavailable
	}
	return c.Store.Get(ctx, owner, id)
}

// A stale way leads to an engine that was cut off: reads find nothing new, and writes have no
// answer until it has a quorum again.
type stale struct {
	store.Store
	alone, conflicts atomic.Bool
}

func (s *stale) Put(ctx context.Context, r *store.Record) (uint64, error) {
	if s.alone.Load() {
		return 0, errors.New("no answer in time")
	}
	return s.Store.Put(ctx, r)
}

func (s *stale) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	if s.alone.Load() || s.conflicts.Swap(false) {
		return nil, store.ErrNotFound
	}
	return s.Store.Get(ctx, owner, id)
}

// A server that reads at an engine which was cut off before a task was stored does not say that
// there is no such task. What there is not is not stored by asking for it.
func TestSharedTaskAtAStaleEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _, kept := sharingServers(t, sleepMinute)
		way := &stale{Store: kept}
		ann := func(context.Context) string { return "ann" }
		b := taskServer(t, spec.TaskOptional, &ServerOptions{Shared: way, Owner: ann}, sleepMinute)
		id := startAs(t, a, owner.Named("ann"))
		way.alone.Store(true)
		if r := askShared(t, b, "tasks/get", id, ""); r.Error == nil ||
			strings.Contains(r.raw, "no such task") {
			t.Errorf("cut off: %s", r.raw)
		}
		way.alone.Store(false)
		way.conflicts.Store(true) // the first read is answered as before
		if r := askShared(t, b, "tasks/get", id, ""); r.Result.Status != spec.TaskWorking {
			t.Errorf("with a quorum again: %s", r.raw)
		}
		for _, s := range []*Server{a, b, a} {
			if r := askShared(t, s, "tasks/get", strings.Repeat("A", len(id)), ""); !strings.Contains(r.raw,
				"no such task") {
				t.Errorf("an id of no task: %s", r.raw)
			}
		}
		name, _ := a.storedOwner(owner.Named("ann"))
		if _, err := kept.Get(t.Context(), name, strings.Repeat("A", len(id))); !errors.Is(err,
			store.ErrNotFound) {
			t.Errorf("an id of no task is stored: %v", err)
		}
		b.Close()
	})
}

// sharingServers are two servers of one store; the first one's way to it may be cut.
func sharingServers(
	t *testing.T, f func(context.Context) (string, error),
) (a, b *Server, way *cut, kept *store.Memory) {
	t.Helper()
	kept = store.NewMemory(nil)
	t.Cleanup(func() { _ = kept.Close() })
	way = &cut{Store: kept}
	ann := func(context.Context) string { return "ann" }
	a = taskServer(t, spec.TaskOptional, &ServerOptions{Shared: way, Owner: ann}, f)
	b = taskServer(t, spec.TaskOptional, &ServerOptions{Shared: kept, Owner: ann}, f)
	return a, b, way, kept
}

// askShared asks a server for a task of ann.
func askShared(t *testing.T, s *Server, method, id, more string) wireReply {
	t.Helper()
	params := fmt.Sprintf(`{"taskId":%q%s}`, id, more)
	return sendModernAs(t, s, owner.Named("ann"), canAll, method, params)
}

// Each server answers for the tasks of the others: their state, their list and their end, which the
// owner has brought about at any of them.
func TestSharedTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _, kept := sharingServers(t, sleepMinute)
		o := owner.Named("ann")
		done, stopped := startAs(t, a, o), startAs(t, a, o)
		if r := askShared(t, b, "tasks/get", done, ""); r.Result.Status != spec.TaskWorking {
			t.Errorf("at the other server: %s", r.raw)
		}
		if r := askShared(t, b, "tasks/cancel", stopped, ""); r.Error != nil {
			t.Errorf("cancelled at the other server: %s", r.raw)
		}
		for _, s := range []*Server{a, b} {
			if r := askShared(t, s, "tasks/get", stopped, ""); r.Result.Status != spec.TaskCancelled {
				t.Errorf("cancelled: %s", r.raw)
			}
		}
		pa, pb := asLegacy(t, a), asLegacy(t, b)
		third := startLegacy(t, pb, `{"name":"work","task":{}}`).TaskID
		for id, p := range map[string]*farcall.Peer{done: pb, third: pa} {
			if r := sendLegacy(t, p, "tasks/result", taskParams(id)); r.text() != "slept" { // waits
				t.Errorf("the result: %+v", r)
			}
		}
		if at, other := askShared(t, a, "tasks/get", done, ""),
			askShared(t, b, "tasks/get", done, ""); at.raw != other.raw {
			t.Errorf("one server says\n%s\nand the other\n%s", at.raw, other.raw)
		}
		var list spec.ListTasksResult
		if err := pa.Call(t.Context(), "tasks/list", nil, &list); err != nil || len(list.Tasks) != 3 ||
			list.Tasks[0].TaskID != done || list.Tasks[1].TaskID != stopped ||
			list.Tasks[2].TaskID != third {
			t.Errorf("the list: %+v, %v", list, err)
		}
		<-time.After(time.Hour)
		if r := askShared(t, b, "tasks/get", third, ""); r.Error == nil {
			t.Errorf("after its time: %s", r.raw)
		}
		a.Close()
		b.Close()
		<-time.After(25 * time.Hour)
		if _, n := kept.Used(); n != 0 {
			t.Errorf("%d records are left", n)
		}
	})
}

// Another owner does not see a shared task, at any server.
func TestSharedTasksOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := store.NewMemory(nil)
		t.Cleanup(func() { _ = kept.Close() })
		a := taskServer(t, spec.TaskOptional, &ServerOptions{Shared: kept}, sleepMinute)
		b := taskServer(t, spec.TaskOptional, &ServerOptions{Shared: kept}, sleepMinute)
		c := taskServer(t, spec.TaskOptional, &ServerOptions{Shared: kept, SharedName: "c"}, sleepMinute)
		ann, ben := owner.Named("ann"), owner.Named("ben")
		id := startAs(t, a, ann)
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
			params := fmt.Sprintf(`{"taskId":%q,"inputResponses":{}}`, id)
			for _, s := range []*Server{a, b} {
				if r := sendModernAs(t, s, ben, canAll, method, params); r.text() != "error -32602" {
					t.Errorf("%s of another owner: %s", method, r.raw)
				}
			}
			if r := sendModernAs(t, c, ann, canAll, method, params); r.text() != "error -32602" {
				t.Errorf("%s at a server of another name: %s", method, r.raw)
			}
		}
		if r := getTaskAs(t, b, ann, id); r.Result.Status != spec.TaskWorking {
			t.Errorf("the owner: %s", r.raw)
		}
	})
}

// What a task asks, its client may answer at any server, in both generations.
func TestSharedTaskAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _, _ := sharingServers(t, func(ctx context.Context) (string, error) {
			p, err := Elicit[askForm](ctx, "Who?")
			return "Hello " + p.Name, err
		})
		modern := startAs(t, a, owner.Named("ann"))
		synctest.Wait()
		r := askShared(t, b, "tasks/get", modern, "")
		if r.Result.Status != spec.TaskInputRequired || len(r.Result.InputRequests) != 1 {
			t.Fatalf("it asks: %s", r.raw)
		}
		for key := range r.Result.InputRequests {
			bad := fmt.Sprintf(`,"inputResponses":{%q:{"action":"accept","content":{"name":5}}}`, key)
			if r := askShared(t, b, "tasks/update", modern, bad); r.text() != "error -32602" {
				t.Errorf("a wrong answer: %s", r.raw)
			}
			good := fmt.Sprintf(`,"inputResponses":{%q:%s}`, key, humanAnswers("", nil))
			if r := askShared(t, b, "tasks/update", modern, good); r.Error != nil {
				t.Errorf("an answer: %s", r.raw)
			}
		}
		legacy := startLegacy(t, asLegacy(t, a), `{"name":"work","task":{}}`).TaskID
		synctest.Wait()
		p := asLegacy(t, b)
		for _, id := range []string{modern, legacy} {
			if r := sendLegacy(t, p, "tasks/result", taskParams(id)); r.text() != "Hello Ann" {
				t.Errorf("the result: %+v", r)
			}
		}
	})
}

// The task of a server that does not say any more that it runs has failed, for good: also for that
// server, when it is back with a result.
func TestSharedTaskIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, way, _ := sharingServers(t, sleepMinute)
		id := startAs(t, a, owner.Named("ann"))
		<-time.After(2 * taskLease)
		if r := askShared(t, b, "tasks/get", id, ""); r.Result.Status != spec.TaskWorking {
			t.Fatalf("while it runs: %s", r.raw)
		}
		way.off.Store(true)
		askShared(t, b, "tasks/get", id, "") // from now on it is looked for
		for range 4 {
			<-time.After(taskPulse + time.Second)
			askShared(t, b, "tasks/get", id, "")
		}
		lost := askShared(t, b, "tasks/get", id, "")
		if lost.Result.Status != spec.TaskFailed ||
			!strings.Contains(lost.raw, "stopped while the task ran") {
			t.Fatalf("when its server is silent: %s", lost.raw)
		}
		<-time.After(time.Minute)
		way.off.Store(false)
		<-time.After(time.Minute)
		for _, s := range []*Server{a, b} {
			if r := askShared(t, s, "tasks/get", id, ""); r.raw != lost.raw {
				t.Errorf("it has another end: %s", r.raw)
			}
		}
		running := startAs(t, a, owner.Named("ann"))
		a.Close()
		if r := askShared(t, b, "tasks/get", running, ""); r.Result.Status != spec.TaskCancelled {
			t.Errorf("when its server was closed: %s", r.raw)
		}
	})
}

// A task has one end, whatever servers do at once, also while one of them is cut off: no answer to
// a client differs from an end that a client has seen before.
func TestSharedTaskEnds(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			a, b, way, _ := sharingServers(t, func(ctx context.Context) (string, error) {
				return "done", lasting(ctx, 3*time.Second)
			})
			id := startAs(t, a, owner.Named("ann"))
			var mu sync.Mutex
			ended := ""
			look := func(s *Server) {
				r := askShared(t, s, "tasks/get", id, "")
				mu.Lock()
				defer mu.Unlock()
				switch {
				case r.Error != nil && r.Error.Code == jsonrpc.InvalidParams:
					t.Errorf("seed %d: %s", seed, r.raw)
				case r.Error != nil: // the store is away
				case ended != "" && r.raw != ended:
					t.Errorf("seed %d: it has ended with\n%s\nand is\n%s", seed, ended, r.raw)
				case spec.TaskEnded(r.Result.Status):
					ended = r.raw
				}
			}
			var all sync.WaitGroup
			for range 6 {
				s, at := []*Server{a, b}[random.IntN(2)], time.Duration(random.IntN(20_000))*time.Millisecond
				cancels, cuts := random.IntN(3) == 0, random.IntN(3) == 0
				all.Go(func() {
					<-time.After(at)
					if cuts {
						way.off.Store(true)
						defer way.off.Store(false)
						<-time.After(at / 2)
					}
					if cancels {
						askShared(t, s, "tasks/cancel", id, "")
					}
					for range 20 {
						look(s)
						<-time.After(at / 10)
					}
				})
			}
			all.Wait()
			<-time.After(time.Minute)
			look(a)
			look(b)
			if ended == "" {
				t.Errorf("seed %d: it does not end", seed)
			}
		})
	}
}

func lasting(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A store that fails before a client has the id starts no task.
func TestSharedTaskIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, way, kept := sharingServers(t, sleepMinute)
		way.off.Store(true)
		r := sendModernAs(t, a, owner.Named("ann"), canAll, "tools/call", `{"name":"work"}`)
		if _, n := kept.Used(); r.Error == nil || n != 0 || keptTasks(a) != 0 {
			t.Errorf("%d records, %d tasks: %s", n, keptTasks(a), r.raw)
		}
		if strings.Contains(r.raw, "unavailable") || !json.Valid([]byte(r.raw)) {
			t.Errorf("it says %s", r.raw)
		}
	})
}

// A server says again that it runs when the store has lost its record.
func TestSharedTaskBeatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _, kept := sharingServers(t, sleepMinute)
		id := startAs(t, a, owner.Named("ann"))
		for range 2 {
			<-time.After(taskPulse)
			if err := kept.Delete(t.Context(), a.shared.name+"nodes", a.shared.node); err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * taskPulse)
			if r := askShared(t, b, "tasks/get", id, ""); r.Result.Status != spec.TaskWorking {
				t.Errorf("its server runs: %s", r.raw)
			}
		}
	})
}

// While the store is away no server is lost, whether another one looks for it or not.
func TestSharedTaskOutage(t *testing.T) {
	for _, asks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, _, way, _ := sharingServers(t, sleepMinute)
			ann := func(context.Context) string { return "ann" }
			b := taskServer(t, spec.TaskOptional, &ServerOptions{Shared: way, Owner: ann}, sleepMinute)
			id := startAs(t, a, owner.Named("ann"))
			if asks { // with its own beats
				startAs(t, b, owner.Named("ann"))
			}
			<-time.After(taskPulse - time.Millisecond)
			askShared(t, b, "tasks/get", id, "")
			way.off.Store(true)
			for range 4 {
				<-time.After(taskPulse + time.Millisecond)
				if asks {
					askShared(t, b, "tasks/get", id, "")
				}
			}
			way.off.Store(false)
			for range 3 {
				if r := askShared(t, b, "tasks/get", id, ""); r.Result.Status != spec.TaskWorking {
					t.Errorf("after an outage: %s", r.raw)
				}
				<-time.After(taskPulse)
			}
		})
	}
}

// A server that takes a task for lost ends it only while the record is the one it has read, and
// looks for the server that ran it again when the store failed.
func TestSharedTaskComesBack(t *testing.T) {
	for _, fault := range []error{nil, store.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			kept := store.NewMemory(nil)
			t.Cleanup(func() { _ = kept.Close() })
			a := taskServer(t, spec.TaskOptional, &ServerOptions{Shared: kept}, sleepMinute)
			way := &beaten{Store: kept}
			b := taskServer(t, spec.TaskOptional, &ServerOptions{Shared: way}, sleepMinute)
			ann := owner.Named("ann")
			id := startAs(t, a, ann)
			there, err := b.findTask(ann, id, true)
			if err != nil {
				t.Fatal(err)
			}
			mine := a.tasks.find(id, ann)
			before := func(r *store.Record) error {
				if r.ID == id && fault == nil {
					mine.share() // the server that runs it is first
				}
				if r.ID == id {
					return fault
				}
				return nil
			}
			way.before.Store(&before)
			if err := there.takeOver(); !errors.Is(err, fault) {
				t.Errorf("taken over: %v, want %v", err, fault)
			}
			way.before.Store(nil)
			if r := getTaskAs(t, b, ann, id); r.Result.Status != spec.TaskWorking {
				t.Errorf("its server runs: %s", r.raw)
			}
			<-time.After(time.Minute + time.Second)
			if r := getTaskAs(t, b, ann, id); r.Result.Status != spec.TaskCompleted {
				t.Errorf("its end: %s", r.raw)
			}
		})
	}
}

// A beaten store lets something happen before each record is put.
type beaten struct {
	store.Store
	before atomic.Pointer[func(*store.Record) error]
}

func (b *beaten) Put(ctx context.Context, r *store.Record) (uint64, error) {
	if before := b.before.Load(); before != nil {
		if err := (*before)(r); err != nil {
			return 0, err
		}
	}
	return b.Store.Put(ctx, r)
}

// A request that waits for a task of another server ends when the task expires, and when its
// record goes.
func TestSharedTaskWaitEnds(t *testing.T) {
	for _, goes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b, _, _ := sharingServers(t, func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
			ann := owner.Named("ann")
			id, began := startAs(t, a, ann), time.Now()
			p := asLegacy(t, b)
			if goes {
				time.AfterFunc(time.Second, func() {
					there := a.tasks.find(id, ann)
					a.shared.close() // it tells the other server nothing more
					there.unstore()
				})
			}
			r := sendLegacy(t, p, "tasks/result", taskParams(id))
			if took := time.Since(began); took > time.Hour+taskPulse || goes && took > 2*taskPulse {
				t.Errorf("it took %v", took)
			}
			if want := map[bool]string{false: "error -32602", true: "error -32800"}[goes]; r.text() != want {
				t.Errorf("it ends with %s, want %s: %+v", r.text(), want, r)
			}
			if goes {
				a.tasks.find(id, ann).expire()
			}
		})
	}
}

// A task that could not be stored takes no room in the list of its owner.
func TestSharedTaskIsNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := store.NewMemory(nil)
		t.Cleanup(func() { _ = kept.Close() })
		way := &beaten{Store: kept}
		s := taskServer(t, spec.TaskOptional, &ServerOptions{Shared: way}, sleepMinute)
		ann := owner.Named("ann")
		startAs(t, s, ann)
		before := func(r *store.Record) error {
			if strings.HasPrefix(r.Owner, "list") {
				return nil
			}
			return store.ErrFull
		}
		way.before.Store(&before)
		for range 3 {
			r := sendModernAs(t, s, ann, canAll, "tools/call", `{"name":"work"}`)
			if r.Error == nil || !strings.Contains(r.raw, "Too much is kept") {
				t.Fatal(r.raw)
			}
		}
		l, _, err := s.shared.list(t.Context(), ann)
		if err != nil || len(l.Tasks) != 1 {
			t.Errorf("%d tasks are listed, %v", len(l.Tasks), err)
		}
	})
}

// What was seen of servers that have ended is forgotten.
func TestSharedTaskServersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := store.NewMemory(nil)
		t.Cleanup(func() { _ = kept.Close() })
		x := taskServer(t, spec.TaskOptional, &ServerOptions{Shared: kept}, sleepMinute).shared
		look := func(node string, want bool) {
			t.Helper()
			if gone, err := x.gone(node); gone != want || err != nil {
				t.Errorf("%s is gone: %v, %v", node, gone, err)
			}
		}
		for _, node := range []string{"closed", "killed", "runs"} {
			r := &store.Record{Owner: x.name + "nodes", ID: node, Expires: time.Now().Add(3 * nodeFor)}
			if _, err := kept.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		look("closed", false)
		look("killed", false)
		if err := kept.Delete(t.Context(), x.name+"nodes", "closed"); err != nil {
			t.Fatal(err)
		}
		look("closed", true)
		<-time.After(nodeFor + time.Second)
		look("runs", false)
		if len(x.seen) != 1 {
			t.Errorf("%d servers are remembered", len(x.seen))
		}
	})
}
