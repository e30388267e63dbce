package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

// getTaskAs asks for a task.
func getTaskAs(t *testing.T, s *Server, o owner.Key, id string) wireReply {
	t.Helper()
	return sendModernAs(t, s, o, canAll, "tasks/get", fmt.Sprintf(`{"taskId":%q}`, id))
}

func startAs(t *testing.T, s *Server, o owner.Key) (id string) {
	t.Helper()
	r := sendModernAs(t, s, o, canAll, "tools/call", `{"name":"work"}`)
	if id = r.Result.TaskID; id == "" {
		t.Fatalf("no task: %s", r.raw)
	}
	return id
}

// TestTasksAreAdopted leaves tasks of two owners behind, one that has completed, one that was
// cancelled and one that runs, and looks at them from the next server on the same store.
func TestTasksAreAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := store.New(nil)
		first := taskServer(t, spec.TaskOptional, &ServerOptions{Tasks: kept}, sleepMinute)
		owners := []owner.Key{
			owner.Named("ann"), owner.Address("192.0.2.1"),
			owner.Session("1", "192.0.2.1"),
		}
		ids, ends := map[owner.Key][]string{}, map[string]string{}
		for _, o := range owners {
			done, cancelled := startAs(t, first, o), startAs(t, first, o)
			sendModernAs(t, first, o, canAll, "tasks/cancel", fmt.Sprintf(`{"taskId":%q}`, cancelled))
			ids[o] = []string{done, cancelled}
		}
		<-time.After(time.Minute + time.Second)
		synctest.Wait()
		for _, o := range owners {
			for _, id := range ids[o] {
				ends[id] = getTaskAs(t, first, o, id).raw
			}
			ids[o] = append(ids[o], startAs(t, first, o))
		}
		var mu sync.Mutex
		var events []TaskEvent
		next := taskServer(t, spec.TaskOptional, &ServerOptions{
			Tasks: kept, OnTask: func(e TaskEvent) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, e)
			},
		}, sleepMinute)
		if len(events) != len(owners) || !events[0].Interrupted || events[0].Status != spec.TaskFailed ||
			events[0].Tool != "work" {
			t.Errorf("events: %+v", events)
		}
		for _, o := range owners {
			for _, id := range ids[o][:2] {
				if got := getTaskAs(t, next, o, id); got.raw != ends[id] || !spec.TaskEnded(got.Result.Status) {
					t.Errorf("%v: it has ended with\n%s\nand is now\n%s", o, ends[id], got.raw)
				}
			}
			ran := getTaskAs(t, next, o, ids[o][2])
			if ran.Result.Status != spec.TaskFailed || ran.Result.Error == nil ||
				!strings.Contains(ran.Result.StatusMessage, "stopped while the task ran") {
				t.Errorf("%v: what ran is %s", o, ran.raw)
			}
			for _, other := range owners {
				for _, id := range ids[o] {
					if other != o && getTaskAs(t, next, other, id).Error == nil {
						t.Errorf("%v sees a task of %v", other, o)
					}
				}
			}
			if got := next.tasks.held.Of(o); got != 3 {
				t.Errorf("%v holds %d tasks", o, got)
			}
			started := startAs(t, next, o)
			if own := next.tasks.after(0, o, 10); o.Exclusive() && (len(own) != 4 || own[3].id != started) {
				t.Errorf("%v: the new task is not the last one of %d", o, len(own))
			}
		}
		<-time.After(time.Hour + 2*time.Second)
		synctest.Wait()
		if r := getTaskAs(t, next, owners[0], ids[owners[0]][0]); r.Error == nil {
			t.Errorf("it is there after its time: %s", r.raw)
		}
		if _, n := kept.Used(); n != 0 || keptTasks(next) != 0 {
			t.Errorf("%d records and %d tasks are left", n, keptTasks(next))
		}
	})
}

