package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func asker(session string) Caller {
	return Caller{Session: session, Capabilities: jsonrpc.Raw(canElicit)}
}

// TestQuestions has many callers asked at once by a server that is known to ask. Each gets its own
// question, and the server each answer where it belongs.
func TestQuestions(t *testing.T) {
	l := newLab(t, legacy)
	u := l.upstream(Options{Asks: true})
	var wg sync.WaitGroup
	var asked, cancelled atomic.Int64
	for i := range 200 {
		wg.Go(func() {
			id := fmt.Sprint("q", i)
			leaves := i%10 == 7
			session := ""
			if i%3 != 0 && !leaves {
				session = fmt.Sprint("s", i%20)
			}
			c := toolCall("ask", id, asker(session))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.Ask = func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
				asked.Add(1)
				var p spec.ElicitRequestParams
				if err := json.Unmarshal(params, &p); err != nil || p.Message != "question "+id {
					t.Errorf("%s was asked %s", id, params)
				}
				if leaves {
					cancel()
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return answerWith("re ")(ctx, method, params)
			}
			got, err := do(ctx, u, c)
			switch {
			case leaves && errors.Is(err, context.Canceled):
				cancelled.Add(1)
			case err != nil || got != id+" re "+id:
				t.Errorf("%s got %q, %v", id, got, err)
			}
		})
		wg.Go(func() {
			if _, err := u.Call(t.Context(),
				&Call{Method: spec.MethodToolsList, Caller: asker(fmt.Sprint("s", i%20))}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := u.Status()
	if asked.Load() != 200 || cancelled.Load() != 20 || s.InFlight != 0 || s.Queued != 0 {
		t.Errorf("%d asked, %d cancelled, %+v", asked.Load(), cancelled.Load(), s)
	}
	l.close(u)
	t.Logf("%d servers, p50 %v, p99 %v", l.count(), s.LatencyP50, s.LatencyP99)
}

// TestLateQuestion has a server ask about a call that its caller has given up. The
// next one must not hear it.
func TestLateQuestion(t *testing.T) {
	for _, session := range []string{"", "next"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, legacy)
			u := l.upstream(Options{})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				c := toolCall("stubborn", "mine", asker("first"))
				c.Ask = answerWith("")
				_, err := do(ctx, u, c)
				done <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			c := toolCall("block", "next", asker(session))
			c.Ask = func(_ context.Context, _ string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
				t.Errorf("the next caller was asked %s", params)
				return nil, errors.New("not mine")
			}
			go func() { _, err := do(t.Context(), u, c); done <- err }()
			synctest.Wait()
			l.release("mine")
			synctest.Wait()
			l.release("next")
			if err := <-done; err != nil {
				t.Error(err)
			}
			if s := u.Status(); l.count() != 1 || s.Dropped != 1 {
				t.Errorf("%d servers, %+v", l.count(), s)
			}
		})
	}
}

// TestAffinity gives each session its own connection when the server asks, also after it has
// given up a call there.
func TestAffinity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{Asks: true})
		var wg sync.WaitGroup
		conns := map[string]string{}
		var mu sync.Mutex
		for _, s := range []string{"a", "b", "c"} {
			wg.Go(func() {
				n, err := do(t.Context(), u, toolCall("block", "x", asker(s)))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				conns[s] = n
			})
		}
		synctest.Wait()
		l.release("x")
		wg.Wait()
		for _, s := range []string{"c", "a", "b", "b", "a"} {
			mustDo(t, u, toolCall("which", "", asker(s)), conns[s])
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := do(ctx, u, toolCall("block", "y", asker("a"))); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Error(err)
		}
		mustDo(t, u, toolCall("which", "", asker("a")), conns["a"])
		if n := l.count(); n != 3 {
			t.Errorf("%d servers", n)
		}
		u.Forget("a")
		mustDo(t, u, toolCall("which", "", asker("b")), conns["b"])
		synctest.Wait()
		if n := u.Status().Connections; n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
	})
}

