package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// TestStartIsShared makes many calls at once before there is a connection.
func TestStartIsShared(t *testing.T) {
	for _, eras := range []string{legacy, modern} {
		t.Run(eras, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, eras)
				l.dialing = func(context.Context, int) error { <-time.After(time.Second); return nil }
				u := l.upstream(Options{})
				gone, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for i := range 100 {
					wg.Go(func() {
						if i%10 == 0 {
							if _, err := do(gone, u, toolCall("which", "", Caller{})); !errors.Is(err,
								context.Canceled) {
								t.Errorf("cancelled while the connection started: %v", err)
							}
							return
						}
						mustDo(t, u, toolCall("which", "", Caller{}), "1")
					})
				}
				synctest.Wait()
				if s := u.Status(); s.State != StateStarting || s.Queued != 100 || s.Connections != 1 {
					t.Errorf("while it starts: %+v", s)
				}
				cancel()
				wg.Wait()
				if n := l.count(); n != 1 {
					t.Errorf("%d starts, want 1", n)
				}
				if s := u.Status(); s.State != StateUp || s.Calls != 100 || s.Errors != 0 || s.InFlight != 0 ||
					s.Queued != 0 || s.Name != "lab" || s.Revision != eras {
					t.Errorf("at last: %+v", s)
				}
			})
		})
	}
}

// TestLifetimes shows who shares a connection.
func TestLifetimes(t *testing.T) {
	callers := []Caller{
		{Owner: owner.Named("ann"), Session: "s1"},
		{Owner: owner.Named("ann"), Session: "s2"},
		{Owner: owner.Named("bob"), Session: "s3"},
		{Owner: owner.Named("ann")},
		{Owner: owner.Named("bob")},
	}
	for lifetime, want := range map[string][]string{
		"":                {"1", "1", "1", "1", "1"},
		"shared":          {"1", "1", "1", "1", "1"},
		lifetimePrincipal: {"1", "1", "2", "1", "2"},
		lifetimeSession:   {"1", "2", "3", "4", "5"},
		lifetimeCall:      {"1", "2", "3", "4", "5"},
	} {
		for _, eras := range []string{legacy, modern} {
			t.Run(lifetime+" "+eras, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, eras)
					u := l.upstream(Options{Lifetime: lifetime})
					var got, scopes []string
					for range 2 {
						for _, who := range callers {
							text, err := do(t.Context(), u, toolCall("which", "", who))
							if err != nil {
								t.Fatal(err)
							}
							got = append(got, text)
							scopes = append(scopes, u.Scope(who))
						}
					}
					again := want
					if lifetime == lifetimeCall {
						again = []string{"6", "7", "8", "9", "10"}
					}
					if !slices.Equal(got, slices.Concat(want, again)) {
						t.Errorf("got %v", got)
					}
					for i := range callers {
						for j := range callers {
							shared := want[i] == want[j] || lifetime == lifetimeCall
							if (scopes[i] == scopes[j]) != shared {
								t.Errorf("the scopes of %+v and %+v: %q and %q", callers[i], callers[j], scopes[i],
									scopes[j])
							}
						}
					}
					synctest.Wait()
					if n := u.Status().Connections; lifetime == lifetimeCall && n != 0 {
						t.Errorf("%d connections are left", n)
					}
				})
			})
		}
	}
}

// TestForget ends the connection of a session.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{Lifetime: lifetimeSession})
		mustDo(t, u, toolCall("which", "", Caller{Session: "a"}), "1")
		mustDo(t, u, toolCall("which", "", Caller{Session: "b"}), "2")
		u.Forget("a")
		synctest.Wait()
		if n := u.Status().Connections; n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
		mustDo(t, u, toolCall("which", "", Caller{Session: "b"}), "2")
		mustDo(t, u, toolCall("which", "", Caller{Session: "a"}), "3")
	})
}

