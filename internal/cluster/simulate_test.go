package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/ledger"
	principal "github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/store"
)

const (
	// simVar says how many seeds TestSimulation has, and simFromVar which is the first one.
	simVar, simFromVar = "FARCALL_SIMULATE", "FARCALL_SIMULATE_FROM"

	simNodes   = 3
	simClients = 3
	simCalls   = 4 // of each client
	simLimit   = 30 * time.Second
	simSecret  = "0123456789abcdef0123456789abcdef"
	simWindow  = 5 * time.Minute // of signatures
)

// A world is a cluster in one bubble: its nodes, the store that they share, the ways between them
// and to the store, and what its clients have seen. Time is that of the bubble.
type world struct {
	t      *testing.T
	seed   uint64
	chance chance
	shared *store.Memory
	nodes  [simNodes]*simNode // those that run
	all    []*simNode         // also those that have been killed
	skews  [simNodes]time.Duration
	stops  [simNodes]*wall           // all ways of a node
	stores [simNodes]*wall           // its way to the store
	links  [simNodes][simNodes]*wall // between two
	slow   atomic.Bool               // all ways
	lossy  atomic.Bool               // the outcomes of operations of the store may be unknown

	apart bool // a flaw: each node claims and records for itself

	mu       sync.Mutex
	problems []string
	executed map[string]int
	calls    map[string]*simCall
	tasks    []string
	ends     map[string]string
	longest  time.Duration
}

// A simCall is what has become of a call.
type simCall struct {
	kind              string
	answered, unknown int
	values            map[string]bool
}

// A simNode is one process, from its start to its end.
type simNode struct {
	w      *world
	slot   int
	store  *simStore
	tasks  *simStore // the same, for the tasks
	node   *Node
	server *mcp.Server
	mcp    *mcphttp.Handler
	guard  *guard.Guard
	ledger *ledger.Ledger
	listen [2]*simListener // for clients, and for nodes
	web    [2]*http.Server
	served sync.WaitGroup
}

func newWorld(t *testing.T, seed uint64, apart bool) *world {
	w := &world{
		t: t, seed: seed, apart: apart, shared: store.NewMemory(nil), executed: map[string]int{},
		calls: map[string]*simCall{}, ends: map[string]string{},
		chance: chance{rng: rand.New(rand.NewPCG(seed, 1))},
	}
	for i := range simNodes {
		w.stops[i], w.stores[i] = &wall{}, &wall{}
		w.skews[i] = w.chance.upTo(simSkew/2) - simSkew/4
		for j := range simNodes {
			w.links[i][j] = &wall{}
		}
	}
	<-time.After(time.Minute) // signatures made before the store began are refused
	for i := range simNodes {
		w.start(i)
	}
	<-time.After(2 * pulse)
	return w
}

// problem notes what must not be.
func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problemLocked(format, args...)
}