// TestTaskSharesAfterRestart: an owner who has as many tasks as one may have starts no other one,
// also at the next server on the store; another owner does.
func TestTaskSharesAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, ann, ben := store.New(nil), owner.Named("ann"), owner.Named("ben")
		o := &ServerOptions{Tasks: kept, MaxTasks: 100}
		full := func(s *Server) {
			t.Helper()
			if r := sendModernAs(t, s, ann, canAll, "tools/call",
				`{"name":"work"}`); r.text() != "error -32010" {
				t.Errorf("the owner is full, and starts another task: %s", r.raw)
			}
			startAs(t, s, ben)
		}
		first := taskServer(t, spec.TaskOptional, o, sleepMinute)
		for range ownerShare(o.MaxTasks) {
			startAs(t, first, ann)
		}
		full(first)
		next := taskServer(t, spec.TaskOptional, o, sleepMinute)
		full(next)
		if n := next.tasks.held.Of(ben); n != 2 {
			t.Errorf("the other owner has %d tasks", n)
		}
	})
}

// A task of a connection ends with it, and is not stored.
func TestTasksOfConnectionsAreNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := store.New(nil)
		s := taskServer(t, spec.TaskOptional, &ServerOptions{Tasks: kept}, sleepMinute)
		for _, o := range []owner.Key{owner.Connection("1", ""), {}} {
			id := startAs(t, s, o)
			if r := getTaskAs(t, s, o, id); r.Result.Status != spec.TaskWorking {
				t.Error(r.raw)
			}
			s.tasks.endOwner(o)
		}
		if _, n := kept.Used(); n != 0 {
			t.Errorf("%d records are stored", n)
		}
		session := owner.Session("1", "")
		startAs(t, s, session)
		s.tasks.endOwner(session)
		if _, n := kept.Used(); n != 0 {
			t.Errorf("%d records of a session that has ended are stored", n)
		}
	})
}

// faultyStore fails on request.
type faultyStore struct {
	store.Records
	mu    sync.Mutex
	fails func(r *store.Record) error
	late  bool // it fails after it has written
	puts  int
}

func (f *faultyStore) fail(with func(r *store.Record) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = with
}

func (f *faultyStore) Put(ctx context.Context, r *store.Record) (uint64, error) {
	f.mu.Lock()
	f.puts++
	var err error
	if f.fails != nil {
		err = f.fails(r)
	}
	f.mu.Unlock()
	if err != nil && !f.late {
		return 0, err
	}
	v, wrote := f.Records.Put(ctx, r)
	return v, cmpOr(err, wrote)
}

func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

var errDisk = errors.New("the disk is gone")

// TestFaultyTaskStore: no client sees a state that is not stored.
func TestFaultyTaskStore(t *testing.T) {
	broken := func(*store.Record) error { return errDisk }
	ann := owner.Named("ann")
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &faultyStore{Records: store.New(nil), late: late}
			s := taskServer(t, spec.TaskOptional, &ServerOptions{Tasks: f}, sleepMinute)
			f.fail(broken)
			if r := sendModernAs(t, s, ann, canAll, "tools/call", `{"name":"work"}`); r.Error == nil ||
				strings.Contains(r.raw, "disk") {
				t.Errorf("created: %s", r.raw)
			}
			if n := keptTasks(s); n != 0 || s.tasks.held.Used() != 0 {
				t.Errorf("%d tasks are kept", n)
			}
			f.fail(nil)
			id, cancelled := startAs(t, s, ann), startAs(t, s, ann)
			f.fail(broken)
			if r := sendModernAs(t, s, ann, canAll, "tasks/cancel",
				fmt.Sprintf(`{"taskId":%q}`, cancelled)); r.Error == nil {
				t.Errorf("cancelled: %s", r.raw)
			}
			<-time.After(2 * time.Minute)
			if r := getTaskAs(t, s, ann, id); !late && r.Result.Status != spec.TaskWorking {
				t.Errorf("an end that is not stored is seen: %s", r.raw)
			}
			f.fail(nil)
			<-time.After(storeRetryMost)
			synctest.Wait()
			r := getTaskAs(t, s, ann, id)
			if r.Result.Status != spec.TaskCompleted || r.Result.Result == nil {
				t.Errorf("the end is not seen: %s", r.raw)
			}
			if again := getTaskAs(t, taskServer(t, spec.TaskOptional, &ServerOptions{Tasks: f}, sleepMinute),
				ann, id); again.raw != r.raw {
				t.Errorf("it has ended with\n%s\nand is now\n%s", r.raw, again.raw)
			}
			if f.puts > 60 {
				t.Errorf("the store was asked %d times", f.puts)
			}
		})
	}
}

