package mcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// notedClient is a client that notes the notifications that it gets.
type notedClient struct {
	farcall.Caller

	mu   sync.Mutex
	told []string
}

func (c *notedClient) Notify(_ context.Context, method string, params any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, fmt.Sprintf("%s %s", method, params))
	return nil
}

func sessionCall(t *testing.T, x interface {
	ServeRPC(ctx context.Context, req *farcall.Request) (any, error)
}, method, params string,
) error {
	t.Helper()
	req := &farcall.Request{Method: method, Params: jsonrpc.Raw(params)}
	if !strings.HasPrefix(method, "notifications/") {
		req.ID = jsonrpc.StringID("1")
	}
	_, err := x.ServeRPC(t.Context(), req)
	return err
}

func initializeParams(revision string) string {
	return `{"protocolVersion":"` + revision +
		`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`
}

// The hooks of a session are called once each, in order, however it goes.
func TestSessionHooks(t *testing.T) {
	var log []string
	s := NewServer("x", "1", &ServerOptions{
		OnSessionBegan: func(ctx context.Context, x *Session) {
			log = append(log, "began "+ClientFrom(ctx).Name)
			if err := x.Notify(ctx, "notifications/x", nil); !errors.Is(err, errNotReady) {
				t.Error(err)
			}
		},
		OnSessionInitialized: func(_ context.Context, x *Session) {
			log = append(log, "initialized "+x.Client().Revision)
		},
		OnSessionEnded: func(x *Session) {
			log = append(log, "ended")
			<-x.Done()
			panic("contained")
		},
	})
	client := &notedClient{}
	x := s.Accept(t.Context(), client)
	if err := sessionCall(t, x, spec.MethodInitialize, initializeParams(legacyName)); err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(s.Sessions())
	if len(all) != 1 || all[0].ID() == "" {
		t.Fatal(all)
	}
	done := all[0].Done()
	for range 2 {
		if err := sessionCall(t, x, spec.NotificationInitialized, `{}`); err != nil {
			t.Fatal(err)
		}
	}
	if err := all[0].Notify(t.Context(), "notifications/x", map[string]int{"a": 1}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(all[0].Log(t.Context(), "info", "l", 1),
		all[0].Log(t.Context(), "debug", "l", 1),
		all[0].URLDone(t.Context(), "https://a.example")); err != nil {
		t.Error(err)
	}
	want := []string{
		`notifications/x {"a":1}`, `notifications/message {"level":"info","logger":"l","data":1}`,
		`notifications/elicitation/complete {"elicitationId":"` + elicitationID("https://a.example") +
			`"}`,
	}
	if !slices.Equal(client.told, want) {
		t.Errorf("told %q", client.told)
	}
	for _, err := range []error{
		all[0].Notify(t.Context(), spec.NotificationProgress, nil),
		all[0].Notify(t.Context(), "notifications/x", []int{}),
		all[0].Log(t.Context(), "loud", "", 1),
	} {
		if err == nil {
			t.Error("no error")
		}
	}
	x.Close()
	x.Close()
	<-done
	if err := all[0].Notify(t.Context(), "notifications/x", nil); err == nil {
		t.Error("a session that has ended")
	}
	if n := len(slices.Collect(s.Sessions())); n != 0 {
		t.Error(n, "sessions are left")
	}
	if want := []string{"began c", "initialized " + legacyName, "ended"}; !slices.Equal(log, want) {
		t.Errorf("got %q", log)
	}
	unused := s.Accept(t.Context(), client) // never initialized
	unused.Close()
	if len(log) != 3 {
		t.Errorf("got %q", log)
	}
}

// What a session keeps is bounded.
func TestSessionValues(t *testing.T) {
	s := NewServer("x", "1", nil)
	x := s.Accept(t.Context(), &notedClient{})
	if err := sessionCall(t, x, spec.MethodInitialize, initializeParams(legacyName)); err != nil {
		t.Fatal(err)
	}
	for one := range s.Sessions() {
		var n int
		if ok, err := one.Value("n", &n); ok || err != nil {
			t.Error(ok, err)
		}
		big := strings.Repeat("x", maxSessionValues/2-10)
		if err := errors.Join(one.SetValue("n", 5), one.SetValue("a", big), one.SetValue("a", big),
			one.SetValue("b", strings.Repeat("x", 9000))); err != nil {
			t.Error(err)
		}
		if ok, err := one.Value("n", &n); !ok || err != nil || n != 5 {
			t.Error(ok, err, n)
		}
		if err := one.SetValue("c", big); !errors.Is(err, errManyValues) {
			t.Error(err)
		}
		if err := errors.Join(one.SetValue("b", nil), one.SetValue("a", nil),
			one.SetValue("c", big)); err != nil {
			t.Error(err)
		}
		x.Close()
		if err := one.SetValue("n", 6); err == nil {
			t.Error("a value of a session that has ended")
		}
	}
}

// Whatever subscribers do, in every revision, the hook and its stop alternate for each resource,
// and at the end all have stopped.
func TestSubscribeHookIsBalanced(t *testing.T) {
	var mu sync.Mutex
	on := map[string]bool{}
	calls := 0
	s := NewServer("x", "1",
		&ServerOptions{OnSubscribe: func(_ context.Context, uri string) (func(), error) {
			mu.Lock()
			defer mu.Unlock()
			if on[uri] {
				t.Errorf("%s has begun twice", uri)
			}
			if calls++; calls%7 == 0 {
				return nil, jsonrpc.Errorf(1, "refused")
			}
			on[uri] = true
			return func() {
				mu.Lock()
				defer mu.Unlock()
				if !on[uri] {
					t.Errorf("%s has stopped twice", uri)
				}
				delete(on, uri)
			}, nil
		}})
	uris := []string{"test://a", "test://b"}
	for _, uri := range uris {
		s.AddResource(Resource{URI: uri, Name: uri},
			func(context.Context, string) ([]ResourceContents, error) { return nil, nil })
	}
	session := func(r *rand.Rand) {
		x := s.Accept(t.Context(), &notedClient{})
		if err := sessionCall(t, x, spec.MethodInitialize, initializeParams(legacyName)); err != nil {
			t.Error(err)
		}
		var closing sync.WaitGroup
		for range r.IntN(12) {
			method := spec.MethodResourcesSubscribe
			if r.IntN(3) == 0 {
				method = spec.MethodResourcesUnsubscribe
			}
			if r.IntN(15) == 0 {
				closing.Go(x.Close)
			}
			_ = sessionCall(t, x, method, `{"uri":"`+uris[r.IntN(2)]+`"}`) // it may be refused
		}
		closing.Wait()
		x.Close()
	}
	listener := func(r *rand.Rand) {
		ctx, cancel := context.WithCancel(t.Context())
		c := (&call{
			srv: s, client: &notedClient{},
			params: jsonrpc.Raw(
				`{"notifications":{"resourceSubscriptions":["test://a","test://b","test://a",` +
					`"test://none"]}}`),
		}).derive(ctx)
		c.rev = s.modern[0]
		if r.IntN(2) == 0 {
			cancel()
		}
		var ends sync.WaitGroup
		ends.Go(func() { _, _ = s.listen(c) })
		cancel()
		ends.Wait()
	}
	var all sync.WaitGroup
	for seed := range uint64(8) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for range 200 {
				if r.IntN(3) == 0 {
					listener(r)
				} else {
					session(r)
				}
			}
		})
	}
	all.Wait()
	if len(on) != 0 || len(s.subscribers.all) != 0 {
		t.Errorf("still on: %v; %d entries", on, len(s.subscribers.all))
	}
	if calls < 100 {
		t.Error(calls, "calls")
	}
}

// A client gets the notification that the user has done what it was asked for at a URL.
func TestElicitationComplete(t *testing.T) {
	asked, done := make(chan string, 1), make(chan string, 1)
	s := NewServer("x", "1", nil)
	var session *Session
	AddTool(s, Tool{Name: "visit"}, func(ctx context.Context, _ struct{}) (string, error) {
		session = RequestFrom(ctx).Session()
		return "visited", ElicitURL(ctx, "please", "https://a.example/1")
	})
	c := connected(t, s, &ClientOptions{
		Era: "2025-11-25",
		Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			asked <- p.ElicitationID
			return &spec.ElicitResult{Action: spec.ElicitAccept}, nil
		},
		OnElicitationComplete: func(id string) { done <- id },
	})
	if _, err := CallTool[string](t.Context(), c, "visit", nil); err != nil {
		t.Fatal(err)
	}
	if err := session.URLDone(t.Context(), "https://a.example/1"); err != nil {
		t.Fatal(err)
	}
	if was, is := <-asked, <-done; was != is || is == "" {
		t.Errorf("asked with %q, completed %q", was, is)
	}
}
