package gateway_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// An end is a revision and the transport over which it is spoken.
type end struct {
	rev       *era.Revision
	transport string
}

func ends() (all []end) {
	for _, r := range era.Revisions() {
		for _, transport := range transportsOf(r) {
			all = append(all, end{r, transport})
		}
	}
	return all
}

func everyPair(all []end) map[[2]end]bool {
	pairs := map[[2]end]bool{}
	for _, client := range all {
		for _, server := range all {
			pairs[[2]end{client, server}] = true
		}
	}
	return pairs
}

// covering chooses pairs such that each end is a client and a server, each revision meets each
// revision, and each transport each transport. A server has a client with sessions, which comes
// first: the gateway refuses a server's first question where it may belong to a call that was given
// up, and clients without sessions share connections. It takes the pair that has most of what is
// still missing, the first one of several.
func covering(all []end) map[[2]end]bool {
	meets := func(client, server end) []string {
		return []string{
			client.rev.Name + " " + client.transport + " >", "> " + server.rev.Name + " " + server.transport,
			client.rev.Name + " > " + server.rev.Name, client.transport + " > " + server.transport,
			fmt.Sprint("sessions: ", client.rev.Handshake, " > ", server.rev.Name, " ", server.transport),
		}
	}
	missing := map[string]bool{}
	for pair := range everyPair(all) {
		for _, what := range meets(pair[0], pair[1]) {
			missing[what] = true
		}
	}
	chosen := map[[2]end]bool{}
	for len(missing) > 0 {
		var best [2]end
		most := 0
		for _, client := range all {
			for _, server := range all {
				n := 0
				for _, what := range meets(client, server) {
					if missing[what] {
						n++
					}
				}
				if n > most {
					best, most = [2]end{client, server}, n
				}
			}
		}
		chosen[best] = true
		for _, what := range meets(best[0], best[1]) {
			delete(missing, what)
		}
	}
	return chosen
}

// cell is one square of the matrix.
type cell struct {
	client, server end
	feature        string
}

// matrix is what was tried.
type matrix struct {
	t        *testing.T
	features []feature
	chosen   map[[2]end]bool // the pairs of client and server to try

	mu     sync.Mutex
	tried  map[cell]*note // nil: it works
	failed int
	wrong  map[string][]string // pairs of transports, by what is wrong
}

// TestMatrix has clients of every revision over every transport use servers of every revision
// over every transport, with every feature, through a gateway. Without make full it tries the pairs
// of [covering].
func TestMatrix(t *testing.T) {
	t.Parallel()
	m := &matrix{
		t: t, features: features(), chosen: covering(ends()), tried: map[cell]*note{},
		wrong: map[string][]string{},
	}
	if full.Wanted() {
		m.chosen = everyPair(ends())
	}
	t.Run("servers", func(t *testing.T) {
		var wg sync.WaitGroup
		for _, server := range ends() {
			wg.Go(func() { m.serve(t, server) })
		}
		wg.Wait()
	})
	var missing int
	for pair := range m.chosen {
		for _, f := range m.features {
			if _, ok := m.tried[cell{pair[0], pair[1], f.name}]; !ok {
				missing++
			}
		}
	}
	t.Logf("%d of %d pairs of ends, %d cells were tried, %d failed, %d missing", len(m.chosen),
		len(everyPair(ends())), len(m.tried), m.failed, missing)
	for _, what := range slices.Sorted(maps.Keys(m.wrong)) {
		t.Errorf("%s (%s)", what, strings.Join(m.wrong[what], " "))
	}
	switch {
	case missing > 0:
		t.Errorf("%d cells were not tried", missing)
	case !t.Failed():
		m.document()
	}
}

// serve puts a gateway before one server and has all clients use it.
func (m *matrix) serve(t *testing.T, server end) {
	s := newStage(t)
	defer s.close()
	t.Run(server.rev.Name+" over "+server.transport, func(t *testing.T) {
		wire := newTap()
		u := s.upstream(t, server.rev, server.transport)
		if server.transport == overStdio {
			u.Pool = 3
		}
		h := newHouse(t, &gateway.Config{Upstreams: []*gateway.Upstream{u}, PageSize: playPage},
			&gateway.Options{RPC: &farcall.Options{OnRecord: wire.record}})
		for n, client := range ends() {
			if !m.chosen[[2]end{client, server}] {
				continue
			}
			v := &matrixClient{
				client: client.rev, clientOver: client.transport, server: server.rev,
				serverOver: server.transport,
				stage:      s, tap: wire, name: fmt.Sprintf("client-%d", n+1),
				logs: make(chan string, 10_000), changed: make(chan string, 1000),
				updated: make(chan string, 1000), listening: make(chan spec.SubscriptionFilter, 100),
			}
			if err := m.run(t.Context(), h, v); err != nil {
				t.Errorf("%v: %v", v, err)
			}
		}
	})
}

// run has one client use everything.
func (m *matrix) run(ctx context.Context, h *house, v *matrixClient) (err error) {
	begin, cancel := context.WithTimeout(ctx, cellTime)
	defer cancel()
	c, leave, err := h.enter(begin, v.clientOver, v.options())
	if err != nil {
		return err
	}
	v.Client = c
	defer func() {
		if left := leave(); err == nil {
			err = left
		}
	}()
	if got := c.Server(); got.Revision != v.client.Name || got.Name != "play" ||
		got.Instructions != "Read the notes first." {
		return fmt.Errorf("the gateway says it is %+v", got)
	}
	for _, f := range m.features {
		m.try(ctx, v, f)
	}
	return nil
}

func (m *matrix) try(ctx context.Context, v *matrixClient, f feature) {
	ctx, cancel := context.WithTimeout(ctx, cellTime)
	defer cancel()
	want := f.what(v.client, v.server)
	err := f.check(ctx, v, want)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tried[cell{end{v.client, v.clientOver}, end{v.server, v.serverOver}, f.name}] = want
	if err == nil {
		return
	}
	m.failed++
	what := fmt.Sprintf("%s, client of %s, server of %s: %v", f.name, v.client.Name,
		v.server.Name, err)
	m.wrong[what] = append(m.wrong[what], v.clientOver+"-"+v.serverOver)
}
