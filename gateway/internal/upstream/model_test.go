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

	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// How many steps each of the ten runs of the model takes: in full 100,000 together.
const (
	modelSteps     = 400
	modelFullSteps = 10_000
)

// clients is how many clients a model has.
const clients = 12

// TestModel has random clients call servers that ask, die, answer late and ask after the call was
// cancelled, while sessions end. It checks that no call is on a connection of another owner and no
// question reaches another client than that of its call, that each call is made once and gets its
// own answer, once and within its time, that each client gets some, that no call waits while a
// connection for it is free, that the invariants hold after each step, and that nothing is left.
func TestModel(t *testing.T) {
	steps := modelSteps
	if full.Wanted() {
		steps = modelFullSteps
	}
	for _, lifetime := range []string{
		"", lifetimeShared, lifetimePrincipal, lifetimeSession,
		lifetimeCall,
	} {
		for seed := range uint64(race.Fewer(2)) {
			t.Run(fmt.Sprintf("%s %d", lifetime, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { runModel(t, lifetime, seed, steps) })
			})
		}
	}
}

type model struct {
	t      *testing.T
	l      *lab
	u      *Upstream
	wg     sync.WaitGroup
	random *rand.Rand // of the steps
	seen   map[*connection]connState

	mu      sync.Mutex
	counts  map[string]int
	served  map[string]int // by client: calls that were answered
	ran     map[string]int // by call: how often a server got it
	users   map[int]string // by connection: its owner
	longest time.Duration  // that a call took
}

func (m *model) count(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[what]++
}

// client returns one of a few: with a session or without, known or not.
func (m *model) client() (who Caller, name string) {
	n := m.random.IntN(clients)
	name = fmt.Sprint("c", n, "-")
	switch {
	case n < 6:
		who = Caller{Session: fmt.Sprint("s", n), Owner: owner.Named(fmt.Sprint("p", n%3))}
	case n < 9:
		who = Caller{Session: fmt.Sprint("s", n)}
	default:
		who = Caller{Owner: owner.Named(fmt.Sprint("o", n))}
	}
	if n%4 != 1 {
		who.Capabilities = jsonrpc.Raw(canElicit)
	}
	return who, name
}

func runModel(t *testing.T, lifetime string, seed uint64, steps int) {
	t.Helper()
	m := &model{
		t: t, l: newLab(t, legacy), random: rand.New(rand.NewPCG(seed, 7)),
		seen:   map[*connection]connState{},
		counts: map[string]int{}, served: map[string]int{}, ran: map[string]int{},
		users: map[int]string{},
	}
	m.l.called = func(conn int, id string) { m.got(lifetime, conn, id) }
	m.l.dialing = func(_ context.Context, n int) error {
		<-time.After(time.Duration(n%5) * 30 * time.Millisecond)
		if n%23 == 7 {
			return errors.New("it does not start")
		}
		return nil
	}
	m.u = m.l.upstream(Options{
		Lifetime: lifetime, Pool: 3, MaxConnections: 24, Timeout: 30 * time.Second,
		QueueTimeout: 40 * time.Second, BreakAfter: -1,
		IdleStop: time.Minute,
	})
	for n := range steps {
		m.step(n)
		if m.random.IntN(3) == 0 {
			<-time.After(time.Duration(m.random.IntN(400)) * time.Millisecond)
		}
		m.check()
	}
	m.wg.Wait()
	synctest.Wait()
	m.check()
	if s := m.u.Status(); s.InFlight != 0 || s.Queued != 0 || m.counts["ok"] < steps/4 {
		t.Errorf("%+v", s)
	}
	if m.counts["begun"] != m.counts["ended"] || len(m.served) != clients {
		t.Errorf("%d of %d calls have ended, of %d clients", m.counts["ended"], m.counts["begun"],
			len(m.served))
	}
	m.l.close(m.u)
	m.check()
	m.u.mu.Lock()
	defer m.u.mu.Unlock()
	if m.u.pool.counts != [closed + 1]int{} || len(m.u.pool.holders) != 0 || len(m.seen) != 0 ||
		m.u.queue.waiting.Len() != 0 || m.u.pool.singles != 0 || m.u.queue.inFlight.Known() != 0 {
		t.Errorf("left: connections %v, %d owners", m.u.pool.counts, len(m.u.pool.holders))
	}
	t.Logf("%d steps, %d servers, the longest call took %v: %v", steps, m.l.count(), m.longest,
		m.counts)
}

