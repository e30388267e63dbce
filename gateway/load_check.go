package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/refs"
	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/openapi"
)

// Check reports what is wrong with a configuration, as a *[ConfigError] with everything that
// is. [Load] and [Parse] have done it.
func (c *Config) Check() error {
	e := &ConfigError{}
	check := checker{
		problem: func(path, message, hint string) {
			e.Problems = append(e.Problems, Problem{Path: path, Message: message, Hint: hint})
		},
	}
	for _, u := range c.Upstreams {
		name := "?"
		if u != nil {
			name = u.Name
		}
		check.roots = append(check.roots, "upstreams."+name)
	}
	check.config(c)
	if len(e.Problems) > 0 {
		return e
	}
	return nil
}

// checker says what does not go together. It does not repeat values that came
// from elsewhere, which may be secret.
type checker struct {
	problem func(path, message, hint string)
	notice  func(path, message, hint string) // nil: notices are dropped
	said    func(path string) bool           // nil: nothing was reported before
	written map[string]string                // the values that have been replaced
	values  map[string]string                // what they have been replaced with
	roots   []string                         // the paths of the upstreams
	apis    map[*Upstream]*openapi.API       // documents that were read; nil: they are not kept
}

// quote writes the value at a path as it was written.
func (c *checker) quote(path, value string) string {
	if w, ok := c.written[path]; ok {
		value = w
	}
	return strconv.Quote(value)
}

// choice checks a word. What may be empty has a default.
func (c *checker) choice(path, what, value string, words ...string) {
	if value == "" || slices.Contains(words, value) {
		return
	}
	hint := "use " + either(words...)
	if _, replaced := c.written[path]; !replaced {
		if near := nearest(value, words); near != "" && (near[0] < '0' || near[0] > '9') {
			hint += " (did you mean " + near + "?)"
		}
	}
	c.problem(path, "there is no "+what+" "+c.quote(path, value), hint)
}

func (c *checker) hosts(hosts []string) {
	for i, host := range hosts {
		if badHost(host) {
			path := "hosts[" + strconv.Itoa(i) + "]"
			c.problem(path, c.quote(path, host)+" is not a host name",
				"write tools.example.com, *.example.com, or * for every name")
		}
	}
}

func (c *checker) traceParents(conf *Config) {
	const remote, link = "remote", "link"
	c.choice("trace.parent", "kind of parent", conf.Trace.Parent, remote, link)
	for _, address := range slices.Sorted(maps.Keys(conf.Trace.Listeners)) {
		path := join("trace.listeners", address)
		switch kind := conf.Trace.Listeners[address]; {
		case !slices.Contains(conf.Listen, address):
			c.problem(path, "listen has no such address", "write one of listen, as it is there")
		case port.IsQueue(address):
			c.problem(path, "a message queue has no listener", "use trace.parent")
		case kind == "":
			c.problem(path, "it has no kind of parent", "use "+either(remote, link))
		default:
			c.choice(path, "kind of parent", kind, remote, link)
		}
	}
}

func (c *checker) config(conf *Config) {
	c.choice("namespace", "namespace", conf.Namespace, "auto", "always", "never")
	c.traceParents(conf)
	c.log(&conf.Log)
	c.capture(&conf.Capture)
	c.search("", conf.Search, conf.Namespace, namesOf(conf.Upstreams))
	c.choice("errors", "kind of errors", conf.Errors, "details", errorsPlain)
	for i, address := range conf.Listen {
		path := "listen[" + strconv.Itoa(i) + "]"
		if bad, ok := errors.AsType[*port.AddressError](port.Schemes().Check(address)); ok {
			c.problem(path, "cannot listen on "+c.quote(path, address), "it "+bad.Why+"; write "+bad.Instead)
		}
	}
	c.hosts(conf.Hosts)
	for i, text := range conf.TrustedProxies {
		if _, err := forwarded.Parse([]string{text}); err != nil {
			path := "trusted_proxies[" + strconv.Itoa(i) + "]"
			c.problem(path, "not a proxy: "+c.quote(path, text),
				"write an address, a network such as 10.0.0.0/8 that is not all there are, or unix")
		}
	}
	if t := conf.TLS; (t.Cert == "") != (t.Key == "") || t.ClientCA != "" && t.Cert == "" {
		c.problem("tls", "it needs both cert and key",
			"name the files of the certificate and of its private key")
	}
	c.sessions(conf)
	c.notBefore("idempotency.ttl", conf.Idempotency.TTL)
	c.tasks(conf)
	c.cluster(conf)
	c.notNegative("max_suspended", conf.MaxSuspended)
	c.notBefore("trace.slow", conf.Trace.Slow)
	c.notNegative("page_size", conf.PageSize)
	c.notBefore("suspend_timeout", conf.SuspendTimeout)
	c.notBefore("drain_timeout", conf.DrainTimeout)
	c.upstreams(conf)
	c.signIn(conf)
	c.allHooks(conf)
	c.endpoints(conf)
	if conf.Guard != nil {
		switch {
		case c.apis != nil:
			c.operations(conf.Guard, conf.Upstreams)
		case conf.near == nil:
			c.noOperations(conf.Guard)
		}
		c.guard(conf.Guard)
		c.patterns(conf.Guard, conf.Upstreams)
	}
}

