package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// modelSteps is how many steps a run of the model takes; FARCALL_MODEL_STEPS says otherwise.
const modelSteps = 600

// TestModel has random clients call servers that ask, die, answer late and ask after the call was
// cancelled, while sessions end. It checks that no question reaches another client than that of its call,
// that each call gets its own answer, once, and within its time, that the counters and states of
// connections agree after each step, and that nothing is left.
func TestModel(t *testing.T) {
	steps := modelSteps
	if n, err := strconv.Atoi(os.Getenv("FARCALL_MODEL_STEPS")); err == nil {
		steps = n
	}
	for _, lifetime := range []string{"", lifetimeShared, lifetimePrincipal, lifetimeSession, lifetimeCall} {
		for seed := range uint64(2) {
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

	mu     sync.Mutex
	counts map[string]int
}

func (m *model) count(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[what]++
}

// client returns one of a few: with a session or without, known or not.
func (m *model) client() (who Caller, name string) {
	n := m.random.IntN(12)
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
	m := &model{t: t, l: newLab(t, legacy), random: rand.New(rand.NewPCG(seed, 7)), counts: map[string]int{}}
	m.l.dialing = func(_ context.Context, n int) error {
		<-time.After(time.Duration(n%5) * 30 * time.Millisecond)
		if n%23 == 7 {
			return errors.New("it does not start")
		}
		return nil
	}
	m.u = m.l.upstream(Options{
		Lifetime: lifetime, Pool: 3, MaxConnections: 24, Timeout: 30 * time.Second, QueueTimeout: 40 * time.Second, BreakAfter: -1,
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
	m.l.close(m.u)
	m.u.mu.Lock()
	defer m.u.mu.Unlock()
	if m.u.pool.counts != [closed + 1]int{} || len(m.u.pool.holders) != 0 || m.u.pool.singles != 0 || m.u.queue.inFlight.Known() != 0 {
		t.Errorf("left: connections %v, %d owners", m.u.pool.counts, len(m.u.pool.holders))
	}
	t.Logf("%d steps, %d servers: %v", steps, m.l.count(), m.counts)
}

// step begins something.
func (m *model) step(n int) {
	who, name := m.client()
	id := fmt.Sprint(name, n)
	kind := m.random.IntN(100)
	limit := 3 * time.Minute // longer than anything may take
	hurried := m.random.IntN(10) == 0
	if hurried {
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
		tool, hurried, limit = "stubborn", true, 200*time.Millisecond // it asks when its caller has gone
		m.wg.Go(func() { <-time.After(time.Second); m.l.release(id) })
	case kind < 15:
		m.wg.Go(func() {
			_, _ = m.u.Call(m.t.Context(), &Call{Method: spec.MethodToolsList, Caller: who, Idempotent: true})
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
		got, err := do(ctx, m.u, c)
		m.ended(id, tool, want, got, err, hurried)
	})
}

// ended judges the end of a call.
func (m *model) ended(id, tool, want, got string, err error, hurried bool) {
	wire, isWire := errors.AsType[*jsonrpc.Error](err)
	switch {
	case err == nil && want != "" && got != want:
		m.t.Errorf("%s of %s: got %q", tool, id, got)
	case err == nil:
		m.count("ok")
	case isWire && (wire.Code == jsonrpc.Overloaded || wire.Code == jsonrpc.Unavailable || wire.Code == jsonrpc.Timeout):
		m.count(fmt.Sprint(int(wire.Code)))
	case errors.Is(err, context.DeadlineExceeded) && hurried:
		m.count("left")
	case strings.Contains(err.Error(), "it is not clear which call"), strings.Contains(err.Error(), "is over"), tool == "stubborn":
		m.count("refused")
	default:
		m.t.Errorf("%s of %s: %v", tool, id, err)
	}
}

// check counts anew what the upstream has counted, and looks who is where.
func (m *model) check() {
	m.t.Helper()
	u := m.u
	u.mu.Lock()
	defer u.mu.Unlock()
	var conns [closed + 1]int
	inFlight := 0
	for key, h := range u.pool.holders {
		if h.key != key || len(h.conns) == 0 && h.waiting == 0 {
			m.t.Errorf("an owner with nothing is kept")
		}
		for _, l := range h.conns {
			conns[l.state]++
			asking, suspended, n := 0, 0, 0
			for pc := l.pending.first; pc != nil; pc = pc.next {
				n++
				if pc.conn != l {
					m.t.Error("a call is on another connection than it says")
				}
				if h.session != "" && pc.who.Session != h.session {
					m.t.Errorf("a call of %q is on the connection of %q", pc.who.Session, h.session)
				}
				if h.pooled() && pc.who.Owner != key.client {
					m.t.Errorf("a call of %v is on a connection of %v", pc.who.Owner, key.client)
				}
				if !pc.light() {
					asking++
					if len(pc.asks) > 0 {
						suspended++
					}
				}
			}
			if l.holder != h || l.asking != asking || l.suspended != suspended || l.pending.n != n {
				m.t.Errorf("a connection has %d calls, %d asking, %d suspended: %d, %d, %d are counted", n, asking, suspended, l.pending.n, l.asking, l.suspended)
			}
			inFlight += n
		}
	}
	if u.opts.Lifetime != lifetimeCall && (conns[dialing] != u.pool.counts[dialing] || conns[ready] != u.pool.counts[ready]) {
		m.t.Errorf("connections %v are counted as %v", conns, u.pool.counts)
	}
	if u.pool.places() > u.opts.MaxConnections || inFlight > u.queue.inFlight.Used() {
		m.t.Errorf("%d connections, %d calls on them of %d", u.pool.places(), inFlight, u.queue.inFlight.Used())
	}
}
