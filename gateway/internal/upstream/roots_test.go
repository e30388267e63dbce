package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A rootsClient is a client with roots.
type rootsClient struct {
	u     *Upstream
	who   Caller
	owner string // checked by the server; "": it is not
	mu    sync.Mutex
	roots []string // the last one is in force
}

func (c *rootsClient) answer() jsonrpc.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Appendf(nil, `{"roots":[{"uri":%q}]}`, c.roots[len(c.roots)-1])
}

// request is a call of the client's. One without a session is asked beforehand, as the gateway
// does.
func (c *rootsClient) request() *Call {
	who := c.who
	if who.Session == "" && c.u.RootsFirst() {
		who.Roots = c.answer()
	}
	c.mu.Lock()
	call := toolCall("x", "", who)
	call.Params = fmt.Appendf(nil, `{"name":"x","arguments":{"who":%q,"roots":["%s"]}}`, c.owner,
		strings.Join(c.roots, `","`))
	c.mu.Unlock()
	call.Ask = func(ctx context.Context, method string, _ jsonrpc.Raw) (jsonrpc.Raw, error) {
		if method != spec.MethodRootsList {
			return nil, errors.New("what else?")
		}
		return c.answer(), nil
	}
	return call
}

func (c *rootsClient) call(t *testing.T) string {
	t.Helper()
	got, err := do(t.Context(), c.u, c.request())
	if err != nil {
		t.Errorf("%+v: %v", c.who, err)
	}
	return got
}

// rootsClients are two clients of each kind: with and without a session, known and unknown.
func rootsClients(u *Upstream) map[string]*rootsClient {
	all := map[string]*rootsClient{}
	for i := range 2 {
		for name, who := range map[string]Caller{
			"session":             {Session: fmt.Sprint("s", i)},
			"session of ada":      {Session: fmt.Sprint("a", i), Owner: owner.Named("ada")},
			"request":             {Owner: owner.Address("192.0.2.1")},
			"request of ada":      {Owner: owner.Named("ada")},
			"request of no owner": {},
		} {
			who.Capabilities = jsonrpc.Raw(canList)
			name = fmt.Sprint(name, " ", i)
			all[name] = &rootsClient{u: u, who: who, roots: []string{"file:///" + name}}
		}
	}
	return all
}

// TestRootsNeverMove has clients with different roots take turns at servers that take their time to
// use what they received. A call gets its client's root, or none as long as the server is not
// ready.
func TestRootsNeverMove(t *testing.T) {
	for _, apply := range []time.Duration{
		0, 130 * time.Millisecond, 600 * time.Millisecond,
		2 * time.Second,
	} {
		for _, ask := range []time.Duration{0, 3 * time.Second} {
			for _, lifetime := range []string{"", lifetimePrincipal, lifetimeSession, lifetimeCall} {
				t.Run(fmt.Sprint(apply, " ", ask, " ", lifetime), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						l := newRootsLab(t, ask, apply)
						u := l.upstream(Options{Lifetime: lifetime, Pool: 20})
						seen := map[string]bool{}
						for range 3 {
							for name, c := range rootsClients(u) {
								switch got := c.call(t); got {
								case "":
								case c.roots[0]:
									seen[name] = true
								default:
									t.Errorf("%s got %s", name, got)
								}
							}
							<-time.After(6 * time.Second)
						}
						for name, c := range rootsClients(u) {
							lasts := u.Lasts(c.request().Caller)
							if lasts && !seen[name] {
								t.Errorf("%s never got its root", name)
							}
							if want := lifetime != lifetimeCall && (c.who.Session != "" || c.who.Owner.Exclusive() ||
								lifetime == "" && !c.who.Owner.IsZero()); lasts != want {
								t.Errorf("%s: the connection lasts: %v", name, lasts)
							}
						}
						l.close(u)
					})
				})
			}
		}
	}
}