// A result that finds no room makes its task fail; what fails with a large error fails with a small
// one.
func TestTaskResultTooLarge(t *testing.T) {
	for name, result := range map[string]func(context.Context) (string, error){
		"result": func(context.Context) (string, error) { return strings.Repeat("x", 1<<20), nil },
		"error": func(context.Context) (string, error) {
			return "", &jsonrpc.Error{
				Code: 5, Message: "large",
				Data: jsonrpc.Raw(`"` + strings.Repeat("x", 1<<20) + `"`),
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			kept := store.New(&store.Options{MaxBytes: 64 << 10})
			s := taskServer(t, spec.TaskOptional, &ServerOptions{Tasks: kept}, result)
			id := startAs(t, s, owner.Named("ann"))
			synctest.Wait()
			r := getTaskAs(t, s, owner.Named("ann"), id)
			if r.Result.Status != spec.TaskFailed || !strings.Contains(r.Result.StatusMessage, "too large") {
				t.Errorf("%s: %.200s", name, r.raw)
			}
		})
	}
}

// A store that was filled refuses new tasks, of one owner first.
func TestTaskStoreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, spec.TaskOptional,
			&ServerOptions{Tasks: store.New(&store.Options{MaxBytes: 64 << 10})}, sleepMinute)
		n := 0
		for ; n < 100; n++ {
			if r := sendModernAs(t, s, owner.Named("greedy"), canAll, "tools/call",
				`{"name":"work"}`); r.Error != nil {
				if r.Error.Code != jsonrpc.Overloaded {
					t.Error(r.raw)
				}
				break
			}
		}
		if n < 2 || n > 8 {
			t.Errorf("%d tasks of one owner fit", n)
		}
		startAs(t, s, owner.Named("modest"))
	})
}

// The hook hears of each task once when it was created and once when it has ended, in this order.
func TestTaskEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		heard := map[string][]string{}
		s := taskServer(t, spec.TaskOptional, &ServerOptions{OnTask: func(e TaskEvent) {
			mu.Lock()
			defer mu.Unlock()
			heard[e.ID] = append(heard[e.ID], e.Status)
		}}, sleepMinute)
		ann := owner.Named("ann")
		done, cancelled := startAs(t, s, ann), startAs(t, s, ann)
		for range 2 {
			sendModernAs(t, s, ann, canAll, "tasks/cancel", fmt.Sprintf(`{"taskId":%q}`, cancelled))
		}
		<-time.After(time.Minute)
		synctest.Wait()
		closed := startAs(t, s, ann)
		s.Close()
		for id, want := range map[string]string{
			done: spec.TaskCompleted, cancelled: spec.TaskCancelled,
			closed: spec.TaskCancelled,
		} {
			if !slices.Equal(heard[id], []string{spec.TaskWorking, want}) {
				t.Errorf("heard %v, want %s", heard[id], want)
			}
		}
	})
}