func (w *world) problemLocked(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// slowness bounds how long one step on a way takes.
func (w *world) slowness() time.Duration {
	if w.slow.Load() {
		return 800 * time.Millisecond
	}
	return 4 * time.Millisecond
}

// start starts the process of a slot, unless the store does not let it join now.
func (w *world) start(slot int) {
	n := &simNode{w: w, slot: slot}
	walk := []*wall{w.stops[slot], w.stores[slot]}
	n.store = &simStore{Store: w.shared, w: w, walk: walk}
	n.tasks = &simStore{Store: w.shared, w: w, walk: walk, prompt: true}
	kept := store.Records(n.store)
	if w.apart {
		n.store.alone = strconv.Itoa(slot)
		kept = store.New(nil)
	}
	var err error
	n.node, err = Join(context.Background(), n.store, &Options{Name: strconv.Itoa(slot)})
	if err != nil {
		w.problem("join: %v", err)
		return
	}
	n.ledger = ledger.New(kept, nil)
	now := func() time.Time { return time.Now().Add(w.skews[slot]) }
	c := &guard.Config{Anonymous: true, Signatures: []guard.Signer{{ID: "ci", Secret: simSecret}}}
	c.Resource.URL = "https://rpc.example"
	if n.guard, err = guard.New(c, &guard.Options{Shared: n.store, Now: now}); err != nil {
		w.t.Fatal(err)
	}
	n.serve()
	w.mu.Lock()
	w.nodes[slot], w.all = n, append(w.all, n)
	w.mu.Unlock()
}

// serve makes the handlers of a node, and listens.
func (n *simNode) serve() {
	keys := [][]byte{n.node.Secret("sessions")}
	n.server = mcp.NewServer("sim", "1", &mcp.ServerOptions{
		Shared: n.tasks, Keys: keys, Replica: n.node.ID(), TaskAfter: -1,
	})
	mcp.AddTool(n.server, mcp.Tool{Name: "note"}, n.note)
	mcp.AddTool(n.server, mcp.Tool{
		Name: "work", Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional},
	}, n.work)
	n.mcp = mcphttp.NewHandler(n.server, &mcphttp.Options{
		Keys: keys, Replica: n.node.ID(), Forward: n.node.Forward, Hosts: []string{"*"},
		Owner: func(r *http.Request) string { return r.Header.Get("X-User") },
		Route: func(ctx context.Context, home, _ string) string {
			if Forwarded(ctx) || home == "" {
				return ""
			}
			return n.node.Place(home, home)
		},
	})
	mux := farcall.NewMux()
	note := func(ctx context.Context, r *farcall.Request) (any, error) {
		var p struct{ Text string }
		if err := json.Unmarshal(r.Params, &p); err != nil {
			return nil, err
		}
		return n.run(ctx, p.Text)
	}
	mux.Handle("note", farcall.HandlerFunc(note))
	routes := http.NewServeMux()
	routes.Handle("/mcp", n.mcp)
	rpc := &farcall.Options{Interceptors: []farcall.Interceptor{n.guard.Interceptor(nil)}}
	routes.Handle("/rpc", n.guard.HTTP(httprpc.NewHandler(mux, &httprpc.Options{
		Hosts: []string{"*"}, RPC: rpc,
	})))
	delay := func() time.Duration { return n.w.chance.upTo(n.w.slowness()) }
	n.node.links.client = &http.Transport{
		DialTLSContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return n.w.dial(ctx, n.slot, addr, delay)
		},
		MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: linkIdle, DisableCompression: true,
	}
	for i, h := range []http.Handler{routes, received(routes)} {
		n.listen[i] = newSimListener()
		n.web[i] = &http.Server{Handler: h, ReadHeaderTimeout: headTime}
		n.served.Go(func() { _ = n.web[i].Serve(n.listen[i]) })
	}
	n.node.links.server = n.web[1]
	n.node.mu.Lock()
	n.node.self.Calls = n.node.ID() + ":1"
	n.node.mu.Unlock()
	n.node.publish(context.Background())
}

// dial connects a node to another one.
func (w *world) dial(
	ctx context.Context, from int, addr string, delay func() time.Duration,
) (net.Conn, error) {
	w.mu.Lock()
	i := slices.IndexFunc(w.all, func(n *simNode) bool { return n.node.ID()+":1" == addr })
	if i < 0 {
		w.mu.Unlock()
		return nil, errRefused
	}
	to := w.all[i]
	w.mu.Unlock()
	walls := []*wall{
		w.stops[from], w.stops[to.slot], w.links[min(from, to.slot)][max(from, to.slot)],
	}
	return to.listen[1].dial(ctx, walls, delay)
}

// kill ends a process at once: what it has begun has no effect any more, but for what is under way
// to the store.
func (n *simNode) kill() {
	n.store.dead.Store(true)
	n.tasks.dead.Store(true)
	for i := range n.web {
		n.listen[i].Close()
		n.web[i].Close()
	}
	n.node.end()
}

// heal tells a process that its way to the store is open again.
func (n *simNode) heal() {
	n.store.heal()
	n.tasks.heal()
}

// close ends what goes on of a process.
func (n *simNode) close() {
	n.kill()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.mcp.Shutdown(ctx)
	n.server.Close()
	n.guard.Close()
	n.node.links.client.CloseIdleConnections()
	n.node.done.Wait()
	n.node.stop()
	n.served.Wait()
	n.store.late.Wait()
	n.tasks.late.Wait()
}

// run executes something, which takes time. A process that has ended executes nothing.
func (n *simNode) run(ctx context.Context, text string) (string, error) {
	pass([]*wall{n.w.stops[n.slot]}, ctx.Done())
	if n.store.dead.Load() || ctx.Err() != nil {
		return "", context.Canceled
	}
	n.w.mu.Lock()
	n.w.executed[text]++
	value := fmt.Sprint(text, "=", n.w.executed[text], n.slot)
	n.w.mu.Unlock()
	select {
	case <-time.After(n.w.chance.upTo(2 * time.Second)):
	case <-ctx.Done():
	}
	return value, nil
}

type noteIn struct{ Text, Key string }

// note is a call, with an idempotency key or without.
func (n *simNode) note(ctx context.Context, in noteIn) (string, error) {
	if in.Key == "" {
		return n.run(ctx, in.Text)
	}
	c := &ledger.Call{
		Owner: principal.Named("ann"), Key: in.Key, Digest: sha256.Sum256([]byte(in.Text)),
	}
	value, err := n.ledger.Do(ctx, c, func(ctx context.Context) ([]byte, ledger.Effect) {
		value, err := n.run(ctx, in.Text)
		if err != nil {
			return nil, ledger.None
		}
		return []byte(value), ledger.Done
	})
	return string(value), err
}