// TestRootsInCall has a server ask in each call, and only then: no client is asked beforehand,
// since its question would be one that the server never put. The calls get their own client's
// roots.
func TestRootsInCall(t *testing.T) {
	for _, lifetime := range []string{"", lifetimePrincipal, lifetimeSession, lifetimeCall} {
		synctest.Test(t, func(t *testing.T) {
			l := newRootsLab(t, 0, 0)
			l.late = true
			u := l.upstream(Options{Lifetime: lifetime, Pool: 20})
			for range 3 {
				for name, c := range rootsClients(u) {
					if got := c.call(t); got != c.roots[0] {
						t.Errorf("%s: %s got %q", lifetime, name, got)
					}
				}
			}
			if u.RootsFirst() {
				t.Errorf("%s: the clients must say their roots before the call", lifetime)
			}
			l.close(u)
		})
	}
}

// TestFirstRoots lets a server that asks at once, and uses the answer at once, do so before the
// call on each new connection once it is known to ask.
func TestFirstRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRootsLab(t, 0, 0)
		u := l.upstream(Options{Lifetime: lifetimeCall})
		for i := range 10 {
			c := &rootsClient{
				u: u, who: Caller{Capabilities: jsonrpc.Raw(canList)},
				roots: []string{fmt.Sprint("file:///", i)},
			}
			if got := c.call(t); i > 0 && got != c.roots[0] {
				t.Errorf("call %d got %q", i, got)
			}
		}
	})
}

// TestRootsChanged passes a change on to the connection of the client, and to no other one. A
// question that comes while no call is in flight waits for one; a server that gives it up is made
// to ask again.
func TestRootsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRootsLab(t, 0, 0)
		u := l.upstream(Options{})
		a := &rootsClient{
			u: u, who: Caller{Session: "a", Capabilities: jsonrpc.Raw(canList)},
			roots: []string{"file:///a1"},
		}
		b := &rootsClient{
			u: u, who: Caller{Session: "b", Capabilities: jsonrpc.Raw(canList)},
			roots: []string{"file:///b"},
		}
		for _, c := range []*rootsClient{a, b, a, b} {
			c.call(t)
			synctest.Wait()
		}
		if got := a.call(t); got != "file:///a1" {
			t.Errorf("at first: %q", got)
		}
		a.mu.Lock()
		a.roots = append(a.roots, "file:///a2")
		a.mu.Unlock()
		u.Notify(t.Context(), b.who, "notifications/other", nil)
		u.Notify(t.Context(), a.who, spec.NotificationRootsListChanged, nil)
		<-time.After(time.Hour)
		if got := a.call(t); got != "file:///a2" {
			t.Errorf("after the change: %q", got)
		}
		if got := b.call(t); got != "file:///b" {
			t.Errorf("the other one: %q", got)
		}
		// A client that declares no roots has none to change.
		u.Notify(t.Context(), Caller{Session: "c"}, spec.NotificationRootsListChanged, nil)
		u.Notify(t.Context(), Caller{}, spec.NotificationRootsListChanged, nil)
		synctest.Wait()
		if n := l.count(); n != 2 {
			t.Errorf("%d connections for two clients", n)
		}
	})
}

// TestMissedRoots makes a server ask again that has given up its question before there was a call.
func TestMissedRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRootsLab(t, 0, 0)
		u := l.upstream(Options{})
		c := &rootsClient{
			u: u, who: Caller{Session: "a", Capabilities: jsonrpc.Raw(canList)},
			roots: []string{"file:///a"},
		}
		c.call(t)
		synctest.Wait()
		c.mu.Lock()
		c.roots = append(c.roots, "file:///b")
		c.mu.Unlock()
		// As the client of the connection does it when the server cancels its request.
		ctx, cancel := context.WithCancel(t.Context())
		var conn *connection
		u.mu.Lock()
		for _, h := range u.pool.holders {
			conn = h.conns[0]
		}
		u.mu.Unlock()
		given := make(chan error)
		go func() { _, err := u.ask(ctx, conn, spec.MethodRootsList, nil); given <- err }()
		synctest.Wait()
		cancel()
		if err := <-given; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if got := c.call(t); got != "file:///b" {
			t.Errorf("got %q", got)
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		if conn.roots.missed || conn.roots.open != 0 {
			t.Errorf("%+v", conn.roots)
		}
	})
}

