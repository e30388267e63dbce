package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// TestChaos has connections fail, callers leave, sessions end and connections be short, all
// at once. No call hangs, no caller gets what is another's, and nothing is left.
func TestChaos(t *testing.T) {
	for _, lifetime := range []string{
		"", lifetimeShared, lifetimePrincipal, lifetimeSession,
		lifetimeCall,
	} {
		for _, eras := range []string{legacy, modern} {
			t.Run(lifetime+" "+eras, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { chaos(t, lifetime, eras) })
			})
		}
	}
}

func chaos(t *testing.T, lifetime, eras string) {
	t.Helper()
	l := newLab(t, eras)
	l.dialing = func(_ context.Context, n int) error {
		<-time.After(time.Duration(n%7) * 10 * time.Millisecond)
		if n%9 == 3 {
			return errors.New("no luck")
		}
		return nil
	}
	u := l.upstream(Options{
		Lifetime: lifetime, Pool: 3, Asks: lifetime != lifetimeShared, MaxConnections: 6, MaxInFlight: 30,
		MaxQueue: 200, QueueTimeout: 20 * time.Second,
		IdleStop: 50 * time.Millisecond, Timeout: 5 * time.Second, BreakAfter: 8,
		BreakFor: 100 * time.Millisecond,
	})
	counts := map[string]int{}
	var mu sync.Mutex
	count := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		counts[what]++
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for n := range 8 {
				count(chaosCall(t, u, fmt.Sprint(i, "-", n), rand.New(rand.NewPCG(uint64(i), uint64(n)))))
			}
		})
	}
	wg.Wait()
	synctest.Wait()
	s := u.Status()
	t.Logf("%v, %d servers, %+v", counts, l.count(), s)
	if s.InFlight != 0 || s.Queued != 0 || counts["ok"] == 0 {
		t.Errorf("%v %+v", counts, s)
	}
	l.close(u)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pool.counts != [closed + 1]int{} || len(u.pool.holders) != 0 || len(u.watching) != 0 {
		t.Errorf("left: connections %v, %d owners, %d watches", u.pool.counts, len(u.pool.holders),
			len(u.watching))
	}
}

// chaosCall makes some call and says what became of it.
func chaosCall(t *testing.T, u *Upstream, id string, random *rand.Rand) string {
	t.Helper()
	who := Caller{
		Owner:   owner.Named(fmt.Sprint("p", random.IntN(4))),
		Session: fmt.Sprint("s", random.IntN(10)),
	}
	who.Capabilities = jsonrpc.Raw(
		[]string{`{}`, canElicit, canElicit, `{"elicitation":{},"sampling":{}}`}[random.IntN(4)])
	ctx, cancel := context.WithTimeout(t.Context(),
		time.Duration(1+random.IntN(3000))*time.Millisecond)
	defer cancel()
	want := id
	var c *Call
	switch n := random.IntN(20); {
	case n == 0:
		c = toolCall("die", id, who)
	case n == 1:
		c = toolCall("block", id, who)
	case n == 2:
		u.Forget(who.Session)
		return "forgotten"
	case n == 3:
		stop, err := u.Watch(ctx, who, "lab:r", func() {})
		if err == nil {
			stop()
		}
		return "watched"
	case n < 8:
		_, _ = u.Call(ctx, &Call{Method: spec.MethodToolsList, Caller: who, Idempotent: true})
		return "listed"
	case n < 12:
		c = toolCall("tell", id, who)
		c.LogLevel = "info"
		c.Notice, c.Progress = func(context.Context, string, jsonrpc.Raw) {},
			func(context.Context, jsonrpc.Raw) {}
	default:
		who.Capabilities = jsonrpc.Raw(canElicit)
		c, want = toolCall("ask", id, who), id+" "+id
		c.Rounds = true
		// Ask runs twice at once when the call is made again
		pause := time.Duration(random.IntN(10)) * time.Millisecond
		c.Ask = func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
			<-time.After(pause)
			return answerWith("")(ctx, method, params)
		}
	}
	c.Idempotent = random.IntN(2) == 0
	got, err := do(ctx, u, c)
	var wire *jsonrpc.Error
	switch {
	case err == nil && got == want:
		return "ok"
	case err == nil:
		t.Errorf("%s: got %q, want %q", c.Params, got, want)
		return "wrong"
	case errors.As(err, &wire):
		return fmt.Sprint(int(wire.Code))
	case errors.Is(err, context.DeadlineExceeded):
		return "late"
	case u.opts.Lifetime == lifetimeShared &&
		strings.Contains(err.Error(), "it is not clear which call"):
		return "unclear"
	}
	t.Errorf("%s: %v", c.Params, err)
	return "odd"
}
