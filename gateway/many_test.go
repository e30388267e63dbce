package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	manyClients = 20 // 60 for make full
	manyRounds  = 2
	manyPool    = 4 // of the server that can be asked one thing at a time
)

// crowd is the clients that are being asked something.
type crowd struct {
	want int // answers wait until that many clients are being asked by each server at once

	mu   sync.Mutex
	now  map[string]int // by server
	most map[string]int
	full chan struct{} // closed when there were enough
}

func newCrowd(want int) *crowd {
	c := &crowd{want: want, now: map[string]int{}, most: map[string]int{}, full: make(chan struct{})}
	if want == 0 {
		close(c.full)
	}
	return c
}

// join holds up an answer until enough others are being asked, too. Once there were enough,
// it holds up each for a moment only.
func (c *crowd) join(ctx context.Context, server string) {
	c.mu.Lock()
	before := c.enough()
	c.now[server]++
	c.most[server] = max(c.most[server], c.now[server])
	if !before && c.enough() {
		close(c.full)
	}
	c.mu.Unlock()
	moment := time.NewTimer(20 * time.Millisecond)
	defer moment.Stop()
	select {
	case <-c.full:
		select {
		case <-moment.C:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[server]--
}

// enough reports whether both servers asked enough clients at once. The lock is held.
func (c *crowd) enough() bool { return min(c.most["old"], c.most["new"]) >= c.want }

// one is a client among many.
type one struct {
	*mcp.Client
	name  string
	rev   *era.Revision
	crowd *crowd

	mu    sync.Mutex
	calls map[string]bool // under way
	wrong []string
}

// own reports whether a question is about a call of this client, and which.
func (o *one) own(ctx context.Context, question, before, after string) (call string, ok bool) {
	call, begins := strings.CutPrefix(question, before)
	call, ends := strings.CutSuffix(call, after)
	server, _, _ := strings.Cut(call, "/")
	o.mu.Lock()
	ok = begins && ends && o.calls[call]
	if !ok {
		o.wrong = append(o.wrong, question)
	}
	o.mu.Unlock()
	if ok {
		o.crowd.join(ctx, server)
	}
	return call, ok
}

var errNotMine = errors.New("this is not for me")

func (o *one) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Name: o.name, Era: o.rev.Name, Timeout: time.Minute,
		Elicit: func(ctx context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			call, ok := o.own(ctx, p.Message, "Who are you, ", "?")
			if !ok {
				return nil, errNotMine
			}
			return &spec.ElicitResult{
				Action:  spec.ElicitAccept,
				Content: append(jsonrpc.AppendString(jsonrpc.Raw(`{"name":`), o.name+" in "+call), '}'),
			}, nil
		},
		Sample: func(
			ctx context.Context, p *spec.CreateMessageRequestParams,
		) (*spec.CreateMessageResult, error) {
			call, ok := o.own(ctx, p.Messages[0].Content[0].Text, "The capital of ", "?")
			if !ok {
				return nil, errNotMine
			}
			return &spec.CreateMessageResult{
				Role: "assistant", Model: o.name,
				Content: []mcp.Content{mcp.Text(o.name + " knows " + call)},
			}, nil
		},
		Roots: func(context.Context) ([]spec.Root, error) {
			return []spec.Root{{URI: "file:///" + o.name}}, nil
		},
	}
}

// call calls a tool of a server, and wants that text.
func (o *one) call(
	ctx context.Context, server, tool string, round int, want func(call string) string,
) error {
	call := fmt.Sprintf("%s/%s/%s/%d", server, o.name, tool, round)
	o.mu.Lock()
	o.calls[call] = true
	o.mu.Unlock()
	args := any(playText{call})
	if tool == "where" {
		args = nil
	}
	r, err := o.CallTool(ctx, server+"__"+tool, args)
	o.mu.Lock()
	delete(o.calls, call)
	o.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s (%s): %w", call, o.rev.Name, err)
	}
	return differ(call, textOf(r), want(call))
}

// live has a client ask both servers for everything, at the same time.
func (o *one) live(ctx context.Context) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []error
	for _, server := range []string{"old", "new"} {
		for round := range manyRounds {
			wg.Go(func() {
				errs := []error{
					o.call(ctx, server, "capital", round, func(call string) string {
						return o.name + " knows " + call
					}),
					o.call(ctx, server, "where", round, func(string) string { return "1 file:///" + o.name }),
					o.call(ctx, server, "echo", round, func(call string) string { return call }),
				}
				if o.rev.Elicitation {
					errs = append(errs, o.call(ctx, server, "greet", round, func(call string) string {
						return "Hello, " + o.name + " in " + call
					}))
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, errs...)
			})
		}
	}
	wg.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.wrong) > 0 {
		all = append(all, fmt.Errorf("%s was asked %q", o.name, o.wrong))
	}
	return errors.Join(all...)
}

