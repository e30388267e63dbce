package interop

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// keeping is a server of an SDK that keeps sessions, and what arrives there.
type keeping struct {
	url     string
	handler atomic.Pointer[http.Handler]

	mu       sync.Mutex
	sessions []string // Mcp-Session-Id of each request
	resumed  []string // Last-Event-ID of each GET that has one
	streams  int
	cuts     []context.CancelFunc
}

func keep(t *testing.T, h http.Handler) *keeping {
	t.Helper()
	k := new(keeping)
	k.handler.Store(&h)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		k.mu.Lock()
		k.sessions = append(k.sessions, r.Header.Get("Mcp-Session-Id"))
		if r.Method == http.MethodGet {
			k.streams++
			k.cuts = append(k.cuts, cut)
			if last := r.Header.Get("Last-Event-Id"); last != "" {
				k.resumed = append(k.resumed, last)
			}
		}
		k.mu.Unlock()
		(*k.handler.Load()).ServeHTTP(w, r.WithContext(ctx))
		if ctx.Err() != nil {
			panic(http.ErrAbortHandler) // breaks the connection
		}
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	k.url = web.URL + "/mcp"
	return k
}

// cut breaks the connections of all streams.
func (k *keeping) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, cut := range k.cuts {
		cut()
	}
}

// seen returns the distinct sessions of requests, in order.
func (k *keeping) seen() (ids []string, streams, resumed int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range k.sessions {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, k.streams, len(k.resumed)
}

// keepers are servers that keep sessions, with and without a store of events.
var keepers = map[string]struct {
	events bool
	serve  func() (h http.Handler, update func() error)
}{
	"go-sdk": {false, func() (http.Handler, func() error) { return goSDKKeeps(nil) }},
	"go-sdk, events": {true, func() (http.Handler, func() error) {
		return goSDKKeeps(gosdk.NewMemoryEventStore(nil))
	}},
	"mcp-go": {false, func() (http.Handler, func() error) { return mcpGoKeeps() }},
	"mcp-go, events": {true, func() (http.Handler, func() error) {
		return mcpGoKeeps(server.WithEventStore(server.NewInMemoryEventStore()))
	}},
}

func goSDKKeeps(events gosdk.EventStore) (http.Handler, func() error) {
	s := goSDKServer()
	get := func(*http.Request) *gosdk.Server { return s }
	h := gosdk.NewStreamableHTTPHandler(get, &gosdk.StreamableHTTPOptions{EventStore: events})
	return h, func() error {
		p := &gosdk.ResourceUpdatedNotificationParams{URI: "note://text"}
		return s.ResourceUpdated(context.Background(), p)
	}
}

func mcpGoKeeps(options ...server.StreamableHTTPOption) (http.Handler, func() error) {
	s := mcpGoServer()
	sessions := server.WithSessionIdManager(new(server.InsecureStatefulSessionIdManager))
	h := server.NewStreamableHTTPServer(s, append(options, sessions)...)
	return h, func() error {
		about := map[string]any{"uri": "note://text"}
		s.SendNotificationToAllClients("notifications/resources/updated", about)
		return nil
	}
}

// resumer is a client that listens until the test ends.
type resumer struct {
	*mcp.Client
	updated, lost chan struct{}
}

func (k *keeping) dial(t *testing.T, saved []byte) *resumer {
	t.Helper()
	r := &resumer{updated: make(chan struct{}, 100), lost: make(chan struct{}, 100)}
	listening := make(chan struct{}, 100)
	var err error
	r.Client, err = mcp.Dial(t.Context(), k.url, &mcp.ClientOptions{
		Era: spec.Revision20251125, Resume: saved,
		OnResourceUpdated: func(string) { r.updated <- struct{}{} },
		OnSessionLost:     func() { r.lost <- struct{}{} },
		OnListening:       func(spec.SubscriptionFilter) { listening <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		to := spec.SubscriptionFilter{ResourceSubscriptions: []string{"note://text"}}
		_ = r.Listen(t.Context(), to) // Close ends it
	})
	t.Cleanup(func() {
		_ = r.Close()
		wg.Wait()
	})
	awaits(t, "subscription", listening)
	return r
}

func (r *resumer) add(t *testing.T) {
	t.Helper()
	got, err := mcp.CallTool[sum](t.Context(), r.Client, "add", addends{2, 3})
	if err != nil || got.Sum != 5 {
		t.Fatal(got, err)
	}
}

func awaits(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("no %s", what)
	}
}

// A client goes on with its session after its connections broke, and so does one in a later
// process; where the server stores events, it gets those of the time between. When the server has
// forgotten the session, a call begins another one and works.
func TestMCPResume(t *testing.T) {
	t.Parallel()
	for name, of := range keepers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, update := of.serve()
			k := keep(t, h)
			c := k.dial(t, nil)
			c.add(t)
			updateUntil(t, update, c.updated)
			k.cut()
			c.add(t)
			for streams := 1; streams < 2; _, streams, _ = k.seen() { // until there is another one
				updateUntil(t, update, c.updated)
			}
			updateUntil(t, update, c.updated)
			if ids, _, _ := k.seen(); len(ids) != 1 {
				t.Fatalf("after the connections broke: the sessions %q", ids)
			}

			saved, err := c.Session()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if err := update(); err != nil { // while no client is there
				t.Fatal(err)
			}
			_, _, before := k.seen()
			c = k.dial(t, saved)
			if of.events {
				awaits(t, "event of the time between", c.updated)
			}
			c.add(t)
			updateUntil(t, update, c.updated)
			ids, _, after := k.seen()
			if len(ids) != 1 || len(c.lost) > 0 || of.events && after == before {
				t.Fatalf("in a later client: the sessions %q, %d lost, %d with Last-Event-ID",
					ids, len(c.lost), after-before)
			}

			h, update = of.serve()
			k.handler.Store(&h) // it is started again
			k.cut()
			c.add(t)
			awaits(t, "report of the lost session", c.lost)
			updateUntil(t, update, c.updated)
			if ids, _, _ = k.seen(); len(ids) != 2 {
				t.Fatalf("after the server was started again: the sessions %q", ids)
			}
		})
	}
}

// updateUntil has the server send updates until the client gets one: without a store of events,
// those are lost that come while there is no stream.
func updateUntil(t *testing.T, update func() error, updated <-chan struct{}) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		if err := update(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-updated:
			return
		case <-tick.C:
		}
	}
	t.Fatal("no update")
}