// work is a task.
func (n *simNode) work(ctx context.Context, in noteIn) (string, error) {
	return n.run(ctx, in.Text)
}

// faults disturb the cluster until the last one is mended.
func (w *world) faults() {
	pause := func() { <-time.After(time.Second + w.chance.upTo(17*time.Second)) }
	for range 1 + w.chance.n(3) {
		<-time.After(w.chance.upTo(4 * time.Second))
		i := w.chance.n(simNodes)
		switch w.chance.n(6) {
		case 0:
			w.nodes[i].kill()
			<-time.After(w.chance.upTo(3 * time.Second))
			w.start(i)
		case 1: // as SIGSTOP does
			w.stops[i].set(true)
			pause()
			w.stops[i].set(false)
			w.nodes[i].heal()
		case 2: // from the store
			w.stores[i].set(true)
			pause()
			w.stores[i].set(false)
			w.nodes[i].heal()
		case 3: // from the other nodes
			for j := range simNodes {
				w.links[min(i, j)][max(i, j)].set(true)
			}
			pause()
			for j := range simNodes {
				w.links[min(i, j)][max(i, j)].set(false)
			}
		case 4:
			w.slow.Store(true)
			pause()
			w.slow.Store(false)
		default:
			w.lossy.Store(true)
			pause()
			w.lossy.Store(false)
		}
	}
}

// check compares what clients have seen with what was executed.
func (w *world) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for text, c := range w.calls {
		n := w.executed[text]
		switch {
		case n > 1:
			w.problemLocked("the %s call %s was executed %d times", c.kind, text, n)
		case c.answered > 0 && n == 0:
			w.problemLocked("the %s call %s has a result, and was not executed", c.kind, text)
		case c.kind == "signed" && c.answered > 1:
			w.problemLocked("a nonce was accepted %d times: %s", c.answered, text)
		case len(c.values) > 1:
			w.problemLocked("the %s call %s has several results: %v", c.kind, text, c.values)
		case c.answered+c.unknown == 0 && n > 0:
			w.problemLocked("the %s call %s was executed after sent: no", c.kind, text)
		}
	}
	if w.longest > simLimit {
		w.problemLocked("a request took %v", w.longest)
	}
}

// simulate runs one seed.
func simulate(t *testing.T, seed uint64, apart bool) (w *world) {
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed, apart)
		var wg sync.WaitGroup
		for c := range simClients {
			wg.Go(func() { w.client(c) })
		}
		w.faults()
		wg.Wait()
		for _, id := range w.tasks { // each has an end, also of a process that was lost
			for try := 0; !w.ask(id); try++ {
				if <-time.After(time.Second); try > 60 {
					w.problem("the task %s has no end", id)
					break
				}
			}
		}
		w.check()
		for _, n := range w.all {
			n.close()
		}
		<-time.After(time.Minute) // what was executed without its client has ended
		if err := w.shared.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// A cluster in one bubble, with the store in memory and all else as it is: nodes are killed,
// stopped, and cut off from the store or from each other, their clocks differ, ways are slow, and
// operations of the store have unknown outcomes. No signature is accepted twice, no call is
// executed twice, no task is lost or changes its end, and each request ends in 30 s.
func TestSimulation(t *testing.T) {
	seeds := uint64(20)
	if n, err := strconv.ParseUint(os.Getenv(simVar), 10, 64); err == nil {
		seeds = n
	}
	first, _ := strconv.ParseUint(os.Getenv(simFromVar), 10, 64)
	var calls, unknown, tasks int
	var longest time.Duration
	began := time.Now()
	for done := uint64(1); done <= seeds && !t.Failed(); done++ {
		w := simulate(t, first+done-1, false)
		for _, text := range w.problems {
			t.Errorf("seed %d: %s", w.seed, text)
		}
		for _, c := range w.calls {
			if calls++; c.answered == 0 && c.unknown > 0 {
				unknown++
			}
		}
		tasks, longest = tasks+len(w.tasks), max(longest, w.longest)
		if done%1000 == 0 || done == seeds {
			t.Logf("%d seeds: %d calls, %d without a known outcome, %d tasks, the longest took %v; %v",
				done, calls, unknown, tasks, longest, time.Since(began).Round(time.Second))
		}
	}
}

// Nodes that share nothing are found out, by one seed or another.
func TestSimulationFinds(t *testing.T) {
	t.Parallel()
	wanted := []string{"keyed call", "signed call"}
	for seed := range uint64(1000) {
		found := strings.Join(simulate(t, seed, true).problems, "\n")
		wanted = slices.DeleteFunc(wanted, func(kind string) bool {
			return strings.Contains(found, kind)
		})
		if len(wanted) == 0 {
			return
		}
	}
	t.Errorf("no problem with a %s", strings.Join(wanted, ", a "))
}