// What a store has is foreign: an invalid record is skipped.
func TestForeignTaskRecords(t *testing.T) {
	kept := store.New(nil)
	put := func(o, id, value string) {
		if _, err := kept.Put(t.Context(),
			&store.Record{
				Owner: o, ID: id, Value: []byte(value),
				Expires: time.Now().Add(time.Hour),
			}); err != nil {
			t.Fatal(err)
		}
	}
	const good = `{"number":1,"created":"2026-01-01T00:00:00Z","updated":"2026-01-01T00:00:00Z",` +
		`"lifetime":1000000000,"status":"completed"}` + "\n{}"
	ann := owner.Named("ann").Text()
	for i, value := range []string{
		"", "{}", "{}\n", `{"status":"no"}` + "\n",
		strings.Replace(good, "\n{}", "\n{", 1), strings.Replace(good, "completed", "failed", 1),
	} {
		put(ann, fmt.Sprint(i), value)
	}
	put("no owner", "1", good)
	put(ann, "whole", strings.Replace(good, "2026-01-01", "2999-01-01", 1))
	s := NewServer("s", "1", &ServerOptions{Tasks: kept})
	defer s.Close()
	if n := keptTasks(s); n != 1 {
		t.Errorf("%d tasks were adopted", n)
	}
	var none iter.Seq2[*store.Record, error] = func(yield func(*store.Record, error) bool) {
		yield(nil, errDisk)
	}
	other := NewServer("s", "1", &ServerOptions{Tasks: adopting{kept, none}})
	defer other.Close()
	if n := keptTasks(other); n != 0 {
		t.Errorf("%d tasks were adopted of a store that fails", n)
	}
}

// adopting is a store with its own idea of what is to be adopted.
type adopting struct {
	store.Records
	found iter.Seq2[*store.Record, error]
}

func (a adopting) Adopt(context.Context) iter.Seq2[*store.Record, error] { return a.found }

func FuzzReadTaskRecord(f *testing.F) {
	for _, r := range []taskRecord{
		{Status: spec.TaskWorking, Lifetime: 1},
		{Status: spec.TaskCompleted, Lifetime: 1, result: jsonrpc.Raw("{\n}")},
		{Status: spec.TaskFailed, Lifetime: 1, Error: &jsonrpc.Error{Code: 1, Data: jsonrpc.Raw("[1]")}},
	} {
		raw, err := r.append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := readTaskRecord(raw)
		if err != nil {
			return
		}
		again, err := r.append(nil)
		if err != nil {
			t.Fatal(err)
		}
		same, err := readTaskRecord(again)
		if err != nil || !bytes.Equal(same.result, r.result) || same.Status != r.Status {
			t.Errorf("%q is written as %q: %v", raw, again, err)
		}
	})
}

// BenchmarkTasks creates tasks with handlers that return at once, and waits for the end of each.
func BenchmarkTasks(b *testing.B) {
	for name, open := range map[string]func() (*store.Local, error){
		"memory": func() (*store.Local, error) { return store.New(nil), nil },
		"directory": func() (*store.Local, error) {
			return store.Open(b.TempDir(), &store.Options{MaxBytes: 2<<30 - 1})
		},
	} {
		for _, clients := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%d", name, clients), func(b *testing.B) {
				kept, err := open()
				if err != nil {
					b.Fatal(err)
				}
				defer kept.Close()
				s := NewServer("s", "1",
					&ServerOptions{Tasks: kept, TaskAfter: -1, MaxTasks: 1 << 30, TaskTTL: 3 * time.Second})
				defer s.Close()
				AddTool(s, Tool{Name: "work", Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional}},
					func(context.Context, struct{}) (string, error) { return "done", nil })
				b.SetParallelism(clients)
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						r := sendModernAs(b, s, owner.Named("ann"), canAll, "tools/call", `{"name":"work"}`)
						found := s.tasks.find(r.Result.TaskID, owner.Named("ann"))
						if found == nil {
							b.Errorf("no task: %s", r.raw)
							return
						}
						for {
							changed, ended := found.watch()
							if ended {
								break
							}
							<-changed
						}
					}
				})
			})
		}
	}
}
