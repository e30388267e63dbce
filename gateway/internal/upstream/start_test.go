package upstream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// A connection may be there at last when it is no longer needed: its session has
// ended, or everything has.
func TestStartedTooLate(t *testing.T) {
	for name, end := range map[string]func(*Upstream){
		"session": func(u *Upstream) { u.Forget("a") },
		"all": func(u *Upstream) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			go func() { _ = u.Close(ctx) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, legacy)
				release := make(chan struct{})
				u := New(
					&Options{
						Name: "lab", Exclusive: true, Lifetime: lifetimeSession,
						Dial: func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
							c, err := l.dial(context.WithoutCancel(ctx), o)
							<-release
							return c, err
						},
					})
				defer l.close(u)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = u.Call(ctx, toolCall("which", "", Caller{Session: "a"}))
				}()
				synctest.Wait()
				cancel()
				synctest.Wait()
				end(u)
				synctest.Wait()
				close(release)
				<-done
				synctest.Wait()
				if s := u.Status(); s.Connections != 0 || s.InFlight != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestStartStory has a server take its time to start: the status says what is waited for, and so
// does the error of a call before its client gives up. The start goes on until its own deadline.
func TestStartStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		takes := 40 * time.Second
		l.dialing = func(ctx context.Context, _ int) error {
			select {
			case <-time.After(takes):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		u := l.upstream(Options{Timeout: 10 * time.Second, BreakAfter: -1, Starting: func() string {
			return "npx -y it; not passed on: A_TOKEN"
		}})
		begun := time.Now()
		done := make(chan error, 1)
		go func() { _, err := do(t.Context(), u, toolCall("which", "", Caller{})); done <- err }()
		<-time.After(2 * time.Second)
		if s := u.Status(); s.State != StateStarting || s.LastError != "" {
			t.Errorf("%+v", s)
		}
		<-time.After(2 * time.Second)
		if s := u.Status(); s.LastError != "starting for 4s: npx -y it; not passed on: A_TOKEN" {
			t.Errorf("%+v", s)
		}
		err := <-done
		if d := dataOf(t, err, jsonrpc.Unavailable); time.Since(begun) != 25*time.Second ||
			d.Sent != "no" || !d.Retryable ||
			!strings.Contains(err.Error(), "starting for 25s: npx -y it; not passed on: A_TOKEN") {
			t.Errorf("after %v: %v, %+v", time.Since(begun), err, d)
		}
		<-time.After(16 * time.Second)
		mustDo(t, u, toolCall("which", "", Caller{}), "1")
		if s := u.Status(); s.LastError != "" || s.State != StateUp {
			t.Errorf("%+v", s)
		}
		takes = time.Hour
		l.child(1).end.Close()
		synctest.Wait()
		if err := u.Check(t.Context()); err == nil {
			t.Error("a server that does not start is there")
		}
		<-time.After(time.Minute)
		if s := u.Status(); s.State != StateDown ||
			!strings.Contains(s.LastError,
				"not ready within 1m0s (start_timeout), starting for 1m0s: npx -y it") {
			t.Errorf("%+v", s)
		}
		takes = 0
		if err := u.Check(t.Context()); err != nil || u.Status().Calls != 2 {
			t.Errorf("%v, %+v", err, u.Status())
		}
	})
}

// Connections that cannot be started because of their caller are that caller's trouble: the breaker
// stays closed, and calls of others go through, also those that came before anything was known of
// the server.
func TestCallersFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		refused := errors.New("the token of the caller is not accepted")
		hold := make(chan struct{})
		u := New(&Options{
			Name: "lab", Lifetime: lifetimePrincipal, BreakAfter: 2, BreakFor: time.Hour,
			Identity: func(ctx context.Context) any {
				return ctx.Value(whoKey{})
			},
			CallersFault: func(err error) bool { return errors.Is(err, refused) },
			Dial: func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
				if Identity(ctx) == "bob" {
					<-hold
					return nil, refused
				}
				return l.dial(ctx, o)
			},
		})
		defer l.close(u)
		call := func(who string) error {
			_, err := u.Call(context.WithValue(t.Context(), whoKey{}, who),
				toolCall("which", "", Caller{Owner: owner.Named(who)}))
			return err
		}
		bob, ann := make(chan error, 1), make(chan error, 1)
		go func() { bob <- call("bob") }()
		synctest.Wait()
		go func() { ann <- call("ann") }() // it waits for what bob's connection tells of the server
		synctest.Wait()
		close(hold)
		if err := <-bob; !errors.Is(err, refused) {
			t.Errorf("bob: %v", err)
		}
		if err := <-ann; err != nil {
			t.Errorf("ann: %v", err)
		}
		for range 5 {
			if err := call("bob"); !errors.Is(err, refused) {
				t.Errorf("bob: %v", err)
			}
		}
		for _, who := range []string{"ann", "cy"} {
			if err := call(who); err != nil {
				t.Errorf("%s: %v", who, err)
			}
		}
		if s := u.Status(); s.State != StateUp {
			t.Errorf("%+v", s)
		}
	})
}

type whoKey struct{}