// upstreams checks each of them, and that their names are different.
func (c *checker) upstreams(conf *Config) {
	if len(conf.Upstreams) == 0 {
		c.problem("", "there are no upstreams", "name a server under upstreams, with its command or url")
	}
	names := map[string]string{}
	for i, u := range conf.Upstreams {
		path := c.roots[i]
		if u == nil {
			c.problem(path, "it is nil", "remove it")
			continue
		}
		if first, twice := names[strings.ToLower(u.Name)]; twice {
			c.problem(path, fmt.Sprintf("there are the names %q and %q, which differ at most in case", first,
				u.Name), "rename one of them")
		}
		names[strings.ToLower(u.Name)] = u.Name
		c.apart(u, conf.Upstreams[:i], path)
		c.upstream(u, path)
		if conf.Guard == nil && c.notice != nil && !u.Disabled && u.Auth.asksWho() &&
			u.Auth.Type != authSignIn {
			// that is a problem
			c.notice(path+".auth",
				u.Auth.Type+" goes by who calls, and without a guard callers are unauthenticated", "add guard")
		}
	}
}

// references checks how names and URIs are shown.
func (c *checker) references(u *Upstream, at func(key string) string) {
	c.choice(at("namespace"), "namespace", u.Namespace, "auto", "always", "never")
	c.choice(at("arguments"), "way to treat arguments", u.Arguments, argumentsRewrite, argumentsOpaque)
	c.choice(at("web"), "form of web URIs", u.Web, webBare, webQualified)
	if u.Label != "" && !refs.ValidLabel(u.Label) {
		c.problem(at("label"), fmt.Sprintf("%q cannot be a label", u.Label),
			"begin with a small letter, and use small letters, digits, dots and hyphens")
	}
}

// apart refuses an upstream with qualified names or URIs that could be those of another one.
func (c *checker) apart(u *Upstream, others []*Upstream, path string) {
	for _, o := range others {
		if o == nil || strings.EqualFold(o.Name, u.Name) {
			continue
		}
		names, labels := refs.Clash(o.refs(), u.refs())
		if names {
			c.problem(path,
				fmt.Sprintf("its tools could have the same names as those of %s: %s__ and %s__ begin alike",
					o.Name, o.Name, u.Name), "rename one of them")
		}
		if labels {
			c.problem(path, fmt.Sprintf("it has the same label as %s: %s", o.Name, u.refs().Label),
				"give one of them another label")
		}
	}
}

func (c *checker) notNegative(path string, n int) {
	if n < 0 {
		c.problem(path, fmt.Sprintf("%d is less than nothing", n),
			"give a number from 1, or 0 for the default")
	}
}

func (c *checker) notBefore(path string, d time.Duration) {
	if d < 0 {
		c.problem(path, fmt.Sprintf("%v is less than nothing", d), "give a time, or 0 for the default")
	}
}

// badHost reports whether a text cannot be the name of a host, with or without a port.
func badHost(text string) bool {
	name, port, _ := strings.Cut(text, ":")
	_, err := strconv.ParseUint(cmp.Or(port, "0"), 10, 16)
	return err != nil || text != "*" && !hostName.MatchString(name)
}