// TestStateIsKept has many sessions that can be asked call a server that never asks: all are on one
// process, at once, whatever the load. When it asks after all, they stay where their state is, and
// each new session gets a process.
func TestStateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		told := 0
		u := l.upstream(Options{OnAsks: func() { told++ }})
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() { mustDo(t, u, toolCall("block", "x", asker(fmt.Sprint(i))), "1") })
		}
		<-time.After(time.Second)
		if n := l.child(1).busy; n != 12 {
			t.Errorf("%d calls at once", n)
		}
		l.release("x")
		wg.Wait()
		if n := l.count(); n != 1 {
			t.Errorf("%d processes", n)
		}
		c := toolCall("ask", "q", asker("3"))
		c.Ask = answerWith("")
		mustDo(t, u, c, "q q")
		synctest.Wait()
		if told != 1 {
			t.Errorf("told %d times that the server asks", told)
		}
		for i := range 12 {
			mustDo(t, u, toolCall("which", "", asker(fmt.Sprint(i))), "1")
		}
		mustDo(t, u, toolCall("which", "", asker("new")), "2")
		mustDo(t, u, toolCall("which", "", asker("newer")), "3")
		mustDo(t, u, toolCall("which", "", asker("new")), "2")
	})
}

// TestHeldQuestion holds a question until it is clear which call it is about, and refuses one when
// nothing else can make it clear.
func TestHeldQuestion(t *testing.T) {
	for _, n := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, legacy)
			u := l.upstream(Options{})
			results := make(chan error, 4)
			begin := func(tool, id string) {
				c := toolCall(tool, id, asker(id))
				c.Ask = func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
					if !strings.Contains(string(params), `question `+id) {
						t.Errorf("%s was asked %s", id, params)
					}
					return answerWith("")(ctx, method, params)
				}
				go func() { _, err := do(t.Context(), u, c); results <- err }()
				<-time.After(time.Second)
			}
			begin("block", "slow")
			for i := range n {
				begin("stubborn", fmt.Sprint("q", i)) // asks when it is released
			}
			for i := range n {
				l.release(fmt.Sprint("q", i))
			}
			<-time.After(time.Second)
			if len(results) != 0 {
				t.Errorf("answered before it was clear: %v", <-results)
			}
			l.release("slow")
			if err := <-results; err != nil {
				t.Error(err)
			}
			refused := 0
			for range n {
				if <-results != nil {
					refused++
				}
			}
			if refused != n-1 { // then the last one is clear
				t.Errorf("of %d questions %d were refused", n, refused)
			}
		})
	}
}

// TestOpenForms checks that unanswered forms block no call of any client. What is beyond the bound
// on all connections is refused at once.
func TestOpenForms(t *testing.T) {
	for _, lifetime := range []string{"", lifetimeShared, lifetimePrincipal, lifetimeSession} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, legacy)
			u := l.upstream(Options{Lifetime: lifetime, Pool: 2, MaxConnections: 10})
			answer := make(chan struct{})
			results := make(chan error, 20)
			open := func(id string, who Caller) {
				c := toolCall("ask", id, who)
				c.Ask = func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
					<-answer
					return answerWith("")(ctx, method, params)
				}
				go func() { _, err := do(t.Context(), u, c); results <- err }()
				synctest.Wait()
			}
			ann := Caller{Owner: owner.Named("ann"), Capabilities: jsonrpc.Raw(canElicit)}
			begun := time.Now()
			opened := 1
			open("first", asker("s"))
			if lifetime != lifetimeShared {
				for i := range 3 {
					open(fmt.Sprint(i), ann)
					open(fmt.Sprint("s", i), asker("s"))
				}
				opened = 7
			}
			for _, who := range []Caller{
				asker("s"), ann, asker("other"),
				{Owner: owner.Named("ben"), Capabilities: ann.Capabilities},
				{},
			} {
				if _, err := do(t.Context(), u, toolCall("which", "", who)); err != nil {
					t.Errorf("%s: %+v: %v", lifetime, who, err)
				}
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%s: waited for %v", lifetime, took)
			}
			<-time.After(50 * time.Second) // the timeout of a call is a minute
			close(answer)
			for range opened {
				if err := <-results; err != nil {
					t.Errorf("%s: %v", lifetime, err)
				}
			}
		})
	}
}

// TestLists wait for no call that may be asked, and start no server that is not needed.
func TestLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{Asks: true})
		list := func(session string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := u.Call(ctx,
				&Call{Method: spec.MethodToolsList, Caller: asker(session)}); err != nil {
				t.Errorf("list of %s: %v", session, err)
			}
		}
		var wg sync.WaitGroup
		block := func(session string, want int) {
			t.Helper()
			wg.Go(func() { _, _ = do(t.Context(), u, toolCall("block", "x", asker(session))) })
			synctest.Wait()
			list(session)
			if n := l.count(); n != want {
				t.Errorf("%d servers, want %d", n, want)
			}
		}
		list("a")
		block("a", 2)
		list("b")
		block("b", 3)
		list("c")
		list("")
		if n := l.count(); n != 3 {
			t.Errorf("%d servers, want 3", n)
		}
		l.release("x")
		wg.Wait()
	})
}

