package upstream

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

type testKey struct{}

// recorded is an authorizer that notes the principals that requests are made for.
type recorded struct {
	mu   sync.Mutex
	seen []string
	conn context.Context
}

func (r *recorded) Authorize(ctx context.Context, _ *http.Request) error {
	who, _ := ctx.Value(testKey{}).(string)
	if who == "" {
		last, _ := Identity(r.conn).(string)
		who = "connection of " + last
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, who)
	return nil
}

func (r *recorded) Challenge(context.Context, *http.Response) (bool, error) { return false, nil }

// TestIdentity has a connection remember who has called last, for the requests that belong to no
// call.
func TestIdentity(t *testing.T) {
	r := &recorded{}
	u, _, _ := overHTTP(t, legacy,
		Options{Lifetime: lifetimePrincipal, Identity: func(ctx context.Context) any {
			return ctx.Value(testKey{})
		}})
	dial := u.opts.Dial
	u.opts.Dial = func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
		r.conn = ctx
		o.HTTP = &mcphttp.DialOptions{Authorize: r}
		return dial(ctx, o)
	}
	for _, who := range []string{"ann", "ann again"} {
		ctx := context.WithValue(t.Context(), testKey{}, who)
		if _, err := u.Call(ctx, toolCall("which", "x", Caller{Owner: owner.Named("ann")})); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.seen, "connection of ") || !slices.Contains(r.seen, "connection of ann") ||
		!slices.Contains(r.seen, "ann again") {
		t.Errorf("%q", r.seen)
	}
	if Identity(t.Context()) != nil {
		t.Error("there is no connection")
	}
}
