package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/bench/internal/addfarcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// The ways in which a server is guarded.
const (
	unguarded   = "no guard"
	tokenUnread = "no guard, an unread token"
	guardJWT    = "JWT, rules, rate"
	guardKey    = "API key, rules, rate"
	guardAudit  = "JWT, rules, rate, audit"
)

// The groups of one call with a guard and without.
var (
	guardRPC     = fmt.Sprintf("guard: JSON-RPC over HTTP, %d in flight", inFlight)
	guardRPCOne  = "guard: JSON-RPC over HTTP, sequential"
	guardMCP     = fmt.Sprintf("guard: MCP tools/call over HTTP, %d in flight", inFlight)
	guardGateway = fmt.Sprintf("guard: gateway to %s, %d in flight", farcallChild, inFlight)
)

func guardGroups() []group {
	var groups []group
	for _, g := range []struct {
		name    string
		workers int
		kind    string
		ways    []string
	}{
		{guardRPC, inFlight, "rpc", []string{unguarded, tokenUnread, guardJWT, guardKey, guardAudit}},
		{guardRPCOne, 1, "rpc", []string{unguarded, tokenUnread, guardJWT}},
		{guardMCP, inFlight, "mcp", []string{unguarded, tokenUnread, guardJWT}},
	} {
		of := group{name: g.name, workers: g.workers, longer: 4, base: unguarded}
		for _, way := range g.ways {
			of.subjects = append(of.subjects, subject{way, func() (*running, error) {
				return guardedServer(g.kind, way, g.workers)
			}})
		}
		groups = append(groups, of)
	}
	build := programs(sync.OnceValues(buildPrograms))
	of := group{
		name: guardGateway, workers: inFlight, longer: 4, base: unguarded,
		cpuOf: "gateway's CPU time",
	}
	for _, way := range []string{unguarded, tokenUnread, guardJWT} {
		of.subjects = append(of.subjects, subject{way, func() (*running, error) {
			return build.guardedGateway(way)
		}})
	}
	groups = append(groups, of)
	return append(groups, guardWorkGroups()...)
}

// A guardOrder tells the child process what to be.
type guardOrder struct {
	Serve string // "rpc", "slow", "mcp"
	Way   string
	JWKS  string
	Audit string // a file
}

// guardConfig has an issuer, a key, five rules by role and one that denies, and a rate for each
// principal.
func guardConfig(o *guardOrder) *guard.Config {
	c := &guard.Config{
		JWT:  []guard.Issuer{{Issuer: tokenIssuer, JWKS: o.JWKS, Audience: []string{tokenAudience}}},
		Keys: []guard.Key{{ID: "ci", Hash: apiKeyHash(), Roles: []string{"reader", "dev"}}},
		Allow: []guard.Rule{
			{Roles: []string{"admin"}, Calls: []string{"*"}},
			{Roles: []string{"dev"}, Calls: []string{"tools/call git*", "prompts/get *"}},
			{
				Roles: []string{"reader"},
				Calls: []string{"echo", "math/*", "tools/call add", "tools/call bench/*"},
			},
			{Roles: []string{"ops"}, Calls: []string{"tools/call deploy*", "resources/read *"}},
			{Roles: []string{"guest"}, Calls: []string{"health"}},
		},
		Deny: []guard.Rule{{Roles: []string{"guest", "dev"}, Calls: []string{"tools/call *delete*"}}},
	}
	c.Limits.Rates = []guard.Rate{{Limit: 1_000_000, Every: time.Second}}
	c.Audit.File = o.Audit
	return c
}

