package upstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A crowd makes calls that block until their id is released, and notes how they end.
type crowd struct {
	t    *testing.T
	u    *Upstream
	mu   sync.Mutex
	done []string
	errs map[string]error
}

func (c *crowd) call(id string, who Caller) {
	go func() {
		_, err := do(context.WithoutCancel(c.t.Context()), c.u, toolCall("block", id, who))
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.done = append(c.done, id); err != nil {
			c.errs[id] = err
		}
	}()
	synctest.Wait()
}

func (c *crowd) refused() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for id, err := range c.errs {
		_ = dataOf(c.t, err, jsonrpc.Overloaded)
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// TestFairQueue takes turns between those who wait, and lets no owner have the whole
// queue.
func TestFairQueue(t *testing.T) {
	for name, who := range map[string]func(string) Caller{
		"sessions":   func(name string) Caller { return Caller{Session: name} },
		"principals": func(name string) Caller { return Caller{Owner: owner.Named(name)} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, legacy)
				u := l.upstream(Options{MaxInFlight: 1, MaxQueue: 6})
				c := &crowd{t: t, u: u, errs: map[string]error{}}
				a, b := who("a"), who("b")
				for i := range 7 {
					c.call(fmt.Sprint("a", i), a)
				}
				if s := u.Status(); s.Queued != 6 || s.InFlight != 1 {
					t.Fatalf("%+v", s)
				}
				c.call("a7", a)
				for i := range 3 {
					c.call(fmt.Sprint("b", i), b)
				}
				c.call("b3", b)
				if got := c.refused(); got != "a4 a5 a6 a7 b3" {
					t.Errorf("refused: %s", got)
				}
				c.mu.Lock()
				c.done = nil
				c.mu.Unlock()
				for id := range strings.FieldsSeq("a0 a1 b0 a2 b1 a3 b2") {
					l.release(id)
					synctest.Wait()
				}
				if got := strings.Join(c.done, " "); got != "a0 a1 b0 a2 b1 a3 b2" {
					t.Errorf("order: %s", got)
				}
				u.mu.Lock()
				defer u.mu.Unlock()
				if u.queue.waiting.Len() != 0 || u.queue.inFlight.Known() != 0 {
					t.Errorf("%d queued, %d owners in flight are left", u.queue.waiting.Len(),
						u.queue.inFlight.Known())
				}
			})
		})
	}
}

// TestFairSessions lets no caller have more turns because of more sessions.
func TestFairSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{MaxInFlight: 1, MaxQueue: 100})
		c := &crowd{t: t, u: u, errs: map[string]error{}}
		for i := range 60 {
			c.call(fmt.Sprint("a", i), Caller{Owner: owner.Named("ann"), Session: fmt.Sprint("ann-", i%20)})
		}
		for i := range 3 {
			c.call(fmt.Sprint("b", i), Caller{Owner: owner.Named("ben"), Session: "ben-1"})
		}
		for i := range 3 { // the caller is unauthenticated: the session is all there is
			c.call(fmt.Sprint("c", i), Caller{Session: "c"})
		}
		const want = "a0 a1 b0 c0 a2 b1 c1 a3 b2 c2"
		for id := range strings.FieldsSeq(want) {
			l.release(id)
			synctest.Wait()
		}
		c.mu.Lock()
		if got := strings.Join(c.done, " "); got != want {
			t.Errorf("order: %s", got)
		}
		c.mu.Unlock()
		for i := 4; i < 60; i++ {
			l.release(fmt.Sprint("a", i))
			synctest.Wait()
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.queue.waiting.Len() != 0 || u.queue.inFlight.Known() != 0 {
			t.Errorf("%d queued, %d owners in flight are left", u.queue.waiting.Len(),
				u.queue.inFlight.Known())
		}
	})
}

// TestFairAddresses gives the anonymous connections of one address the turns of one caller.
func TestFairAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{MaxInFlight: 1, MaxQueue: 12})
		c := &crowd{t: t, u: u, errs: map[string]error{}}
		from := func(n int, address string) Caller {
			return Caller{Owner: owner.Connection(fmt.Sprint(n), address)}
		}
		for i := range 13 {
			c.call(fmt.Sprint("a", i), from(i, "192.0.2.1:1"))
		}
		for i := range 2 {
			c.call(fmt.Sprint("b", i), from(100, "192.0.2.2:1"))
			c.call(fmt.Sprint("c", i), Caller{Owner: owner.Named("ada")})
		}
		if got := c.refused(); got != "a10 a11 a12 a9" {
			t.Errorf("refused: %s", got)
		}
		c.mu.Lock()
		c.done = nil
		c.mu.Unlock()
		const want = "a0 a1 b0 c0 a2 b1 c1 a3 a4 a5 a6 a7 a8"
		for id := range strings.FieldsSeq(want) {
			l.release(id)
			synctest.Wait()
		}
		if got := strings.Join(c.done, " "); got != want {
			t.Errorf("order: %s", got)
		}
	})
}

