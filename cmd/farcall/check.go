package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/rpc"
)

func newCheckCmd(e *env) *cobra.Command {
	var f checkFlags
	cmd := command("check FILE", "Check a gateway's configuration and explain it",
		func(cmd *cobra.Command, args []string) error { return e.check(cmd.Context(), args[0], f) })
	cmd.Args = oneFile("farcall check farcall.yaml")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&f.start, "start", false,
		"start the servers of MCP, list what they have, and end them")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "fail when there is a notice")
	cmd.Flags().BoolVar(&f.insecure, "insecure", false,
		"accept what 'farcall serve --insecure' accepts: addresses that other machines can reach "+
			"without a guard or TLS")
	return cmd
}

type checkFlags struct{ json, insecure, start, strict bool }

func (e *env) check(ctx context.Context, file string, f checkFlags) error {
	c, err := gateway.Load(file)
	var bad *gateway.ConfigError
	if errors.As(err, &bad) && slices.ContainsFunc(bad.Problems, general) { // no upstreams, maybe
		only, failed := gateway.LoadGuard(file)
		var worse *gateway.ConfigError
		switch {
		case failed == nil && len(bad.Problems) == 1:
			c, err = only, nil
		case errors.As(failed, &worse) && !slices.ContainsFunc(worse.Problems, general):
			// a guard alone, with errors
			err = worse
		}
	}
	switch {
	case errors.As(err, &bad):
		return e.refuseConfig(bad, f.json)
	case err != nil:
		return configFailure(err)
	}
	if bad = unsafeListeners(file, c, f.insecure); bad == nil {
		bad = unpinned(file, c)
	}
	if bad != nil {
		return e.refuseConfig(bad, f.json)
	}
	report, started := newCheckReport(file, c), true
	if f.start && len(c.Upstreams) > 0 {
		if started, err = report.start(ctx, c); err != nil {
			return err
		}
	}
	return e.finish(report, f.json, f.strict, started)
}

// unsafeListeners are problems with which 'farcall serve --config FILE' does not start.
func unsafeListeners(file string, c *gateway.Config, insecure bool) *gateway.ConfigError {
	s, err := rpc.NewServer(nil, &rpc.ServeOptions{
		Service: &behind{config: c.Guard}, CertFile: c.TLS.Cert, KeyFile: c.TLS.Key,
		ClientCAFile:   c.TLS.ClientCA,
		TrustedProxies: c.TrustedProxies, Insecure: insecure, Logger: slog.New(slog.DiscardHandler),
	})
	if e, ok := errors.AsType[*rpc.ServeError](err); ok {
		return &gateway.ConfigError{
			File: file, Problems: []gateway.Problem{c.ProblemAt("tls", e.Reason, e.Hint)},
		}
	}
	bad := unsafeAddresses(s, c.Guard, c.Listen)
	if len(bad) == 0 || len(c.Upstreams) == 0 {
		return nil
	}
	return unsafeIn(file, c, bad)
}

// unpinned is the problem of a lock file that is missing or cannot be read, nil without one:
// nothing is served then.
func unpinned(file string, c *gateway.Config) *gateway.ConfigError {
	if _, err := c.Pinned(); err != nil {
		p := c.ProblemAt("lock", strings.TrimPrefix(err.Error(), "gateway: "), "")
		return &gateway.ConfigError{File: file, Problems: []gateway.Problem{p}}
	}
	return nil
}

// general reports whether a problem is about the whole file.
func general(p gateway.Problem) bool { return p.Path == "" }

// refuseConfig prints what is wrong with a configuration.
func (e *env) refuseConfig(bad *gateway.ConfigError, asJSON bool) error {
	if asJSON {
		report := checkReport{File: bad.File}
		for _, p := range bad.Problems {
			report.Problems = append(report.Problems, checkProblem(p))
		}
		if err := e.printValue(report); err != nil {
			return err
		}
		return &exitError{code: exitUsage}
	}
	fmt.Fprintln(e.stderr, tame(bad.Error()))
	return &exitError{
		code: exitUsage,
		err:  fmt.Errorf("%s in %s", countOf(len(bad.Problems), "problem"), bad.File),
		hint: "docs/config.md has every key, with an example.",
	}
}

// checkReport is the report about a configuration, and the form of --json.
type checkReport struct {
	OK        bool            `json:"ok"`
	File      string          `json:"file"`
	Problems  []checkProblem  `json:"problems,omitempty"`
	Notices   []checkProblem  `json:"notices,omitempty"`
	Name      string          `json:"name,omitempty"`
	Listen    []string        `json:"listen,omitempty"`
	Upstreams []checkUpstream `json:"upstreams,omitempty"`
	Endpoints []checkEndpoint `json:"endpoints,omitempty"`
	Started   []checkStarted  `json:"started,omitempty"`
	ToolLists []checkToolList `json:"toolLists,omitempty"` // of each address
	Limits    []string        `json:"limits,omitempty"`
	Guard     *checkGuard     `json:"guard,omitempty"`
}