// TestRootsLetOthersOn has a call wait on a connection that carries one call at a time. It gets the
// connection as soon as the call before it waits for its client's roots.
func TestRootsLetOthersOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		u := l.upstream(Options{Asks: true})
		who := Caller{Session: "a", Capabilities: jsonrpc.Raw(canList)}
		answer := make(chan jsonrpc.Raw)
		first := toolCall("block", "first", who)
		first.Ask = func(context.Context, string, jsonrpc.Raw) (jsonrpc.Raw, error) {
			return <-answer, nil
		}
		var wg sync.WaitGroup
		wg.Go(func() { mustDo(t, u, first, "1") })
		synctest.Wait()
		second := make(chan struct{})
		wg.Go(func() {
			mustDo(t, u, toolCall("which", "", who), "1")
			close(second)
		})
		synctest.Wait()
		if s := u.Status(); s.InFlight != 1 || s.Queued != 1 {
			t.Fatalf("%d calls in flight, %d queued", s.InFlight, s.Queued)
		}
		var conn *connection
		u.mu.Lock()
		for _, h := range u.pool.holders {
			conn = h.conns[0]
		}
		u.mu.Unlock()
		wg.Go(func() {
			if _, err := u.ask(t.Context(), conn, spec.MethodRootsList, nil); err != nil {
				t.Error(err)
			}
		})
		<-time.After(time.Second) // the server reads on while one of its tools runs
		select {
		case <-second:
		default:
			t.Error("the second call waits, although the first one only waits for its client")
		}
		answer <- jsonrpc.Raw(`{"roots":[]}`)
		l.release("first")
		wg.Wait()
	})
}

// TestAnonymousApart gives no two callers without a principal one process where the lifetime keeps
// principals apart.
func TestAnonymousApart(t *testing.T) {
	for _, lifetime := range []string{lifetimePrincipal, lifetimeSession} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, legacy)
			u := l.upstream(Options{Lifetime: lifetime})
			address := Caller{Owner: owner.Address("192.0.2.1")}
			for i, who := range []Caller{
				{},
				{},
				address, address,
				{Session: "a"},
				{Session: "b"},
				{Session: "a"},
			} {
				want := fmt.Sprint(min(i+1, 6))
				if i == 6 {
					want = "5"
				}
				mustDo(t, u, toolCall("which", "", who), want)
			}
			if u.Lasts(address) || !u.Lasts(Caller{Session: "a"}) {
				t.Error("which connection lasts is not said rightly")
			}
		})
	}
}

// TestRootsPool lets no client without a session have more connections than the pool, however many
// roots it has, and a session have one.
func TestRootsPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRootsLab(t, 0, 0)
		u := l.upstream(Options{Pool: 4})
		for i := range 12 {
			c := &rootsClient{
				u:     u,
				who:   Caller{Owner: owner.Named("ada"), Capabilities: jsonrpc.Raw(canList)},
				roots: []string{fmt.Sprint("file:///", i)},
			}
			c.call(t)
			s := &rootsClient{
				u: u, who: Caller{Session: "s", Capabilities: jsonrpc.Raw(canList)},
				roots: []string{"file:///s"},
			}
			s.call(t)
			synctest.Wait()
		}
		if n := u.Status().Connections; n != 6 { // with the one for lists
			t.Errorf("%d connections", n)
		}
	})
}

// TestRootsLists serves the lists that clients with roots see over one connection, which has none.
func TestRootsLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRootsLab(t, 0, 0)
		u := l.upstream(Options{})
		for i := range 5 {
			who := Caller{Owner: owner.Named(fmt.Sprint(i)), Capabilities: jsonrpc.Raw(canList)}
			if i%2 == 1 {
				who = Caller{Session: fmt.Sprint(i), Capabilities: who.Capabilities}
			}
			if _, err := u.Call(t.Context(), &Call{Method: spec.MethodToolsList, Caller: who}); err != nil {
				t.Error(err)
			}
			c := &rootsClient{
				u: u, who: who, owner: fmt.Sprint(i),
				roots: []string{fmt.Sprint("file:///", i)},
			}
			c.call(t)
		}
		synctest.Wait()
		if n := l.count(); n != 6 {
			t.Errorf("%d connections for 5 callers and the lists", n)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if s := l.all[0]; !s.declared || len(s.given) != 0 || len(s.callers) != 0 {
			t.Errorf("the connection for lists: declared %v, roots %q, calls of %q", s.declared, s.given,
				s.callers)
		}
	})
}