// TestModernIsOneConnection shows that a server that asks nothing on its own needs one.
func TestModernIsOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, modern)
		u := l.upstream(Options{})
		var wg sync.WaitGroup
		for i := range 64 {
			caps := []string{"", `{}`, canElicit, `{"roots":{}}`}[i%4]
			wg.Go(func() {
				c := toolCall("block", "x", Caller{Capabilities: jsonrpc.Raw(caps)})
				mustDo(t, u, c, "1")
			})
		}
		synctest.Wait()
		if s := u.Status(); s.InFlight != 64 || s.Connections != 1 {
			t.Errorf("%+v", s)
		}
		l.release("x")
		wg.Wait()
		// It asks by its answer, which Rounds answers.
		c := toolCall("ask", "q1", Caller{Capabilities: jsonrpc.Raw(canElicit)})
		c.Ask, c.Rounds = answerWith("re "), true
		mustDo(t, u, c, "q1 re q1")
	})
}

// TestRevisions passes params and results on in the revision of either side.
func TestRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newLab(t, modern).upstream(Options{})
		r, err := u.Call(t.Context(), toolCall("which", "", Caller{}))
		if err != nil || r.Revision != era.Latest() {
			t.Errorf("got %v, %v", r.Revision, err)
		}
		u = newLab(t, legacy).upstream(Options{})
		r, err = u.Call(t.Context(), toolCall("which", "", Caller{}))
		if err != nil || r.Revision != era.LatestLegacy() {
			t.Errorf("got %v, %v", r.Revision, err)
		}
	})
}

// TestDescribe starts a connection once.
func TestDescribe(t *testing.T) {
	for _, lifetime := range []string{"shared", lifetimeCall} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, legacy)
			u := l.upstream(Options{Lifetime: lifetime})
			for range 3 {
				info, err := u.Describe(t.Context(), Caller{Capabilities: jsonrpc.Raw(canElicit)})
				if err != nil || info.Name != "lab" || info.Revision != legacy ||
					info.Capabilities.Tools == nil {
					t.Fatalf("%+v, %v", info, err)
				}
			}
			if n := l.count(); n != 1 {
				t.Errorf("%s: %d starts, want 1", lifetime, n)
			}
		})
	}
}

// TestServerErrors passes on what the server answers.
func TestServerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newLab(t, legacy).upstream(Options{})
		_, err := u.Call(t.Context(), &Call{Method: "no/such"})
		if !errors.Is(err, jsonrpc.MethodNotFound) {
			t.Errorf("an unknown method: %v", err)
		}
		_, err = u.Call(t.Context(),
			&Call{Method: spec.MethodResourcesRead, Params: jsonrpc.Raw(`{"uri":"lab:none"}`)})
		if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok ||
			wire.Code != era.Latest().ResourceNotFound {
			t.Errorf("an unknown resource: %v", err)
		}
		if s := u.Status(); s.Errors != 0 || s.Calls != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// TestIdleStop closes unused connections, and starts them again.
func TestIdleStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		changed := 0
		u := l.upstream(Options{IdleStop: time.Minute, Timeout: time.Hour, OnListChanged: func(string) {
			changed++
		}})
		mustDo(t, u, toolCall("which", "", Caller{}), "1")
		<-time.After(50 * time.Second)
		mustDo(t, u, toolCall("which", "", Caller{}), "1")
		<-time.After(59 * time.Second)
		if s := u.Status(); s.Connections != 1 || s.State != StateUp {
			t.Errorf("too early: %+v", s)
		}
		<-time.After(2 * time.Second)
		if s := u.Status(); s.Connections != 0 || s.State != StateIdle {
			t.Errorf("too late: %+v", s)
		}
		go func() { <-time.After(3 * time.Minute); l.release("long") }()
		mustDo(t, u, toolCall("block", "long", Caller{}), "2")
		stop, err := u.Watch(t.Context(), Caller{}, "lab:r", func() {})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Minute)
		if s := u.Status(); s.Connections != 1 {
			t.Errorf("watched, but closed: %+v", s)
		}
		stop()
		<-time.After(2 * time.Minute)
		if s := u.Status(); s.Connections != 0 {
			t.Errorf("watched no more, but not closed: %+v", s)
		}
		if changed != 0 {
			t.Errorf("%d changes of lists were announced", changed)
		}
	})
}