// got notes that a server has got a call. It checks that the connection is not that of another
// client, as far as the lifetime says who shares one, and that no server gets a call that another
// has got.
func (m *model) got(lifetime string, conn int, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ran[id]++; m.ran[id] > 1 {
		m.t.Errorf("%s was made %d times", id, m.ran[id])
	}
	var n, step int
	if _, err := fmt.Sscanf(id, "c%d-%d", &n, &step); err != nil {
		m.t.Errorf("%q: %v", id, err)
	}
	user := ""
	switch {
	case lifetime == lifetimeCall:
		user = id
	case lifetime == lifetimePrincipal && n < 6:
		user = fmt.Sprint("p", n%3)
	case lifetime == lifetimePrincipal, lifetime == lifetimeSession:
		user = fmt.Sprint("c", n)
	}
	if first, ok := m.users[conn]; ok && first != user {
		m.t.Errorf("%s is on connection %d, which is that of %s", id, conn, first)
	}
	m.users[conn] = user
}

// step begins something.
func (m *model) step(n int) {
	who, name := m.client()
	id := fmt.Sprint(name, n)
	kind := m.random.IntN(100)
	limit := 3 * time.Minute // longer than anything may take
	short := m.random.IntN(10) == 0
	if short {
		limit = time.Duration(1+m.random.IntN(500)) * time.Millisecond
	}
	think := time.Duration(m.random.IntN(3000)) * time.Millisecond
	tool, want := "which", ""
	switch {
	case kind == 0:
		m.u.Forget(who.Session)
		m.count("forgotten")
		return
	case kind == 1:
		tool = "die"
	case kind < 5:
		tool, short, limit = "stubborn", true, 200*time.Millisecond // it asks when its caller has gone
		m.wg.Go(func() { <-time.After(time.Second); m.l.release(id) })
	case kind < 15:
		m.wg.Go(func() {
			_, _ = m.u.Call(m.t.Context(),
				&Call{Method: spec.MethodToolsList, Caller: who, Idempotent: true})
			m.count("listed")
		})
		return
	case kind < 60 && who.Capabilities != nil:
		tool, want = "ask", id+" "+id
	case kind < 75:
		tool = "block"
		m.wg.Go(func() { <-time.After(think); m.l.release(id) })
	}
	m.wg.Go(func() {
		ctx, cancel := context.WithTimeout(m.t.Context(), limit)
		defer cancel()
		c := toolCall(tool, id, who)
		c.Ask = func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
			if !strings.Contains(string(params), `"question `+name) {
				m.t.Errorf("%s was asked %s", id, params)
			}
			select {
			case <-time.After(think):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return answerWith("")(ctx, method, params)
		}
		m.count("begun")
		begun := time.Now()
		got, err := do(ctx, m.u, c)
		m.ended(id, tool, want, got, err, short)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.counts["ended"]++
		m.longest = max(m.longest, time.Since(begun))
		if err == nil {
			m.served[name]++
			if m.ran[id] != 1 {
				m.t.Errorf("%s was answered, and a server got it %d times", id, m.ran[id])
			}
		}
	})
}

// ended judges the end of a call.
func (m *model) ended(id, tool, want, got string, err error, short bool) {
	wire, isWire := errors.AsType[*jsonrpc.Error](err)
	switch {
	case err == nil && want != "" && got != want:
		m.t.Errorf("%s of %s: got %q", tool, id, got)
	case err == nil:
		m.count("ok")
	case isWire && (wire.Code == jsonrpc.Overloaded || wire.Code == jsonrpc.Unavailable ||
		wire.Code == jsonrpc.Timeout):
		m.count(fmt.Sprint(int(wire.Code)))
	case errors.Is(err, context.DeadlineExceeded) && short:
		m.count("left")
	case strings.Contains(err.Error(), "it is not clear which call"),
		strings.Contains(err.Error(), "is over"), tool == "stubborn":
		m.count("refused")
	default:
		m.t.Errorf("%s of %s: %v", tool, id, err)
	}
}

// check looks whether anything is wrong at this moment.
func (m *model) check() {
	m.t.Helper()
	m.u.mu.Lock()
	defer m.u.mu.Unlock()
	for _, text := range m.u.broken(m.seen) {
		m.t.Error(text)
	}
	if m.t.Failed() {
		m.t.FailNow()
	}
}
