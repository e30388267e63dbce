// Package storetest answers one question: does an engine keep the contract of store.Store?
//
// [Run] has several clients use a store at once through several handles, as several processes
// would, and checks the histories of what they saw: claims, counters, records and items of queues
// by porcupine, which looks for an order of the operations that the contract allows; messages of
// the bus by their numbers. An operation with an unknown outcome may have happened or not, at any
// later time.
package storetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/farcall-dev/farcall/store"
)

// A Suite is an engine to be tested.
type Suite struct {
	// Open returns n handles on one store, which end with the test. Their leases of work are Lease,
	// and clocks are taken to be equal.
	Open func(t *testing.T, n int) []store.Store
	// Lease is how long work is leased: short, as a test waits for it.
	Lease time.Duration
	// Rounds is how many histories of each kind are made. Default 20.
	Rounds int
	// Steps is how many operations a client makes in a history, about. Default 12.
	Steps int
	// Seed makes the choices of the clients.
	Seed uint64
	// Disturb, if not nil, is called while clients are at work, once for each kind of history. It
	// ends with its context at the latest. Timeout is that of each operation then. Default 10 s.
	Disturb func(t *testing.T, ctx context.Context)
	Timeout time.Duration
}

const (
	handles = 3
	clients = 6
	checks  = 20 * time.Second

	// disturbedPause is the longest pause before an operation where there is a Disturb.
	disturbedPause = 100 * time.Millisecond
)

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	t.Helper()
	if s.Rounds == 0 {
		s.Rounds = 20
	}
	if s.Steps == 0 {
		s.Steps = 12
	}
	if s.Timeout == 0 {
		s.Timeout = 10 * time.Second
	}
	stores := s.Open(t, handles)
	for _, kind := range []struct {
		name  string
		model porcupine.Model
		act   func(c *client)
		end   func(c *client)
	}{
		{"once", onceModel(), onceClient, nil},
		{"counter", counterModel(), counterClient, nil},
		{"records", recordsModel(), recordsClient, nil},
		{"queue", queueModel(), queueClient, queueEnd},
	} {
		t.Run(kind.name, func(t *testing.T) {
			stop := s.disturb(t)
			total, unknown := 0, 0
			for round := range s.Rounds {
				began := time.Now()
				name := fmt.Sprintf("%s%d-%d-%d", kind.name, s.Seed, round, began.UnixNano())
				h := &history{suite: &s, t: t, round: name, began: began}
				h.run(stores, s.Seed+uint64(round), kind.act, kind.end)
				h.check(kind.model)
				total += len(h.operations)
				unknown += h.unknown
			}
			stop()
			t.Logf("%d histories with %d operations, %d of them with an unknown outcome",
				s.Rounds, total, unknown)
		})
	}
	t.Run("bus", func(t *testing.T) { testBus(t, &s, stores) })
	if s.Disturb == nil {
		t.Run("contract", func(t *testing.T) { testContract(t, &s) })
	}
}

// disturb runs Disturb beside the test, until stop is called.
func (s *Suite) disturb(t *testing.T) (stop func()) {
	if s.Disturb == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Disturb(t, ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// history is what the clients of a round did and saw.
type history struct {
	suite *Suite
	t     *testing.T
	round string
	began time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
	unknown    int
}

// A client is one goroutine with a handle.
type client struct {
	*history
	store.Store
	id     int
	random *rand.Rand
}

func (h *history) run(stores []store.Store, seed uint64, act, end func(*client)) {
	var wait sync.WaitGroup
	made := func(i int) *client {
		random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // repeatable
		return &client{history: h, Store: stores[i%len(stores)], id: i, random: random}
	}
	for i := range clients {
		wait.Go(func() { act(made(i)) })
	}
	wait.Wait()
	if end != nil {
		end(made(clients))
	}
}

// context bounds one operation.
func (h *history) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(h.t.Context(), h.suite.Timeout)
}

// an outcome is what an operation returned: known, or not.
type outcome struct {
	unknown bool
	ok      bool
	n       uint64
	value   string
}

func (o outcome) String() string {
	if o.unknown {
		return "unknown"
	}
	return fmt.Sprintf("%v %d %s", o.ok, o.n, o.value)
}

// do notes an operation. One with an unknown outcome never ends.
func (c *client) do(input any, f func(ctx context.Context) outcome) outcome {
	if c.suite.Disturb != nil { // so that a history lasts as long as what disturbs it
		<-time.After(time.Duration(c.random.IntN(int(disturbedPause))))
	}
	ctx, cancel := c.context()
	defer cancel()
	call := time.Since(c.began).Nanoseconds()
	out := f(ctx)
	end := time.Since(c.began).Nanoseconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	if out.unknown {
		end = math.MaxInt64
		c.unknown++
	}
	c.operations = append(c.operations, porcupine.Operation{
		ClientId: c.id, Input: input, Call: call, Output: out, Return: end,
	})
	return out
}

// failed turns an error that the operation did not expect into an outcome.
func (c *client) failed(err error) outcome {
	if c.suite.Disturb == nil {
		c.t.Error(err)
	}
	return outcome{unknown: true}
}

func (h *history) check(model porcupine.Model) {
	h.t.Helper()
	switch result, info := porcupine.CheckOperationsVerbose(model, h.operations, checks); result {
	case porcupine.Illegal:
		for _, o := range h.operations {
			h.t.Logf("client %d: %v -> %v [%d, %d]", o.ClientId, o.Input, o.Output, o.Call, o.Return)
		}
		h.t.Errorf("round %s: no order of these operations keeps the contract (%d partial ones)",
			h.round, len(info.PartialLinearizations()))
	case porcupine.Unknown:
		h.t.Errorf("round %s: not checked within %v", h.round, checks)
	}
}

// byKey splits a history into those of each key.
func byKey(key func(input any) string) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(all []porcupine.Operation) [][]porcupine.Operation {
		index, parts := map[string]int{}, [][]porcupine.Operation{}
		for _, o := range all {
			k := key(o.Input)
			i, is := index[k]
			if !is {
				i = len(parts)
				index[k] = i
				parts = append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		return parts
	}
}

// model makes a model of states that are comparable: step returns those that may follow, none when
// the operation cannot have had the outcome.
func model[S comparable, I any](
	first S, key func(I) string, step func(state S, in I, out outcome) []S,
) porcupine.Model {
	n := porcupine.NondeterministicModel{
		Partition: byKey(func(input any) string { return key(as[I](input)) }),
		Init:      func() []any { return []any{first} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, s := range step(as[S](state), as[I](input), as[outcome](output)) {
				next = append(next, s)
			}
			return next
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return n.ToModel()
}

// as gives a value of a history its type again.
func as[T any](v any) T {
	t, is := v.(T)
	if !is {
		//nolint:forbidigo // a fault of the suite
		panic(fmt.Sprintf("storetest: a history has %T where %T belongs", v, t))
	}
	return t
}