// TestClose finishes what is under way, or cuts it off.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{})
		result := make(chan error, 2)
		go func() { _, err := do(t.Context(), u, toolCall("block", "a", Caller{})); result <- err }()
		synctest.Wait()
		go func() { <-time.After(time.Second); l.release("a") }()
		done := make(chan error)
		go func() { done <- u.Close(t.Context()) }()
		synctest.Wait()
		_, err := do(t.Context(), u, toolCall("which", "", Caller{}))
		if d := dataOf(t, err, jsonrpc.ShuttingDown.Condition().Modern); d.Sent != "no" || !d.Retryable ||
			d.Upstream != "lab" {
			t.Errorf("%+v", d)
		}
		if err := errors.Join(<-done, <-result); err != nil {
			t.Error(err)
		}

		u = l.upstream(Options{})
		for range 2 {
			go func() { _, err := do(t.Context(), u, toolCall("block", "b", Caller{})); result <- err }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := u.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed with %v", err)
		}
		for range 2 {
			if d := dataOf(t, <-result, jsonrpc.Unavailable); d.Sent != "unknown" || d.Retryable {
				t.Errorf("%+v", d)
			}
		}
		l.wg.Wait()
	})
}

// TestLogAndProgress go to the one call, in order, before its end, and hold up no
// other call.
func TestLogAndProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newLab(t, legacy).upstream(Options{})
		tell := func(id string, slow <-chan struct{}) (got []string) {
			c := toolCall("tell", id, Caller{})
			c.LogLevel = "debug"
			c.Progress = func(_ context.Context, params jsonrpc.Raw) {
				<-slow
				got = append(got, string(params))
			}
			c.Notice = func(_ context.Context, method string, params jsonrpc.Raw) {
				got = append(got, method)
			}
			mustDo(t, u, c, id)
			return got
		}
		open := make(chan struct{})
		close(open)
		got := tell("x", open)
		progress := slices.DeleteFunc(slices.Clone(got), func(s string) bool {
			return s == spec.NotificationMessage
		})
		if len(progress) != 3 {
			t.Errorf("got %q", got)
		}
		slow, done := make(chan struct{}), make(chan []string)
		go func() { done <- tell("slow", slow) }()
		synctest.Wait()
		if got := tell("fast", open); len(got) < 3 {
			t.Errorf("got %q", got)
		}
		close(slow)
		if got := <-done; len(got) < 3 {
			t.Errorf("got %q", got)
		}
	})
}

// TestNotes keeps what is sent to a slow caller up to a bound.
func TestNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newLab(t, legacy).upstream(Options{})
		hold := make(chan struct{})
		n := 0
		pc := u.newPendingCall(t.Context(),
			&Call{Method: "x", Progress: func(context.Context, jsonrpc.Raw) {
				<-hold
				n++
			}})
		for i := range maxNotes + 100 {
			pc.progressed(jsonrpc.Raw(strconv.Itoa(i)))
		}
		synctest.Wait()
		close(hold)
		pc.waitDelivered()
		if n < maxNotes || n > maxNotes+1 || int(u.Status().Dropped) != maxNotes+100-n {
			t.Errorf("%d were sent, %d dropped", n, u.Status().Dropped)
		}
	})
}