// serveGuarded is the child process.
func serveGuarded(order string, l net.Listener) error {
	if order == "replay" {
		return serveReplay(l)
	}
	var o guardOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return err
	}
	rpc := &farcall.Options{}
	through := func(h http.Handler) http.Handler { return h }
	whose := (func(*http.Request) string)(nil)
	if o.Way != unguarded && o.Way != tokenUnread {
		c := guardConfig(&o)
		if o.Serve == "slow" {
			c.Limits.Total = fairTotal
		}
		g, err := guard.New(c, nil)
		if err != nil {
			return err
		}
		rpc.Interceptors = []farcall.Interceptor{g.Interceptor(nil)}
		through = g.HTTP
		whose = func(r *http.Request) string { return guard.From(r.Context()).Name() }
	}
	var h http.Handler
	switch o.Serve {
	case "rpc":
		h = httprpc.NewHandler(farcallMethods(), &httprpc.Options{RPC: rpc})
	case "slow":
		h = httprpc.NewHandler(slowMethods(), &httprpc.Options{RPC: rpc})
	case "mcp":
		h = mcphttp.NewHandler(addfarcall.NewServer(), &mcphttp.Options{RPC: rpc, Owner: whose})
	default:
		return errors.New("nothing is called " + o.Serve)
	}
	go http.Serve(l, through(h))
	return nil
}

// guardedServer starts a server and those who call it, each with their own token.
func guardedServer(serve, way string, workers int) (*running, error) {
	tokens, err := newTokens()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-guard-")
	if err != nil {
		return nil, err
	}
	o := guardOrder{Serve: serve, Way: way, JWKS: tokens.jwks}
	if way == guardAudit {
		o.Audit = filepath.Join(dir, "audit")
	}
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	c, err := startChild("guard " + string(order))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop := func() {
		c.stop()
		os.RemoveAll(dir)
	}
	call, session := guardCall, false
	if serve == "mcp" {
		call, session = legacyCall, true
	}
	clients, err := openGuarded(c.address, call, session, way, tokens, workers)
	if err != nil {
		stop()
		return nil, err
	}
	return &running{worker: clients.worker(), cpu: c.cpuTime, stop: func() {
		clients.close()
		stop()
	}}, nil
}

// openGuarded connects callers who show what the way wants, with a session each or without.
func openGuarded(
	address, call string, session bool, way string, tokens *tokens, workers int,
) (*callers, error) {
	c := &callers{}
	for i := range workers {
		conn, err := dialWeb(address)
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
		conn.extra = tokens.headers(way, i)
		var headers map[string]string
		if session {
			if headers, err = conn.openSession(legacyRevision); err != nil {
				c.close()
				return nil, err
			}
		}
		c.frames = append(c.frames, newCallFrame(conn.request(call, headers), i))
	}
	return c, nil
}

// guardCall is answered with its params, which look like a result.
const guardCall = `{"jsonrpc":"2.0","id":` + callID +
	`,"method":"echo","params":{"name":"add","arguments":{"a":1,"b":2},"sum":3}}`

// guardedGateway starts farcall with a configuration.
func (build programs) guardedGateway(way string) (*running, error) {
	dir, err := build()
	if err != nil {
		return nil, err
	}
	tokens, err := newTokens()
	if err != nil {
		return nil, err
	}
	text := "upstreams:\n  bench: " + filepath.Join(dir, farcallChild) + "\n"
	if way == guardJWT {
		text += gatewayGuard(tokens.jwks)
	}
	file := filepath.Join(dir, "guard-"+strings.NewReplacer(" ", "", ",", "").Replace(way)+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := build.farcallListening("serve", "--listen", "127.0.0.1:0", "--log", "off",
		"--config", file)
	if err != nil {
		return nil, err
	}
	p.pids = []int{p.cmd.Process.Pid} // the child is the same with a guard and without
	call := strings.Replace(legacyCall, `"add"`, `"bench__add"`, 1)
	clients, err := openGuarded(p.address, call, true, way, tokens, inFlight)
	if err != nil {
		p.stop()
		return nil, err
	}
	return &running{worker: clients.worker(), cpu: p.cpuTime, memory: p.resident, stop: func() {
		clients.close()
		p.stop()
	}}, nil
}

// gatewayGuard is guardConfig as it is written down.
func gatewayGuard(jwks string) string {
	return `guard:
  jwt: {issuer: ` + tokenIssuer + `, audience: ` + tokenAudience + `, jwks: '` + jwks + `'}
  allow:
    - admin: "*"
    - dev: [tools/call git*, prompts/get *]
    - reader: [tools/call bench/*]
    - ops: [tools/call deploy*, resources/read *]
    - guest: [health]
  deny:
    - guest: ["tools/call *delete*"]
      dev: ["tools/call *delete*"]
  limits: {rates: 1000000/s}
`
}