// TestRoom keeps places for those who come when one client has calls under way that
// do not end.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{MaxInFlight: 64, MaxQueue: 64})
		c := &crowd{t: t, u: u, errs: map[string]error{}}
		for range 200 {
			c.call("x", Caller{Session: "greedy"})
		}
		synctest.Wait()
		if s := u.Status(); s.InFlight != 60 || s.Queued != 64 {
			t.Errorf("%+v", s)
		}
		mustDo(t, u, toolCall("which", "", Caller{Session: "other"}), "1")
		mustDo(t, u, toolCall("which", "", Caller{Owner: owner.Named("other")}), "1")
		mustDo(t, u, toolCall("which", "", Caller{}), "1")
		l.release("x")
		synctest.Wait()
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.queue.waiting.Len() != 0 || u.queue.inFlight.Known() != 0 {
			t.Errorf("%d queued, %d owners in flight are left", u.queue.waiting.Len(),
				u.queue.inFlight.Known())
		}
	})
}

// TestSessionsLeaveConnections: the sessions of one caller, be it an address or a principal, do not
// keep all connections, so that others find one at once.
func TestSessionsLeaveConnections(t *testing.T) {
	callers := map[string]func(session string) owner.Key{
		"address": func(session string) owner.Key { return owner.Session(session, "192.0.2.1:1") },
		"another": func(session string) owner.Key { return owner.Session(session, "192.0.2.2:1") },
		"ada":     func(string) owner.Key { return owner.Named("ada") },
		"bob":     func(string) owner.Key { return owner.Named("bob") },
	}
	for greedy := range callers {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, legacy)
			u := l.upstream(
				Options{Lifetime: lifetimeSession, MaxConnections: 16, QueueTimeout: 10 * time.Second})
			call := func(caller string, session int) *Call {
				id := fmt.Sprint(caller, session)
				return toolCall("which", "", Caller{Session: id, Owner: callers[caller](id)})
			}
			held := 0
			for ; held < 16; held++ {
				if _, err := do(t.Context(), u, call(greedy, held)); err != nil {
					dataOf(t, err, jsonrpc.Overloaded)
					if !strings.Contains(err.Error(), "as one caller may have") {
						t.Error(err)
					}
					break
				}
			}
			if held != 14 {
				t.Errorf("%s keeps %d of 16 connections", greedy, held)
			}
			began := time.Now()
			for caller := range callers {
				if caller == greedy || held >= 16 {
					continue
				}
				held++
				if _, err := do(t.Context(), u, call(caller, 0)); err != nil ||
					time.Since(began) > time.Second {
					t.Errorf("%s after %s: %v, after %v", caller, greedy, err, time.Since(began))
				}
			}
			mustDo(t, u, call(greedy, 0), "1") // it keeps what it has
		})
	}
}

// TestSessionKeepsItsConnection takes nothing from a session that goes on for those who
// come later.
func TestSessionKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(
			Options{Lifetime: lifetimeSession, MaxConnections: 2, QueueTimeout: 10 * time.Second})
		which := func(session string) *Call { return toolCall("which", "", Caller{Session: session}) }
		mustDo(t, u, which("a"), "1")
		mustDo(t, u, which("b"), "2")
		began := time.Now()
		_, err := do(t.Context(), u, which("c"))
		if d := dataOf(t, err, jsonrpc.Overloaded); d.Sent != "no" || !d.Retryable ||
			!strings.Contains(err.Error(), "max connections: 2") {
			t.Errorf("%v, %+v", err, d)
		}
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("it was refused after %v", d)
		}
		mustDo(t, u, which("a"), "1")
		mustDo(t, u, which("b"), "2")

		var wg sync.WaitGroup
		wg.Go(func() { mustDo(t, u, which("c"), "3") })
		synctest.Wait()
		u.Forget("a")
		wg.Wait()
		mustDo(t, u, which("b"), "2")

		// A call that comes late does not keep what no call will end.
		u.Forget("c")
		synctest.Wait()
		mustDo(t, u, which("c"), "4")
		mustDo(t, u, which("d"), "5")
		mustDo(t, u, which("b"), "2")
		// Nor is a connection without a session kept.
		u.Forget("d")
		synctest.Wait()
		mustDo(t, u, toolCall("which", "", Caller{Owner: owner.Named("p")}), "6")
		mustDo(t, u, which("e"), "7")
		mustDo(t, u, which("b"), "2")
	})
}