// TestDeadConnection fails each call on a connection that dies with its own error, and
// makes those again that may be.
func TestDeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		changed := map[string]int{}
		var mu sync.Mutex
		u := l.upstream(Options{OnListChanged: func(kind string) {
			mu.Lock()
			changed[kind]++
			mu.Unlock()
		}})
		mustDo(t, u, toolCall("which", "", Caller{}), "1")
		var wg sync.WaitGroup
		seen := map[error]bool{}
		for i := range 20 {
			wg.Go(func() {
				c := toolCall("block", "a", Caller{})
				if c.Idempotent = i%2 == 0; c.Idempotent {
					mustDo(t, u, c, "2")
					return
				}
				_, err := do(t.Context(), u, c)
				if d := dataOf(t, err, jsonrpc.Unavailable); d.Sent != "unknown" || d.Retryable {
					t.Errorf("%+v", d)
				}
				if !errors.Is(err, farcall.ErrClosed) {
					t.Error(err)
				}
				mu.Lock()
				seen[err] = true
				mu.Unlock()
			})
		}
		synctest.Wait()
		l.child(1).end.Close()
		synctest.Wait()
		l.release("a")
		wg.Wait()
		s := u.Status()
		if len(seen) != 10 || l.count() != 2 || s.Retries != 10 || s.Errors != 10 || s.InFlight != 0 ||
			s.State != StateUp {
			t.Errorf("%d errors, %d starts, %+v", len(seen), l.count(), s)
		}
		mu.Lock()
		defer mu.Unlock()
		if changed["tools"] != 1 || changed["resources"] != 1 || changed["prompts"] != 1 {
			t.Errorf("changed lists: %v", changed)
		}
	})
}

// TestDeathIsNoticed also without a call.
func TestDeathIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{})
		mustDo(t, u, toolCall("which", "", Caller{}), "1")
		l.child(1).end.Close()
		synctest.Wait()
		if s := u.Status(); s.State != StateDown || s.Connections != 0 || s.LastError == "" {
			t.Errorf("%+v", s)
		}
		mustDo(t, u, toolCall("which", "", Caller{}), "2")
	})
}

// TestBreaker opens after failures in a row, lets one call try, and closes.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		down := errors.New("no such program")
		var fails sync.Map
		fails.Store("down", true)
		l.dialing = func(ctx context.Context, n int) error {
			if _, ok := fails.Load("down"); ok {
				return fmt.Errorf("attempt %d: %w", n, down)
			}
			<-time.After(time.Second)
			return nil
		}
		u := l.upstream(Options{BreakAfter: 3, BreakFor: 10 * time.Second})
		for n := range 3 {
			_, err := do(t.Context(), u, toolCall("which", "", Caller{}))
			if d := dataOf(t, err, jsonrpc.Unavailable); d.Sent != "no" || !d.Retryable ||
				!errors.Is(err, down) {
				t.Errorf("call %d: %v %+v", n, err, d)
			}
		}
		<-time.After(time.Second)
		for range 5 {
			_, err := do(t.Context(), u, toolCall("which", "", Caller{}))
			if d := dataOf(t, err, jsonrpc.Unavailable); d.RetryAfterMS != 9000 || d.Sent != "no" ||
				!d.Retryable {
				t.Errorf("open: %+v", d)
			}
		}
		if s := u.Status(); s.State != StateOpen || s.Breaker != BreakerOpen || l.count() != 3 {
			t.Errorf("%+v, %d starts", s, l.count())
		}
		<-time.After(10 * time.Second)
		if s := u.Status(); s.Breaker != BreakerTrial {
			t.Errorf("after the pause: %+v", s)
		}
		_, err := do(t.Context(), u, toolCall("which", "", Caller{}))
		if d := dataOf(t, err, jsonrpc.Unavailable); d.RetryAfterMS != 0 || l.count() != 4 {
			t.Errorf("the trial: %+v, %d starts", d, l.count())
		}
		_, err = do(t.Context(), u, toolCall("which", "", Caller{}))
		if d := dataOf(t, err, jsonrpc.Unavailable); d.RetryAfterMS != 10_000 {
			t.Errorf("after the trial: %+v", d)
		}
		<-time.After(11 * time.Second)
		fails.Delete("down")
		trial := make(chan error)
		go func() { _, err := do(t.Context(), u, toolCall("which", "", Caller{})); trial <- err }()
		synctest.Wait()
		_, err = do(t.Context(), u, toolCall("which", "", Caller{}))
		if d := dataOf(t, err, jsonrpc.Unavailable); d.RetryAfterMS == 0 {
			t.Errorf("during the trial: %+v", d)
		}
		if err := <-trial; err != nil {
			t.Error(err)
		}
		mustDo(t, u, toolCall("which", "", Caller{}), "5")
		if s := u.Status(); s.State != StateUp {
			t.Errorf("%+v", s)
		}
	})
}
