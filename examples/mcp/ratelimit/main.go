// Command ratelimit is an MCP server that bounds the calls of each caller: ten at once, then two in
// a second. The caller is who authenticated, else the session, the connection or the address, so
// another session of the same owner brings no more. A guard does the same by configuration: see
// Config.Limits of package guard.
//
//	go run ./examples/mcp/ratelimit
//	for i in $(seq 12); do farcall mcp call localhost:8080 roll; done
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newServer(rates{perSecond: 2, burst: 10, most: 10_000}).ListenAndServe(ctx,
		"localhost:8080"); err != nil {
		fmt.Fprintln(os.Stderr, "ratelimit:", err)
		os.Exit(1)
	}
}

func newServer(r rates) *mcp.Server {
	s := mcp.NewServer("dice", "1.0.0", nil)
	s.Use(r.limit())
	mcp.AddTool(s, mcp.Tool{Name: "roll", Description: "Roll a die"},
		func(context.Context, struct{}) (int, error) {
			return 1 + rand.IntN(6), nil //nolint:gosec // no stake in this game
		})
	return s
}

// rates are the limits of a caller, and how many callers are remembered.
type rates struct {
	perSecond, burst float64
	most             int
}

// A bucket had some calls left at a time.
type bucket struct {
	left float64
	at   time.Time
}

// limit returns middleware that refuses calls of tools beyond the rates. The rounds of one call
// count once.
func (r rates) limit() func(mcp.Handler) mcp.Handler {
	var mu sync.Mutex
	buckets := map[string]bucket{}
	take := func(caller string) (wait time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		b, known := buckets[caller]
		if !known {
			if len(buckets) >= r.most {
				r.forget(buckets, now)
			}
			if len(buckets) >= r.most {
				return time.Second // too many callers at once: the table stays as it is
			}
			b = bucket{r.burst, now}
		}
		b = bucket{min(r.burst, b.left+now.Sub(b.at).Seconds()*r.perSecond), now}
		if b.left < 1 {
			return time.Duration((1 - b.left) / r.perSecond * float64(time.Second))
		}
		b.left--
		buckets[caller] = b
		return 0
	}
	return func(next mcp.Handler) mcp.Handler {
		return func(ctx context.Context, req *mcp.Request) (*mcp.Response, error) {
			if req.Method == spec.MethodToolsCall && !req.Continues() {
				if wait := take(req.Owner()); wait > 0 {
					// for the model
					return nil, fmt.Errorf("too many calls; try again in %v", wait.Round(time.Millisecond))
				}
			}
			return next(ctx, req)
		}
	}
}

// forget removes the callers with a bucket that is full again.
func (r rates) forget(buckets map[string]bucket, now time.Time) {
	for caller, b := range buckets {
		if b.left+now.Sub(b.at).Seconds()*r.perSecond >= r.burst {
			delete(buckets, caller)
		}
	}
}