type checkProblem struct {
	Line    int    `json:"line,omitzero"`
	Column  int    `json:"column,omitzero"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

type checkUpstream struct {
	Name     string   `json:"name"`
	Disabled bool     `json:"disabled,omitzero"`
	Profile  string   `json:"profile"`
	Kind     string   `json:"kind"`
	Target   string   `json:"target"`
	Cwd      string   `json:"cwd,omitempty"`
	Env      []string `json:"env,omitempty"`      // NAME: (where it comes from)
	Inherits []string `json:"inherits,omitempty"` // further variables of farcall's own
	Headers  []string `json:"headers,omitempty"`
	Lifetime string   `json:"lifetime,omitempty"`
	Sharing  string   `json:"sharing,omitempty"`
	Limits   []string `json:"limits"`
	Failing  []string `json:"failing"` // what happens then
	Shows    []string `json:"shows,omitempty"`
	Paths    []string `json:"paths,omitempty"`
	Sandbox  string   `json:"sandbox,omitempty"`
	Reaches  []string `json:"reaches,omitempty"` // a command without a sandbox
	Auth     string   `json:"auth,omitempty"`    // how the gateway shows who it is

	API *checkAPI `json:"api,omitempty"` // the operations of a document in a file
}

type checkEndpoint struct {
	Path string `json:"path"`
	What string `json:"what"`
}

// virtualText says what a virtual server has.
func virtualText(e *gateway.Endpoint) string {
	some := func(what string, patterns []string) string {
		switch {
		case patterns == nil && what == "tools":
			return "all tools"
		case patterns == nil:
			return what + " of the same upstreams"
		case len(patterns) == 0:
			return "no " + what
		}
		return what + " " + strings.Join(patterns, ", ")
	}
	text := "a virtual server: " + some("tools", e.Tools)
	if len(e.Deny) > 0 {
		text += " but not " + strings.Join(e.Deny, ", ")
	}
	text += "; " + some("resources", e.Resources) + "; " + some("prompts", e.Prompts)
	if n := len(e.Overrides); n > 0 {
		text += "; " + countOf(n, "tool") + " in another form"
	}
	if e.Search != nil {
		text += "; tools are searched, not listed"
	}
	if len(e.Roles) > 0 {
		text += "; for the roles " + strings.Join(e.Roles, ", ")
	}
	return text
}

func newCheckReport(file string, given *gateway.Config) *checkReport {
	c := given.Filled()
	r := &checkReport{
		OK: true, File: file, Name: c.Name, Listen: c.Listen,
		Guard: describeGuard(c.Guard),
	}
	for _, p := range given.Notices() {
		r.Notices = append(r.Notices, checkProblem(p))
	}
	r.Notices = append(r.Notices, unjudged(given)...)
	private := ownFiles(given)
	var mcp []string
	for _, u := range c.Upstreams {
		d := describeUpstream(u, c.Lock != "" || c.Guard != nil || len(c.Hooks)+len(u.Hooks) > 0)
		d.Reaches = reaches(u, private)
		r.Upstreams = append(r.Upstreams, d)
		if !u.Disabled && u.Profile != "raw" {
			mcp = append(mcp, u.Name)
		}
		if files := u.Loose(private); len(files) > 0 {
			r.Notices = append(r.Notices, checkProblem{Path: u.Name, Message: looseText(files)})
		}
		for _, text := range caveats(u, c) {
			r.Notices = append(r.Notices, checkProblem{Path: u.Name, Message: text})
		}
	}
	r.Notices = append(r.Notices, hookCaveats(c)...)
	r.addresses(mcp, c)
	r.Limits = []string{
		fmt.Sprintf("%s may wait for an answer of their client, each for %s",
			countOf(c.MaxSuspended, "call"), brief(c.SuspendTimeout)),
		fmt.Sprintf("calls in flight have %s to end when farcall stops", brief(c.DrainTimeout)),
		"a page of a list has " + countOf(c.PageSize, "item"),
	}
	r.Limits = append(r.Limits, sessionsText(c))
	r.Limits = append(r.Limits, clusterLimits(c)...)
	if t := c.Tasks; t.Dir != "" {
		r.Limits = append(r.Limits,
			fmt.Sprintf(
				"tasks are stored in %s, up to %s for each address, and kept for %s: they survive a restart",
				t.Dir, bytesText(t.MaxBytes), brief(t.TTL)))
	}
	r.Limits = append(r.Limits, signInLimits(c)...)
	if c.Errors == "plain" {
		r.Limits = append(r.Limits, "callers are not told why a server fails")
	}
	if c.Lock != "" {
		r.Limits = append(r.Limits,
			"servers, their tools, prompts, resources and templates must be as in "+c.Lock)
	}
	return r
}

// addresses lists where clients find what. mcp are the upstreams of MCP.
func (r *checkReport) addresses(mcp []string, c *gateway.Config) {
	if len(mcp) > 0 {
		all := strings.Join(mcp, ", ")
		r.Endpoints = append(r.Endpoints, checkEndpoint{"/mcp", "MCP of all as one: " + all},
			checkEndpoint{"/sse", "the same, for clients of HTTP+SSE"})
	}
	for _, u := range r.Upstreams {
		for _, path := range u.Paths {
			what := "JSON-RPC of " + u.Name
			if strings.HasPrefix(path, "/mcp") {
				what = "MCP of " + u.Name
			}
			r.Endpoints = append(r.Endpoints, checkEndpoint{path, what})
		}
	}
	for _, e := range c.Endpoints {
		r.Endpoints = append(r.Endpoints, checkEndpoint{"/mcp/" + e.Name, virtualText(e)},
			checkEndpoint{"/sse/" + e.Name, "the same, for clients of HTTP+SSE"})
	}
	if one(r.Upstreams) && r.has("/rpc/") {
		r.Endpoints = append(r.Endpoints, checkEndpoint{"/rpc", "JSON-RPC of the only upstream"},
			checkEndpoint{"/rpc/ws", "the same over WebSocket"})
	}
	r.Endpoints = append(r.Endpoints, checkEndpoint{"/", "the page for operators"})
}

// hookCaveats are the hooks with programs that cannot be run from here.
func hookCaveats(c *gateway.Config) (list []checkProblem) {
	look := func(path string, hooks []gateway.Hook) {
		for i, h := range hooks {
			if err := runnable(&gateway.Upstream{Command: h.Command, Env: h.Env}); err != nil {
				list = append(list,
					checkProblem{
						Path:    fmt.Sprintf("%s[%d]", path, i),
						Message: err.Error() + "; its calls are decided by on_failure",
					})
			}
		}
	}
	look("hooks", c.Hooks)
	for _, u := range c.Upstreams {
		look("upstreams."+u.Name+".hooks", u.Hooks)
	}
	return list
}

// has reports whether an endpoint begins so.
func (r *checkReport) has(path string) bool {
	return slices.ContainsFunc(r.Endpoints, func(e checkEndpoint) bool {
		return strings.HasPrefix(e.Path, path)
	})
}

// one reports whether one upstream is not disabled.
func one(list []checkUpstream) bool {
	n := 0
	for _, u := range list {
		if !u.Disabled {
			n++
		}
	}
	return n == 1
}

// caveats says what will not work here as one may think.
func caveats(u *gateway.Upstream, c *gateway.Config) (texts []string) {
	if err := runnable(u); err != nil {
		texts = append(texts, err.Error())
	}
	if u.Sandbox != nil && !u.Disabled {
		texts = append(texts, sandboxCaveats(u.Sandbox)...)
	}
	if u.Lifetime == "principal" && !u.Disabled {
		switch {
		case c.Guard == nil:
			texts = append(texts,
				"lifetime principal: without a guard callers are not authenticated; "+unauthenticatedOwn)
		case c.Guard.Anonymous:
			texts = append(texts,
				"lifetime principal: the guard lets in callers without credentials; "+unauthenticatedOwn)
		}
	}
	return append(texts, signInCaveats(u, c)...)
}

// unauthenticatedOwn is what callers without credentials have with the lifetime principal.
const unauthenticatedOwn = "each session or connection of theirs has its own, and so has each " +
	"HTTP request without a session"

// runnable says why a command cannot be run from here.
func runnable(u *gateway.Upstream) error {
	if u.Disabled || len(u.Command) == 0 {
		return nil
	}
	if u.Cwd != "" {
		if info, err := os.Stat(u.Cwd); err != nil || !info.IsDir() {
			return fmt.Errorf("there is no directory %s to run it in", u.Cwd)
		}
	}
	if u.Env["PATH"] != "" {
		return nil
	}
	program := u.Command[0]
	if strings.Contains(program, string(filepath.Separator)) && !filepath.IsAbs(program) &&
		u.Cwd != "" {
		program = filepath.Join(u.Cwd, program)
	}
	_, err := exec.LookPath(program)
	name, _, _ := strings.Cut(u.Target(), " ")
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s is no program that may be run", name)
	}
	return fmt.Errorf("there is no program %s on this machine, or it is not in PATH", name)
}

func describeUpstream(u *gateway.Upstream, locked bool) checkUpstream {
	d := checkUpstream{
		Name: u.Name, Disabled: u.Disabled, Profile: u.Profile, Kind: "url", Target: u.Target(),
		Cwd: u.Cwd,
		Env: valuesOf(u, "env", u.Env), Headers: valuesOf(u, "headers", u.Headers),
		Inherits: u.InheritEnv, Lifetime: u.Lifetime, Sharing: sharing(u),
		Sandbox: sandboxText(u.Sandbox), Auth: credentialsText(u),
	}
	switch {
	case len(u.Command) > 0:
		d.Kind = "command"
	case u.OpenAPI != nil:
		d.Kind, d.API = "api", describeAPI(u)
	}
	d.Limits = []string{
		brief(u.Timeout) + " for a call", countOf(u.MaxInFlight, "call") + " at once",
		fmt.Sprintf("%d wait for at most %s", u.MaxQueue, brief(u.QueueTimeout)),
	}
	if u.MaxMessage > 0 {
		d.Limits = append(d.Limits, bytesText(u.MaxMessage)+" for a message")
	}
	if u.IdleStop > 0 {
		d.Limits = append(d.Limits, "closed when unused for "+brief(u.IdleStop))
	}
	if u.Restart.Never {
		d.Failing = append(d.Failing, "not restarted")
	} else if d.Kind == "command" {
		d.Failing = append(d.Failing,
			fmt.Sprintf("restarted after %s to %s", brief(u.Restart.Min), brief(u.Restart.Max)))
	}
	d.Failing = append(d.Failing,
		fmt.Sprintf("left alone for %s after %s in a row", brief(u.Breaker.For),
			countOf(u.Breaker.After, "failure")))
	for _, f := range []struct {
		kind   string
		filter gateway.Filter
	}{{"tools", u.Tools}, {"resources", u.Resources}, {"prompts", u.Prompts}} {
		if text := shows(f.filter); text != "" {
			d.Shows = append(d.Shows, f.kind+": "+text)
		}
	}
	if u.Disabled {
		return d
	}
	if u.Profile != "raw" {
		d.Paths = append(d.Paths, "/mcp/"+u.Name)
	}
	if u.ServesRPC(locked) {
		d.Paths = append(d.Paths, "/rpc/"+u.Name)
	}
	return d
}

// valuesOf lists values by their names and where they come from.
func valuesOf(u *gateway.Upstream, kind string, values map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, name+": "+originOf(u, kind+"."+name))
	}
	return list
}

// originOf says where the value of a key comes from.
func originOf(u *gateway.Upstream, key string) string {
	if o := u.Origin(key); o != "" {
		return "(from " + o + ")"
	}
	return "(in the file)"
}

// brief writes 1m0s as 1m.
func brief(d time.Duration) string {
	text := d.String()
	if head, ok := strings.CutSuffix(text, "m0s"); ok {
		text = head + "m"
	}
	if head, ok := strings.CutSuffix(text, "h0m"); ok {
		text = head + "h"
	}
	return text
}

// sharing explains a lifetime.
func sharing(u *gateway.Upstream) string {
	what := "connection"
	if len(u.Command) > 0 {
		what = "process"
	}
	asks := ""
	if u.Lifetime != "shared" {
		asks = "; when the server asks its clients something, one for each session"
	}
	switch {
	case u.Profile == "raw" && u.Lifetime == "session":
		return "a " + what + " for each connection of a client"
	case u.Lifetime == "shared":
		return "one " + what + " for all clients, to which no roots are declared"
	case u.Lifetime == "auto":
		return "one " + what +
			" for all clients that can be asked the same; each that declares roots has its own" + asks
	case u.Lifetime == "principal":
		return "a " + what + " for each principal" + asks
	case u.Lifetime == "session":
		return "a " + what + " for each session of a client"
	case u.Lifetime == "call":
		return "a " + what + " for each call"
	}
	return ""
}

// shows explains a filter.
func shows(f gateway.Filter) string {
	var parts []string
	if len(f.Allow) > 0 {
		parts = append(parts, "only "+strings.Join(f.Allow, ", "))
	}
	if len(f.Deny) > 0 {
		parts = append(parts, "not "+strings.Join(f.Deny, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Rename)) {
		parts = append(parts, name+" as "+f.Rename[name])
	}
	if len(f.Describe) > 0 {
		parts = append(parts,
			"described again: "+strings.Join(slices.Sorted(maps.Keys(f.Describe)), ", "))
	}
	return strings.Join(parts, "; ")
}