var hostName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`)

// maxName bounds the name of an upstream: it stands before those of tools, and
// many clients take 64 letters.
const maxName = 64

var upstreamName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

func (c *checker) name(u *Upstream, path string) {
	const hint = "use letters, digits, - and _, as in github-2"
	switch {
	case u.Name == "":
		c.problem(path, "it has no name", hint)
	case len(u.Name) > maxName:
		c.problem(path, fmt.Sprintf("the name has %d letters, and %d are allowed", len(u.Name), maxName),
			"shorten it")
	case !upstreamName.MatchString(u.Name):
		c.problem(path, fmt.Sprintf("%q cannot be a name", u.Name), hint)
	case strings.Contains(u.Name, "__"):
		c.problem(path, fmt.Sprintf("the name %q has __, which stands between an upstream and its tool",
			u.Name), "use one _")
	case strings.EqualFold(u.Name, "ws") || strings.EqualFold(u.Name, "stream"):
		c.problem(path, fmt.Sprintf("%q cannot be a name: /rpc/%s has its own meaning", u.Name, u.Name),
			"use another")
	}
}

func (c *checker) upstream(u *Upstream, path string) {
	c.name(u, path)
	if u.Disabled {
		return
	}
	at := func(key string) string { return path + "." + key }
	c.choice(at("profile"), "profile", u.Profile, "auto", "mcp", "raw")
	c.choice(at("lifetime"), "lifetime", u.Lifetime, lifetimeAuto, lifetimeShared, "principal",
		"session", "call")
	if u.Lifetime == lifetimeShared && u.Pool > 1 && u.Profile != profileRaw {
		c.problem(at("pool"),
			fmt.Sprintf("the lifetime shared is one connection with one state, and the pool is %d", u.Pool),
			"remove pool, or choose another lifetime")
	}
	if u.Profile == profileRaw || !u.forAll() {
		c.refuse(path, "it is for a server of MCP with a connection that all callers may share",
			"remove it, or choose lifetime: auto or shared", map[string]bool{
				"preload": u.Preload, "required": u.Required, "health_check": u.HealthCheck != 0,
			})
	}
	c.choice(at("transport"), "transport", u.Transport, "streamable", "sse")
	c.choice(at("framing"), "framing", u.Framing, "line", "header", "raw")
	c.references(u, at)
	if _, _, err := era.Select(u.Era); err != nil {
		words := []string{"auto", "modern", "legacy"}
		for _, r := range slices.Backward(era.Revisions()) {
			words = append(words, r.Name)
		}
		c.choice(at("era"), "era", u.Era, words...)
	}
	for _, n := range []struct {
		key   string
		value int
	}{
		{"pool", u.Pool},
		{"max_in_flight", u.MaxInFlight},
		{"max_queue", u.MaxQueue},
		{"breaker.after", u.Breaker.After},
		{"max_message", int(u.MaxMessage)},
	} {
		c.notNegative(at(n.key), n.value)
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"timeout", u.Timeout},
		{"queue_timeout", u.QueueTimeout},
		{"start_timeout", u.StartTimeout},
		{"health_check", u.HealthCheck},
		{"idle_stop", u.IdleStop},
		{"breaker.for", u.Breaker.For},
		{"restart.min", u.Restart.Min},
		{"restart.max", u.Restart.Max},
		{"frame_timeout", u.FrameTimeout},
	} {
		c.notBefore(at(d.key), d.value)
	}
	if u.Restart.Max > 0 && u.Restart.Min > u.Restart.Max {
		c.problem(at("restart.min"), "it is more than max", "exchange them")
	}
	c.connects(u, path)
	c.cache(u, path+".cache")
	c.upstreamHooks(u, path+".hooks")
	c.environment(u, path)
	c.headers(u, path)
	c.raw(u, path)
	c.confinement(u, path)
	c.credentials(u, path)
	c.filter(&u.Tools, at("tools"), true)
	c.filter(&u.Resources, at("resources"), false)
	c.filter(&u.Prompts, at("prompts"), true)
}

// connects checks what an upstream is: a command, a url, a document or a server of this process.
func (c *checker) connects(u *Upstream, path string) {
	switch {
	case u.Server != nil:
		c.inProcess(u, path)
	case u.OpenAPI != nil:
		c.openAPI(u, path)
	case len(u.Command) == 0 && u.URL == "" && u.broken: // the reason is reported already
	case len(u.Command) == 0 && u.URL == "":
		c.problem(path, "it has neither a command nor a url",
			"add command: [PROGRAM, ARGUMENTS...] or url: https://host/mcp")
	case len(u.Command) > 0 && u.URL != "":
		c.problem(path+".url", "there is a command as well", "remove one; use two upstreams for both")
	case u.URL != "":
		c.address(u, path)
	default:
		c.command(u, path)
	}
}

// cache refuses to share results that depend on who calls.
func (c *checker) cache(u *Upstream, path string) {
	c.notBefore(path+".ttl", u.Cache.TTL)
	switch {
	case u.Cache.TTL == 0 && !u.Cache.Public:
	case u.Profile == profileRaw:
		c.problem(path, "it is for tools of MCP, and the profile is raw", "remove it")
	case u.Cache.Public && (u.Auth.asksWho() || len(u.ForwardHeaders) > 0 || !u.forAll()):
		c.problem(path+".public",
			"the server's answers depend on who calls (auth, forward_headers, lifetime), and all would "+
				"get those of one", "remove public: each owner has its own results then")
	}
}

// refuse reports keys that have no meaning where they are.
func (c *checker) refuse(path, why, hint string, set map[string]bool) {
	for _, key := range keys(set) {
		if set[key] {
			c.problem(path+"."+key, why, hint)
		}
	}
}

// inProcess refuses what has no meaning for a server of this process.
func (c *checker) inProcess(u *Upstream, path string) {
	c.refuse(path, "a server of this process has none", "remove it, or use another upstream",
		map[string]bool{
			"command": len(u.Command) > 0, "url": u.URL != "", "openapi": u.OpenAPI != nil,
			"env": len(u.Env) > 0, "inherit_env": len(u.InheritEnv) > 0, "cwd": u.Cwd != "",
			"headers": len(u.Headers) > 0, "tls": u.ownTLS(), "proxy": u.Proxy != "",
			"forward_headers": len(u.ForwardHeaders) > 0,
			"transport":       u.Transport != "", "framing": u.Framing != "",
			"frame_timeout": u.FrameTimeout != 0,
			"restart":       u.Restart != Restart{}, "sandbox": u.Sandbox != nil, "auth": u.Auth != nil,
			"max_message": u.MaxMessage != 0,
		})
	if u.Profile == profileRaw {
		c.problem(path+".profile", "a server of this process speaks MCP", "remove it")
	}
}

func (c *checker) command(u *Upstream, path string) {
	if u.Command[0] == "" {
		c.problem(path+".command", "the program has no name", "name it first, then its arguments")
	}
	if slices.ContainsFunc(u.Command, hasNUL) || hasNUL(u.Cwd) {
		c.problem(path+".command", "it has a NUL byte, which no command can have", "remove it")
	}
	c.refuse(path, "a command has none", "remove it; it is for a url", map[string]bool{
		"headers": len(u.Headers) > 0, "tls": u.ownTLS(), "proxy": u.Proxy != "",
		"forward_headers": len(u.ForwardHeaders) > 0,
		"transport":       u.Transport != "",
	})
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

func (c *checker) address(u *Upstream, path string) {
	at := path + ".url"
	if !isURL(u.URL) {
		c.problem(at, "it is not a URL",
			"write http://host:port/path, ws://host:port/path, tcp://host:port or unix:PATH")
		return
	}
	t, err := target.Parse(u.URL)
	if bad := (*target.Error)(nil); errors.As(err, &bad) {
		hint := "use " + either(target.Standard().Names()...)
		if bad.Form != "" {
			hint = "write " + bad.Form
		}
		c.problem(at, bad.Why, hint)
		return
	}
	isHTTP, isWS := t.Kind == target.HTTP, t.Kind == target.WebSocket
	if t.URL != nil && t.URL.User != nil && !t.Queue() { // those of an engine are not sent on
		c.problem(at, "it has a user or password", "put them into headers: Authorization: ${NAME}")
	}
	if !isHTTP && !isWS && strings.Contains(u.URL, "?") {
		c.problem(at, "it has a query, which a byte stream does not take",
			"remove it; for Content-Length headers write framing: header")
	}
	c.refuse(path, "only a command has it", "remove it", map[string]bool{
		"env": len(u.Env) > 0, "inherit_env": len(u.InheritEnv) > 0, "cwd": u.Cwd != "",
		"restart": u.Restart != Restart{},
	})
	if isHTTP {
		c.refuse(path, "over HTTP one connection carries any number of calls",
			"remove it; to bound the calls in flight use max_in_flight",
			map[string]bool{"pool": u.Pool != 0})
	} else {
		c.refuse(path, "only http and https have it", "remove it",
			map[string]bool{"transport": u.Transport != ""})
	}
	c.network(u, path, t)
	if isHTTP || isWS {
		c.refuse(path, "only commands and byte streams (tcp, tls, unix) have it", "remove it",
			map[string]bool{"framing": u.Framing != ""})
	} else {
		c.refuse(path, "only http, https, ws and wss have it", "remove it",
			map[string]bool{"headers": len(u.Headers) > 0})
	}
}

// raw checks what has no meaning when messages are only passed on.
func (c *checker) raw(u *Upstream, path string) {
	if u.Profile != "raw" {
		return
	}
	c.refuse(path, "it is about MCP, and the profile is raw", "remove it, or the profile",
		map[string]bool{
			"era": u.Era != "", "transport": u.Transport != "", "namespace": u.Namespace != "",
			"pool":  u.Pool != 0,
			"label": u.Label != "", "arguments": u.Arguments != "", "web": u.Web != "",
			"tools": !u.Tools.empty(), "resources": !u.Resources.empty(), "prompts": !u.Prompts.empty(),
		})
	switch {
	case u.URL != "" && u.Lifetime != "":
		c.problem(path+".lifetime", "a url with the profile raw has none", "remove it")
	case u.Lifetime == "principal" || u.Lifetime == "call" || u.Lifetime == lifetimeAuto:
		c.problem(path+".lifetime", fmt.Sprintf("the lifetime %s is for MCP, and the profile is raw",
			c.quote(path+".lifetime", u.Lifetime)), "use shared or session")
	}
}

func (f *Filter) empty() bool {
	return len(f.Allow)+len(f.Deny)+len(f.Rename)+len(f.Describe) == 0
}

func (c *checker) environment(u *Upstream, path string) {
	for _, name := range sortedKeys(u.Env) {
		if name == "" || strings.ContainsAny(name, "=\x00") || hasNUL(u.Env[name]) {
			c.problem(path+".env."+publicName(name), "no variable can have this name or value",
				"remove = and NUL bytes")
		}
	}
	for i, name := range u.InheritEnv {
		if name == "" || strings.ContainsAny(name, "=$ ") {
			at := path + ".inherit_env[" + strconv.Itoa(i) + "]"
			c.problem(at, strconv.Quote(publicName(name))+" is not the name of a variable",
				"write the name only, as in AWS_PROFILE or AWS_*; values go into env")
		}
	}
}

// publicName cuts a name off where a value seems to begin.
func publicName(name string) string {
	if i := strings.IndexAny(name, "=: \x00"); i >= 0 {
		return name[:i] + "..."
	}
	return name
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// ownHeaders are set by farcall.
var ownHeaders = []string{
	"Accept", "Connection", "Content-Length", "Content-Type", "Host", "Keep-Alive", "Last-Event-Id",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// isOwnHeader reports whether farcall sets a header of requests to servers itself.
func isOwnHeader(key string) bool {
	return slices.Contains(ownHeaders, key) || strings.HasPrefix(key, "Mcp-") ||
		strings.HasPrefix(key, "Sec-Websocket-")
}

func (c *checker) headers(u *Upstream, path string) {
	first := map[string]string{}
	for _, name := range sortedKeys(u.Headers) {
		at := path + ".headers." + publicName(name)
		key := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !headerName.MatchString(name):
			c.problem(at, "no header can have this name", "write the name only, without a colon")
		case strings.ContainsAny(u.Headers[name], "\r\n\x00"):
			c.problem(at, "the value has a line break", "remove it; a header is one line")
		case isOwnHeader(key):
			c.problem(at, "farcall sets this header itself", "remove it")
		case first[key] != "":
			c.problem(at, "it is the same header as "+first[key], "remove one")
		}
		first[key] = name
	}
}

var toolName = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

func isToolName(name string) bool { return len(name) <= 128 && toolName.MatchString(name) }

// filter checks patterns, and names that are to be shown.
func (c *checker) filter(f *Filter, path string, named bool) {
	for key, patterns := range map[string][]string{"allow": f.Allow, "deny": f.Deny} {
		for i, p := range patterns {
			if p == "" {
				c.problem(path+"."+key+"["+strconv.Itoa(i)+"]", "it is empty and matches nothing",
					"write a name, or a pattern with * or ?")
			}
		}
	}
	shown := map[string]string{}
	for _, name := range sortedKeys(f.Rename) {
		to, at := f.Rename[name], path+".rename."+name
		if _, _, isURI := strings.Cut(to, ":"); !named && !isURI {
			c.problem(at, c.quote(at, to)+" is not a URI",
				"write one, such as docs://readme; resources go by their URIs")
		} else if named && !isToolName(to) {
			c.problem(at, c.quote(at, to)+" cannot be a name",
				"use up to 128 letters, digits, _, -, . and /")
		}
		if other, twice := shown[to]; twice {
			c.problem(at, other+" has been renamed to the same", "use another name")
		}
		shown[to] = name
	}
}