// TestRootsInvariant makes random calls of random clients at servers that ask and use the roots at
// random times, while sessions end and roots change: no call is ever made on a connection that
// belongs to another owner, or that was given roots of another client.
func TestRootsInvariant(t *testing.T) {
	for seed := range uint64(10) {
		for _, lifetime := range []string{"", lifetimePrincipal, lifetimeSession, lifetimeCall} {
			synctest.Test(t, func(t *testing.T) { randomRoots(t, lifetime, rand.New(rand.NewPCG(seed, 1))) })
		}
	}
}

func randomRoots(t *testing.T, lifetime string, random *rand.Rand) {
	t.Helper()
	l := newRootsLab(t, 0, 0)
	var mu sync.Mutex
	l.ask = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.IntN(2000)) * time.Millisecond
	}
	l.apply = l.ask
	u := l.upstream(Options{
		Lifetime: lifetime, Pool: 1 + random.IntN(8), MaxConnections: 20,
		QueueTimeout: time.Hour, IdleStop: time.Duration(random.IntN(2)) * 5 * time.Second,
	})
	all := rootsClients(u)
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range all {
			if !yield(name) {
				return
			}
		}
	})
	for _, c := range all {
		if c.who.Session != "" || c.who.Owner.Exclusive() || lifetime == "" {
			c.owner = c.who.owner().String() + c.who.Session // the owner that the connection must have
		}
	}
	var wg sync.WaitGroup
	for range 150 {
		mu.Lock()
		c, what, pause := all[names[random.IntN(len(names))]], random.IntN(20),
			time.Duration(random.IntN(400))*time.Millisecond
		mu.Unlock()
		c.mu.Lock()
		own := c.roots[0]
		c.mu.Unlock()
		switch {
		case what == 0 && c.who.Session != "":
			c.mu.Lock()
			c.roots = append(c.roots, fmt.Sprint(c.roots[0], "/", len(c.roots)))
			c.mu.Unlock()
			u.Notify(t.Context(), c.who, spec.NotificationRootsListChanged, nil)
		case what == 1 && c.who.Session != "":
			u.Forget(c.who.Session)
		case what < 5:
			wg.Go(func() {
				call := &Call{Method: spec.MethodToolsList, Caller: c.who, Idempotent: true}
				if c.who.Session != "" {
					call.Ask = c.request().Ask
				}
				_, _ = u.Call(t.Context(), call)
			})
		case what < 7: // a caller that declares no roots
			wg.Go(func() {
				who := c.who
				who.Capabilities = jsonrpc.Raw(canElicit)
				_, _ = do(t.Context(), u,
					&Call{
						Method: spec.MethodToolsCall, Caller: who,
						Params: jsonrpc.Raw(`{"name":"x","arguments":{}}`),
					})
			})
		default:
			wg.Go(func() {
				if got := c.call(t); got != "" && !strings.HasPrefix(got, own) {
					t.Errorf("%+v got %s", c.who, got)
				}
			})
		}
		if pause > 100*time.Millisecond {
			<-time.After(pause)
		}
		checkOwners(t, u)
	}
	wg.Wait()
	l.close(u)
}

// checkOwners looks at all connections: those that declare roots have an owner for them.
func checkOwners(t *testing.T, u *Upstream) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, h := range u.pool.holders {
		for _, l := range h.conns {
			if l.state == ready && l.declaresRoots() && key.roots == undeclared && key.group.IsZero() {
				t.Errorf("a connection that all share declares roots")
			}
			if l.holder != h || h.single {
				t.Errorf("a connection has another holder than the one that has it")
			}
			for _, pc := range l.pending {
				now, lasting := u.pool.keyOf(pc.who, pc.abilities, pc.use)
				if !lasting || now != key && (pc.use == useAsking || key.roots != listRoots) {
					t.Errorf("a call of %+v is on a connection of %+v", pc.who, key)
				}
			}
		}
	}
}
