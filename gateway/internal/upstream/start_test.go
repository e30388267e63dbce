package upstream

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall/mcp"
)

// A connection may be there at last when nobody wants it any more: its session has
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
				u := New(&Options{Name: "lab", Exclusive: true, Lifetime: lifetimeSession, Dial: func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
					c, err := l.dial(context.WithoutCancel(ctx), o)
					<-release
					return c, err
				}})
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
