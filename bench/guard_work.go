package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The groups of the guard's work alone.
const (
	guardDecision  = "guard: a decision, alone"
	guardSignature = "guard: a signed message, alone"
	guardReplay    = "guard: memory of nonces"

	noPolicies   = "no policies"
	remembered   = "10 rules, 5 in Cedar, remembered"
	looksAtCall  = "10 rules, 5 in Cedar, two look at the call"
	unsigned     = "not signed"
	signedHMAC   = "HMAC-SHA-256"
	signedEd     = "Ed25519"
	signedKeyID  = "ci"
	signedAmount = 20_000 // messages that are signed before they are measured
)

func guardWorkGroups() []group {
	return []group{
		{name: guardDecision, workers: 1, base: noPolicies, subjects: []subject{
			{noPolicies, func() (*running, error) { return decider(&guard.Config{}) }},
			{remembered, func() (*running, error) { return decider(tenAndFive("")) }},
			{looksAtCall, func() (*running, error) { return decider(tenAndFive(lookingPolicies)) }},
		}},
		{name: guardSignature, workers: 1, base: unsigned, subjects: []subject{
			{unsigned, func() (*running, error) { return identifier(unsigned) }},
			{signedHMAC, func() (*running, error) { return identifier(signedHMAC) }},
			{signedEd, func() (*running, error) { return identifier(signedEd) }},
		}},
	}
}

// lookingPolicies are two of the five; without them there are others of the same form that look at
// who calls what only, so that decisions can be remembered.
const (
	lookingPolicies = `
forbid (principal, action, resource) when { context has remote && context.remote.isInRange(ip("203.0.113.0/24")) };
forbid (principal, action, resource is Tool) when { context has arguments && context.arguments has force && context.arguments.force == true };
`
	plainPolicies = `
forbid (principal, action, resource is Tool) when { resource.name like "*_admin" };
forbid (principal, action == Action::"tools/call", resource) unless { principal.roles.contains("dev") || principal.roles.contains("role3") };
`
)

// tenAndFive is ten rules, and five policies in Cedar.
func tenAndFive(looking string) *guard.Config {
	c := &guard.Config{}
	for i := range 8 {
		c.Allow = append(c.Allow, guard.Rule{
			Roles: []string{fmt.Sprint("role", i)},
			Calls: []string{fmt.Sprintf("tools/call up%d/*", i), fmt.Sprintf("math%d/*", i)},
		})
	}
	c.Deny = []guard.Rule{
		{Roles: []string{"guest"}, Calls: []string{"tools/call *delete*"}},
		{Principals: []string{"mallory"}, Calls: []string{"*"}},
	}
	if looking == "" {
		looking = plainPolicies
	}
	c.Cedar = `
permit (principal in Role::"dev", action == Action::"tools/call", resource in Upstream::"github");
permit (principal is Service, action in Action::"any read", resource);
permit (principal == User::"bob", action, resource == Method::"math/add");
` + looking
	return c
}

// decider asks about a tool's call again and again.
func decider(c *guard.Config) (*running, error) {
	c.Anonymous = true // no warning that every request is refused
	g, err := guard.New(c, nil)
	if err != nil {
		return nil, err
	}
	conn := &guard.Conn{Transport: "tcp", Remote: "192.0.2.1:4444", Principal: &guard.Principal{
		ID: "alice", Kind: "user", Method: "jwt", Issuer: tokenIssuer, Roles: []string{"dev", "role3"},
		Scopes: []string{"a", "b"},
	}}
	params := jsonrpc.Raw(`{"name":"create_issue","arguments":{"title":"x","labels":["a","b"],"n":3}}`)
	worker := func() func(int) error {
		return func(n int) error {
			return within(g, conn, func(ctx context.Context) error {
				for range n {
					call := guard.Call{
						Method: "tools/call", Upstream: "github", Name: "create_issue", Params: params,
						Arguments: params[len(`{"name":"create_issue","arguments":`) : len(params)-1], MCP: true,
					}
					done, err := g.Begin(ctx, &call)
					if err != nil {
						return err
					}
					done(nil, nil)
				}
				return nil
			})
		}
	}
	return &running{worker: worker, stop: func() { g.Close() }}, nil
}

// within calls f with a context that has the principal of a connection, as handlers get it.
func within(g *guard.Guard, c *guard.Conn, f func(context.Context) error) error {
	h := g.Identify(c)(farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		return nil, f(ctx)
	}))
	_, err := h.ServeRPC(context.Background(), &farcall.Request{Method: "echo"})
	return err
}

const (
	smallMethod = "tools/call"
	smallParams = `{"name":"add","arguments":{"a":1,"b":2}}`
)

// signers are the keys of signed messages, and their other halves.
func signers(way string) (c *guard.Config, key any) {
	c = &guard.Config{}
	c.Replay.Future = 2 * earlier
	if way == signedEd {
		public, private := ed25519Keys()
		c.Signatures = []guard.Signer{{ID: signedKeyID, Public: public}}
		return c, private
	}
	secret := "a secret of thirty-two bytes, or more"
	c.Signatures = []guard.Signer{{ID: signedKeyID, Secret: secret}}
	return c, []byte(secret)
}