// TestQueue bounds how many wait and how long, in order of their arrival.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{MaxInFlight: 1, MaxQueue: 3, QueueTimeout: 10 * time.Second})
		var order []string
		var mu sync.Mutex
		errs := make(chan error, 8)
		call := func(ctx context.Context, id string) {
			go func() {
				_, err := do(ctx, u, toolCall("block", id, asker(id)))
				if err == nil {
					mu.Lock()
					order = append(order, id)
					mu.Unlock()
				}
				errs <- err
			}()
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		call(t.Context(), "a")
		call(t.Context(), "b")
		call(gone, "c")
		call(t.Context(), "d")
		_, err := do(t.Context(), u, toolCall("which", "", asker("e")))
		if d := dataOf(t, err, jsonrpc.Overloaded); d.Sent != "no" || !d.Retryable {
			t.Errorf("%+v", d)
		}
		if s := u.Status(); s.Queued != 3 || s.InFlight != 1 {
			t.Errorf("%+v", s)
		}
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-time.After(9 * time.Second)
		call(t.Context(), "f")
		for _, id := range []string{"a", "b"} {
			l.release(id)
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		<-time.After(time.Second)
		// d has its turn, pc waits until its time is over.
		_ = dataOf(t, <-errs, jsonrpc.Overloaded)
		l.release("d")
		if err := <-errs; err != nil {
			t.Error(err)
		}
		if got := strings.Join(order, ""); got != "abd" {
			t.Errorf("order %s", got)
		}
	})
}

// TestInFlight bounds the calls under way.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{MaxInFlight: 5})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { mustDo(t, u, toolCall("block", "x", Caller{}), "1") })
		}
		synctest.Wait()
		if s := u.Status(); s.InFlight != 5 || s.Queued != 15 || s.Connections != 1 {
			t.Errorf("%+v", s)
		}
		l.release("x")
		wg.Wait()
	})
}

// TestEviction makes room for callers who can be asked other things, and for other
// owners.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{Pool: 2, Asks: true})
		for i, caps := range []string{
			canElicit, `{"sampling":{}}`, `{"roots":{}}`,
			`{"elicitation":{"url":{}}}`, canElicit,
		} {
			mustDo(t, u,
				toolCall("which", "", Caller{Owner: owner.Named("a"), Capabilities: jsonrpc.Raw(caps)}),
				fmt.Sprint(i+1))
			if n := u.Status().Connections; n > 2 {
				t.Errorf("%d connections", n)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{Lifetime: lifetimePrincipal, MaxConnections: 2})
		for i, p := range []string{"a", "b", "c", "b", "a"} {
			want := []string{"1", "2", "3", "2", "4"}[i]
			<-time.After(time.Second)
			mustDo(t, u, toolCall("which", "", Caller{Owner: owner.Named(p)}), want)
		}
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				if _, err := do(t.Context(), u,
					toolCall("which", "", Caller{Owner: owner.Named(fmt.Sprint(i))})); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := u.Status().Connections; n > 2 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestCallPool bounds the servers of lifetime "call".
func TestCallPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{Lifetime: lifetimeCall, Pool: 3})
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				if _, err := do(t.Context(), u, toolCall("which", "", Caller{})); err != nil {
					t.Error(err)
				}
			})
		}
		most := 0
		for range 20 {
			u.mu.Lock()
			most = max(most, u.pool.places())
			u.mu.Unlock()
			synctest.Wait()
		}
		wg.Wait()
		if most > 3 || l.count() != 30 {
			t.Errorf("%d at once, %d in all", most, l.count())
		}
	})
}

// TestLogLevel: a legacy server gets the level when a client wants more.
func TestLogLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newLab(t, legacy).upstream(Options{})
		for _, level := range []string{"error", "", "info", "warning", "debug"} {
			c := toolCall("tell", "x", Caller{})
			got := 0
			c.LogLevel, c.Notice = level, func(context.Context, string, jsonrpc.Raw) { got++ }
			mustDo(t, u, c, "x")
			u.mu.Lock()
			severity := u.pool.holders[ownerKey{}].conns[0].level
			u.mu.Unlock()
			want := map[string]string{
				"error": "error", "": "error", "info": "info", "warning": "info",
				"debug": "debug",
			}[level]
			if severity != spec.LogSeverity(want) {
				t.Errorf("after %q the server's level is %d", level, severity)
			}
		}
	})
}