// TestManyClients has many clients of all revisions use a server that can be
// asked one thing at a time, and one that is stateless. While most of them are
// being asked something, no client gets the question or the answer of another one.
func TestManyClients(t *testing.T) {
	t.Parallel()
	stages := []*stage{newStage(t), newStage(t)}
	t.Cleanup(func() {
		for _, s := range stages {
			s.close()
		}
	})
	old := stages[0].upstream(t, era.LatestLegacy(), overStdio)
	old.Name, old.Pool = "old", manyPool
	modern := stages[1].upstream(t, era.Latest(), overTCP)
	modern.Name = "new"
	h := newHouse(t, &gateway.Config{Namespace: "always", Upstreams: []*gateway.Upstream{old, modern}},
		nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	first := &one{name: "first", rev: era.Latest(), crowd: newCrowd(0), calls: map[string]bool{}}
	client, leave, err := h.enter(ctx, overHTTP, first.options())
	if err == nil {
		// Its question tells that clients must be kept apart.
		first.Client = client
		err = first.call(ctx, "old", "greet", 0, func(call string) string {
			return "Hello, first in " + call
		})
		err = errors.Join(err, leave())
	}
	if err != nil {
		t.Fatal(err)
	}
	c := newCrowd(manyPool)
	var wg sync.WaitGroup
	clients := manyClients
	if full.Wanted() {
		clients *= 3
	}
	for n := range clients {
		wg.Go(func() {
			revisions := era.Revisions()
			o := &one{
				name: fmt.Sprintf("client-%d", n), rev: revisions[n%len(revisions)], crowd: c,
				calls: map[string]bool{},
			}
			transport := []string{overHTTP, overTCP}[n/len(revisions)%2]
			client, leave, err := h.enter(ctx, transport, o.options())
			if err != nil {
				t.Errorf("%s: %v", o.name, err)
				return
			}
			o.Client = client
			err = o.live(ctx)
			if err := errors.Join(err, leave()); err != nil {
				t.Errorf("over %s: %v", transport, err)
			}
		})
	}
	wg.Wait()
	t.Logf("asked at the same time: %v", c.most)
	if !c.enough() {
		t.Errorf("not enough clients were asked at the same time: %v", c.most)
	}
}

// TestLifetimes has clients leave something in the process of a server, and no other client
// find it who is not to.
func TestLifetimes(t *testing.T) {
	t.Parallel()
	for _, lifetime := range []string{"session", "principal", "call"} {
		for _, rev := range []*era.Revision{era.LatestLegacy(), era.Latest()} {
			if !full.Wanted() && lifetime == "call" && rev == era.Latest() { // it starts dozens of processes
				continue
			}
			if race.Enabled && !full.Wanted() && (lifetime != "principal" || rev == era.Latest()) {
				continue // connections of each lifetime are in TestChaos and TestModel of upstream
			}
			// One after the other: each starts many processes, and a list waits 10 s for one.
			t.Run(lifetime+" at "+rev.Name, func(t *testing.T) {
				keepToThemselves(t, lifetime, rev)
			})
		}
	}
}

func keepToThemselves(t *testing.T, lifetime string, rev *era.Revision) {
	t.Helper()
	s := newStage(t)
	t.Cleanup(s.close)
	u := s.upstream(t, rev, overStdio)
	u.Lifetime = lifetime
	h := newHouse(t, &gateway.Config{Upstreams: []*gateway.Upstream{u}}, &gateway.Options{
		Owner: func(r *http.Request) string { return r.Header.Get("X-User") },
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for n, client := range slices.Concat(era.Revisions(), era.Revisions()) {
		wg.Go(func() {
			if err := keeps(ctx, h, lifetime, client, fmt.Sprintf("user-%d", n/2), n); err != nil {
				t.Errorf("client %d of %s: %v", n, client.Name, err)
			}
		})
	}
	wg.Wait()
}

// keeps has one client leave its name with the server, several times.
func keeps(
	ctx context.Context, h *house, lifetime string, rev *era.Revision, user string, n int,
) error {
	o := &one{
		name: fmt.Sprintf("%s/%d", user, n), rev: rev, crowd: newCrowd(0),
		calls: map[string]bool{},
	}
	options := o.options()
	options.HTTP = &mcphttp.DialOptions{Header: http.Header{"X-User": {user}}}
	client, leave, err := h.enter(ctx, overHTTP, options)
	if err != nil {
		return err
	}
	defer func() { _ = leave() }()
	o.Client = client
	// Those who have no session are distinguished by who they are.
	mine := o.name
	if lifetime == "principal" || lifetime == "session" && !rev.Handshake {
		mine = user + "/"
	}
	var found string
	rounds := 4
	if lifetime == "call" {
		rounds = 2 // each call starts a process
	}
	for range rounds {
		before, err := o.CallTool(ctx, "keep", playText{o.name})
		if err != nil {
			return err
		}
		found = textOf(before)
		switch {
		case found != "" && lifetime == "call":
			return fmt.Errorf("a call found %q", found)
		case found != "" && !strings.HasPrefix(found, mine):
			return fmt.Errorf("%s found what is %q's", o.name, found)
		}
		if rev.Elicitation {
			call := "old/" + o.name
			o.mu.Lock()
			o.calls[call] = true
			o.mu.Unlock()
			r, err := o.CallTool(ctx, "greet", playText{call})
			if err != nil {
				return err
			}
			if err := differ("greet", textOf(r), "Hello, "+o.name+" in "+call); err != nil {
				return err
			}
		}
	}
	if found == "" && lifetime != "call" {
		return errors.New("nothing is kept at all")
	}
	return nil
}