// earlier is by how much the clock of guards is behind: what was signed before they began would be
// stale.
const earlier = 10 * time.Minute

func signedGuard(c *guard.Config) (*guard.Guard, error) {
	return guard.New(c, &guard.Options{Now: func() time.Time { return time.Now().Add(-earlier) }})
}

// identifier finds out who sent a message. When all of those that are ready were used, a new guard,
// which has not seen them, takes the place of the old one.
func identifier(way string) (*running, error) {
	config, key := signers(way)
	conn := &guard.Conn{Transport: "tcp", Remote: "192.0.2.1:4444"}
	if way == unsigned {
		conn.Principal = &guard.Principal{ID: signedKeyID, Kind: "service", Method: "process"}
	}
	messages := make([]farcall.Request, signedAmount)
	for i := range messages {
		messages[i] = farcall.Request{Method: smallMethod, Params: jsonrpc.Raw(smallParams)}
		if way == unsigned {
			continue
		}
		var err error
		if messages[i].Params, err = guard.SignParams(smallMethod, messages[i].Params, signedKeyID, "",
			key); err != nil {
			return nil, err
		}
	}
	known := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		if guard.From(ctx) == nil {
			return nil, errors.New("it has no known sender")
		}
		return nil, nil
	})
	worker := func() func(int) error {
		var h farcall.Handler
		next := len(messages)
		return func(n int) error {
			for range n {
				if next == len(messages) {
					g, err := signedGuard(config)
					if err != nil {
						return err
					}
					h, next = g.Identify(conn)(known), 0
				}
				if _, err := h.ServeRPC(context.Background(), &messages[next]); err != nil {
					return err
				}
				next++
			}
			return nil
		}
	}
	return &running{worker: worker, stop: func() {}}, nil
}

// A nonceResult is what nonces take of a process.
type nonceResult struct {
	nonces    int
	heap, rss float64 // more than before them
}

// serveReplay verifies so many signed messages as it is asked to over HTTP, each with its own
// nonce.
func serveReplay(l net.Listener) error {
	config, key := signers(signedHMAC)
	config.Replay.Memory = 2_000_000 // one signer alone gets three quarters of it
	g, err := signedGuard(config)
	if err != nil {
		return err
	}
	h := g.Identify(
		&guard.Conn{Transport: "tcp"})(
		farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
			return nil, nil
		}))
	fill := func(n int) error {
		for range n {
			params, err := guard.SignParams(smallMethod, jsonrpc.Raw(smallParams), signedKeyID, "", key)
			if err != nil {
				return err
			}
			if _, err := h.ServeRPC(context.Background(),
				&farcall.Request{Method: smallMethod, Params: params}); err != nil {
				return err
			}
		}
		return nil
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err == nil {
			err = fill(n)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	return nil
}

// measureNonces lets a process remember n of them. They are kept for some minutes, which is longer
// than it takes.
func measureNonces(n int) (result, error) {
	r := result{group: guardReplay, name: "farcall", nonces: &nonceResult{nonces: n}}
	c, err := startChild("guard replay")
	if err != nil {
		return r, err
	}
	defer c.stop()
	var figures [2][2]int
	for i, fill := range []int{min(1000, n/10), n - min(1000, n/10)} {
		// what the first ones need is not the nonces'
		client := http.Client{Timeout: 4 * time.Minute}
		res, err := client.Get("http://" + c.address + "/?n=" + strconv.Itoa(fill))
		if err != nil {
			return r, err
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			return r, fmt.Errorf("%s: %s (%w)", res.Status, text, err)
		}
		for k, name := range []string{"rss", "heap"} {
			if figures[i][k], err = c.ask(name); err != nil {
				return r, err
			}
		}
	}
	r.nonces.rss = float64(figures[1][0] - figures[0][0])
	r.nonces.heap = float64(figures[1][1] - figures[0][1])
	return r, nil
}

// nonceTable can be empty, like idleTable.
func nonceTable(all results) *table {
	t := &table{head: []string{guardReplay, "number", "live heap", "resident memory, with garbage"}}
	for _, r := range all {
		if n := r.nonces; n != nil {
			t.add(r.name, strconv.Itoa(n.nonces), size(n.heap), size(n.rss))
		}
	}
	return t
}

// measureGuard measures what is no group of implementations.
func measureGuard(cfg config) (rs results, err error) {
	for _, m := range []struct {
		group   string
		measure func() (result, error)
	}{
		{guardFair, func() (result, error) { return measureFair(cfg.passes, 4*cfg.each) }},
		{guardReplay, func() (result, error) { return measureNonces(cfg.nonces) }},
	} {
		if !cfg.only.MatchString(m.group) {
			continue
		}
		r, err := m.measure()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.group, err)
		}
		rs = append(rs, r)
	}
	return rs, nil
}
